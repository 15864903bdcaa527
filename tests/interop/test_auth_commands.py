"""The commands for users and policies print the output of the Java mqadmin 5.5.0.

At an older broker they report that it lacks them. Passwords are masked: ours shows none.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import Finished, Mq
from tests.interop import peers
from tests.interop.authorized import KEYS, SETTINGS
from tests.interop.jvm import require_java
from tests.interop.tools import BROKER, JavaTool

pytestmark = pytest.mark.java


class Secured:
    """A 5.5.0 broker with users and policies, and both tools with its first user."""

    def __init__(self, java: JavaTool, mq: Mq, namesrv: str, broker: str) -> None:
        self._java = java
        self._mq = mq
        self._namesrv = namesrv
        self.broker = broker

    def theirs(self, *arguments: str) -> str:
        return self._java(*arguments, "-n", self._namesrv)

    def ours(self, *arguments: str, keys: Path | None = None) -> Finished:
        mq = self._mq if keys is None else self._mq.having({"MQ_ACL_FILE": str(keys)})
        return mq(*arguments, "-n", self._namesrv)

    def assert_same(self, *arguments: str, nonempty: bool = True) -> str:
        java, ours = self.theirs(*arguments), self.ours(*arguments)
        assert (ours.out, ours.err, ours.status) == (masked(java), "", 0)
        assert bool(java) or not nonempty
        return ours.out


def masked(text: str) -> str:
    """Mask passwords by asterisks, in columns of the same width."""
    return re.sub(r"\b\w+_secret\b *", f"{'******':<24}", text)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    require_java()
    tmp = tmp_path_factory.mktemp("auth-commands")
    tools = f"accessKey: {KEYS['accessKey']}\nsecretKey: {KEYS['secretKey']}\n"
    tool = JavaTool(tmp, "5.5.0")
    (tool.home / "conf" / "tools.yml").write_text(tools)
    keys = tmp / "keys.yml"
    keys.write_text(tools)
    settings = {**SETTINGS, "brokerName": BROKER, "authConfigPath": str(tmp / "auth")}
    with (
        tool,
        peers.JavaNameServer("5.5.0", tmp) as namesrv,
        peers.JavaBroker("5.5.0", tmp, namesrv.address, settings) as broker,
    ):
        mq = Mq(tmp / "config", {"MQ_ACL_FILE": str(keys)})
        yield Secured(tool, mq, namesrv.address, broker.address)


WHERE = ("-c", "DefaultCluster")


def test_users_are_created_shown_changed_and_deleted_as_by_java(secured: Secured) -> None:
    at = ("-b", secured.broker)
    made = ("createUser", *at, "-u", "alice", "-p", "alice_secret", "-t", "Normal")
    java = secured.theirs(*made)
    secured.theirs("deleteUser", *at, "-u", "alice")
    assert secured.ours(*made).out == java == f"create user to {secured.broker} success.\n"
    assert "alice" in secured.assert_same("getUser", *at, "-u", "alice")
    assert "_secret" not in secured.assert_same("listUser", *WHERE)
    secured.assert_same("listUser", *at, "-f", "ali")
    secured.assert_same("listUser", *WHERE, "-f", "nobody", nonempty=False)
    secured.assert_same("updateUser", *WHERE, "-u", "alice", "-p", "other_secret")
    secured.assert_same("updateUser", *at, "-u", "alice", "-s", "disable")
    assert " disable " in secured.assert_same("getUser", *WHERE, "-u", "alice")
    secured.assert_same("copyUser", "-f", secured.broker, "-t", secured.broker)
    assert secured.ours("createUser", *at, "-u", "bob", "-p", "bobs_secret").status == 0
    java = secured.theirs("deleteUser", *WHERE, "-u", "alice")
    assert secured.ours("deleteUser", *WHERE, "-u", "bob").out == java
    absent = secured.ours("getUser", *at, "-u", "alice")
    assert (absent.status, absent.out) == (66, "")
    assert secured.theirs("getUser", *at, "-u", "alice") == ""


def test_policies_are_created_shown_changed_and_deleted_as_by_java(secured: Secured) -> None:
    at = ("-b", secured.broker)
    for name in ("carol", "dave"):
        assert secured.ours("createUser", *at, "-u", name, "-p", f"{name}_secret").status == 0
    carol, rights = ("-s", "User:carol"), ("-a", "Pub,Sub", "-d", "Allow")
    secured.assert_same("createAcl", *at, *carol, "-r", "Topic:Orders,Group:*", *rights)
    secured.assert_same("createAcl", *WHERE, "-s", "User:dave", "-r", "Topic:Dave*", *rights)
    assert "Topic:Orders" in secured.assert_same("getAcl", *WHERE, *carol)
    where = ("-i", "10.1.2.3,10.1.2.0/24")
    secured.assert_same(
        "updateAcl", *WHERE, *carol, "-r", "Topic:Orders", *rights[:3], "Deny", *where
    )
    assert "[10.1.2.3, 10.1.2.0/24]" in secured.assert_same("getAcl", *at, *carol)
    for words in (at, (*WHERE, "-s", "carol"), (*at, "-r", "Dave"), (*at, "-s", "nobody")):
        secured.assert_same("listAcl", *words, nonempty="nobody" not in words)
    secured.assert_same("copyAcl", "-f", secured.broker, "-t", secured.broker, *carol)
    secured.assert_same("deleteAcl", *at, *carol, "-r", "Topic:Orders")
    assert "Topic:Orders" not in secured.assert_same("getAcl", *at, *carol)
    java = secured.theirs("deleteAcl", *WHERE, *carol)
    assert secured.ours("deleteAcl", *WHERE, "-s", "User:dave").out == java
    assert secured.ours("getAcl", *at, "-s", "User:dave").status == 66
    for name in ("carol", "dave"):
        secured.ours("deleteUser", *at, "-u", name)


def test_a_user_without_permission_is_refused(secured: Secured, tmp_path: Path) -> None:
    assert secured.ours("createUser", *WHERE, "-u", "erin", "-p", "erin_secret").status == 0
    keys = tmp_path / "erin.yml"
    keys.write_text("accessKey: erin\nsecretKey: erin_secret\n")
    refused = secured.ours("listUser", "-b", secured.broker, keys=keys)
    assert (refused.status, refused.out) == (77, "")
    wrong = secured.ours("createUser", *WHERE, "-u", "erin", "-p", "erin_secret")
    assert wrong.status == 77
    assert "exist" in wrong.err
    secured.ours("deleteUser", *WHERE, "-u", "erin")
