"""The account commands of 4.9 print the output of the Java mqadmin, at a Java broker and ours.

Masked are the secret keys, which ours never shows, and the hash of a Java object.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.support import Finished, Mq
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.interop.ports import free_port
from tests.interop.process import Process
from tests.interop.tools import BROKER, JavaTool

pytestmark = pytest.mark.java

ACCOUNTS = """\
globalWhiteRemoteAddresses: [10.9.8.7]
accounts:
  - {accessKey: administrator, secretKey: admin_secret, admin: true}
  - accessKey: application
    secretKey: application_secret
    whiteRemoteAddress: 10.9.8.8
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms: [Orders=PUB|SUB, Prices=SUB]
    groupPerms: [billing=SUB]
"""
TOOLS = "accessKey: administrator\nsecretKey: admin_secret\n"


class Guarded:
    """A broker with access control, and both tools with the keys of its administrator."""

    def __init__(self, java: Callable[..., str], ours: Callable[..., Finished], home: Path) -> None:
        self.java = java
        self.ours = ours
        self.home = home

    def assert_same(self, *arguments: str) -> str:
        java, ours = self.java(*arguments), self.ours(*arguments)
        assert (masked(ours.out), ours.err, ours.status) == (masked(java), "", 0)
        assert java
        return ours.out


def masked(text: str) -> str:
    text = re.sub(r"(?<=secretKey         : ).*", "<secret>", text)
    return re.sub(r"(?<=PlainAccessConfig@)[0-9a-f]+", "<object>", text)


@pytest.fixture(scope="module", params=["4.9.7", "ours"])
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    require_java()
    tmp = tmp_path_factory.mktemp("acl-commands")
    tool = JavaTool(tmp)
    write(tool.home, "tools.yml", TOOLS)
    write(tmp, "tools.yml", TOOLS)
    with tool, peers.JavaNameServer("4.9.7", tmp) as namesrv, broker(request.param, tmp, namesrv):
        mq = Mq(tmp / "config", {"MQ_ACL_FILE": str(tmp / "conf" / "tools.yml")})

        def ours(*arguments: str) -> Finished:
            return mq(*arguments, "-n", namesrv.address)

        yield Guarded(lambda *a: tool(*a, "-n", namesrv.address), ours, tmp)


def broker(release: str, tmp: Path, namesrv: peers.JavaNameServer) -> Process:
    """The broker with its accounts, not started yet."""
    if release == "ours":
        write(tmp / "home", "plain_acl.yml", ACCOUNTS)
        settings = {
            "brokerName": BROKER, "listenPort": free_port(), "aclEnable": "true",
            "brokerIP1": "127.0.0.1", "rocketmqHome": tmp / "home",
            "storePathRootDir": tmp / "store",
        }  # fmt: skip
        items = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "mq", "broker", "-n", namesrv.address, *items]
        return Process(command, tmp / "home", "registered with name server")
    java = peers.JavaBroker(
        release, tmp, namesrv.address, {"aclEnable": "true", "brokerName": BROKER}
    )
    write(java.home, "plain_acl.yml", ACCOUNTS)
    (java.home / "conf" / "acl").mkdir()
    return java


def write(home: Path, name: str, text: str) -> None:
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / name).write_text(text)


WHERE = ("-c", "DefaultCluster")


def test_accounts_are_shown_and_changed_as_by_java(guarded: Guarded) -> None:
    assert "application" in guarded.assert_same("getAclConfig", *WHERE)
    new = ("updateAclConfig", *WHERE, "-a", "newcomer", "-s", "new_secret")
    guarded.assert_same(*new, "-t", "Orders=PUB,Prices=SUB", "-g", "billing=SUB", "-m", "true")
    guarded.assert_same(*new, "-w", "10.1.2.3", "-i", "PUB", "-u", "SUB")
    shown = guarded.assert_same("getAccessConfigSubCommand", *WHERE)
    assert "  accessKey         : newcomer\n" in shown
    assert "  topicPerms        : [Orders=PUB, Prices=SUB]\n" in shown
    assert "_secret" not in shown
    address = guarded.ours("clusterList", "-o", "json").json["data"][0]["brokerAddr"]
    guarded.assert_same("getAclConfig", "-b", address)
    deleted = ("deleteAclConfig", "-b", address, "-a", "newcomer")
    java = guarded.java(*deleted)
    guarded.ours(*new)
    assert guarded.ours(*deleted).out == java
    assert "newcomer" not in guarded.assert_same("getAclConfig", *WHERE)


def test_addresses_and_versions_are_printed_as_by_java(guarded: Guarded) -> None:
    address = guarded.ours("clusterList", "-o", "json").json["data"][0]["brokerAddr"]
    guarded.assert_same("updateGlobalWhiteAddr", *WHERE, "-g", "10.9.8.7,10.9.8.6")
    guarded.assert_same("updateGlobalWhiteAddr", "-b", address, "-g", "10.9.8.7")
    guarded.assert_same("clusterAclConfigVersion", *WHERE)
    assert "plain_acl.yml" in guarded.assert_same("clusterAclConfigVersion", "-b", address)
