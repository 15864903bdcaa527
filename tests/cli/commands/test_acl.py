from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.credentials import AccessKey
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests import answered
from tests.cli.pairs import running_pair
from tests.cli.support import Mq

ACCOUNTS = """\
globalWhiteRemoteAddresses: []
accounts:
  - {accessKey: administrator, secretKey: admin_secret, admin: true}
  - accessKey: application
    secretKey: application_secret
    defaultTopicPerm: DENY
    topicPerms: [Orders=PUB|SUB, Prices=SUB]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with accounts and the keys of an administrator and of an application."""
    home = tmp_path_factory.mktemp("accounts")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    for name, secret in (("administrator", "admin_secret"), ("application", "application_secret")):
        (home / f"{name}.yml").write_text(f"accessKey: {name}\nsecretKey: {secret}\n")
    return home


@pytest.fixture(scope="module")
def guarded(home: Path) -> Iterator[Standalone]:
    """Our daemons with access control."""
    with running_pair({"aclEnable": "true", "rocketmqHome": str(home)}) as pair:
        yield pair


@pytest.fixture
def admin(guarded: Standalone, home: Path, tmp_path: Path) -> Mq:
    """`mq` with the keys of the administrator."""
    return as_account(guarded, home, tmp_path, "administrator")


def as_account(guarded: Standalone, home: Path, tmp_path: Path, name: str) -> Mq:
    variables = {"NAMESRV_ADDR": guarded.name_server_address}
    return Mq(tmp_path, {**variables, "MQ_ACL_FILE": str(home / f"{name}.yml")})


def accounts(admin: Mq) -> dict[str, dict[str, object]]:
    (broker,) = admin("getAclConfig", "-c", "DefaultCluster", "-o", "json").json["data"]
    return {item["accessKey"]: item for item in broker["accounts"]}


def test_an_account_is_made_heeded_changed_and_deleted(
    admin: Mq, guarded: Standalone, home: Path, tmp_path: Path
) -> None:
    at = ("-b", guarded.broker.address)
    made = admin("updateAclConfig", *at, "-a", "newcomer", "-s", "new_secret", "-t", "Orders=PUB")
    assert made.out.startswith(
        f"create or update plain access config to {guarded.broker.address} success.\n"
    )
    assert accounts(admin)["newcomer"]["topicPerms"] == ["Orders=PUB"]
    (home / "newcomer.yml").write_text("accessKey: newcomer\nsecretKey: new_secret\n")
    admin("updateTopic", "-c", "DefaultCluster", "-t", "Orders")
    newcomer = as_account(guarded, home, tmp_path, "newcomer")
    assert newcomer("sendMessage", "-t", "Orders", "-p", "x").status == 0
    cluster = ("-c", "DefaultCluster")
    words = ("-a", "newcomer", "-s", "new_secret", "-t", "Orders=SUB", "-m", "false")
    assert admin("updateAclConfig", *cluster, *words).status == 0
    assert newcomer("sendMessage", "-t", "Orders", "-p", "x").status == 77
    emptied = ("-a", "newcomer", "-s", "new_secret", "-t", "")
    assert admin("updateAclConfig", *cluster, *emptied).status == 0
    assert not accounts(admin)["newcomer"]["topicPerms"]
    gone = admin("deleteAccessConfig", *at, "-a", "newcomer")
    assert gone.out == (
        f"delete plain access config account from {guarded.broker.address} success.\n"
        "account's accesskey is:newcomer"
    )
    assert "newcomer" not in accounts(admin)
    assert "newcomer" not in (home / "conf" / "plain_acl.yml").read_text()


@answered.by_broker(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
def test_no_secret_key_is_shown_in_any_format(admin: Mq, guarded: Standalone) -> None:
    for format in ("plain", "table", "json", "yaml", "csv"):
        where = ("-c", "DefaultCluster", "-o", format)
        shown = admin("getAccessConfigSubCommand", *where, columns=200)
        assert shown.status == 0
        assert "_secret" not in shown.out + shown.err
        assert "application" in shown.out
    key = AccessKey("administrator", "admin_secret")
    with BlockingSession(guarded.name_server_address, credentials=key) as session:
        request = Command(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        answer = bytes(run(session.call(guarded.broker.address, request)).body)
    assert b"application" in answer
    assert b"_secret" not in answer
    plain = admin("getAclConfig", "-b", guarded.broker.address).out
    assert plain.startswith("\nglobalWhiteRemoteAddresses: []\n\naccounts:\n")
    assert "  secretKey         : ******\n" in plain
    assert "  topicPerms        : [Orders=PUB|SUB, Prices=SUB]\n" in plain


def test_addresses_and_versions(admin: Mq, guarded: Standalone, home: Path) -> None:
    at = ("-b", guarded.broker.address)
    before = admin("clusterAclConfigVersion", *at, "-o", "json").json["data"][0]
    changed = admin("updateGlobalWhiteAddr", *at, "-g", "10.9.8.*,10.9.7.6")
    assert changed.out == (
        f"update global white remote addresses to {guarded.broker.address} success.\n"
    )
    assert "10.9.8.*" in (home / "conf" / "plain_acl.yml").read_text()
    after = admin("clusterAclConfigVersion", "-c", "DefaultCluster", "-o", "json").json["data"][0]
    assert after["counter"] == before["counter"] + 1
    assert after["aclFilePath"] == str(home / "conf" / "plain_acl.yml")
    plain = admin("clusterAclConfigVersion", "-c", "DefaultCluster").out.splitlines()
    assert plain[0].startswith("#Cluster Name     #Broker Name")
    assert plain[-1] == "get cluster's plain access config version success."
    elsewhere = admin("updateGlobalWhiteAddr", *at, "-g", "10.9.7.6", "-p", "/etc/passwd")
    assert elsewhere.status == 69
    assert "/etc/passwd is not one of the ACL files of this broker" in elsewhere.err


def test_who_is_no_administrator_may_neither_read_nor_change(
    guarded: Standalone, home: Path, tmp_path: Path
) -> None:
    application = as_account(guarded, home, tmp_path, "application")
    for words in (
        ("getAclConfig",),
        ("clusterAclConfigVersion",),
        ("deleteAclConfig", "-a", "administrator"),
        ("updateGlobalWhiteAddr", "-g", "*"),
        ("updateAclConfig", "-a", "application", "-s", "application_secret", "-m", "true"),
    ):
        finished = application(*words, "-b", guarded.broker.address)
        assert (finished.status, finished.out) == (77, "")
        assert "Need admin permission" in finished.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("-a", "short", "-s", "enough_of_it"), "length should longer than 6"),
        (("-a", "long_enough", "-s", "s3cret"), "length should longer than 6"),
        (("-a", "long_enough", "-s", "enough_of_it", "-t", "Orders"), "'Res=Perm'"),
        (("-a", "long_enough", "-s", "enough_of_it", "-g", "G=ALL"), "permission error"),
    ],
)
def test_an_account_that_cannot_be_is_refused(
    words: tuple[str, ...], complaint: str, admin: Mq
) -> None:
    finished = admin("updateAclConfig", "-c", "DefaultCluster", *words)
    assert (finished.status, finished.out) == (69, "")
    assert complaint in finished.err
    assert "s3cret" not in finished.err


def test_a_broker_without_access_control_says_so(cluster: Mq, standalone: Standalone) -> None:
    for words in (("getAclConfig",), ("updateAclConfig", "-a", "newcomer", "-s", "new_secret")):
        finished = cluster(*words, "-b", standalone.broker.address)
        assert (finished.status, finished.out) == (69, "")
        assert "access control is off at this broker (aclEnable=false)" in finished.err
