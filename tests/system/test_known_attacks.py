"""Attacks that RocketMQ has suffered, by their numbers, against these daemons.

Invalid frames, names and numbers are in test_bad_input.py; forged signatures are in
test_access_control.py.
"""

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.daemons.config import Section
from mq.daemons.namesrv.config import NamesrvConfig
from mq.daemons.remoting_config import NettyClientConfig, NettyServerConfig
from mq.daemons.standalone import Standalone
from mq.daemons.tls_config import TlsConfig
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.peer import Peer

SECTIONS = (
    BrokerConfig,
    MessageStoreConfig,
    NamesrvConfig,
    NettyClientConfig,
    NettyServerConfig,
    TlsConfig,
)


@asynccontextmanager
async def daemons(tmp_path: Path, **properties: str) -> AsyncIterator[Standalone]:
    async with Standalone(
        tmp_path / "store", name_server_port=0, broker_port=0, properties=properties
    ) as pair:
        await pair.broker.registration.first_round.wait()
        yield pair


def files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("section", SECTIONS)
def test_no_path_command_or_secret_may_be_set_at_run_time(section: type[Section]) -> None:
    """CVE-2023-33246, CVE-2023-37582: only the configuration file may name a file or a program."""
    dangerous = re.compile(r"path|file|home|dir|command|acl|tls|black|secret|password|bind", re.I)
    found = [
        declared.name
        for declared in section.settings().values()
        if declared.updatable and declared.type is str and dangerous.search(declared.name)
    ]
    assert found == []


@pytest.mark.parametrize(
    "body",
    [
        "filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch {marker};\n",
        "rocketmqHome=/tmp;touch {marker}\n",
        "brokerConfigPath={marker}\n",
        "storePathRootDir={marker}\n",
        "storePathCommitLog={marker}\n",
        "aclEnable=false\n",
        "rocketmq.acl.plain.file={marker}\n",
        "configBlackList=none\nrocketmqHome={marker}\n",
        "tls.server.certPath={marker}\n",
        "namesrvAddr=127.0.0.1:9876\\nrocketmqHome={marker}\n",
        "flushDelayOffsetInterval=10000\nmessageStorePlugIn={marker}\n",
    ],
)
def test_a_broker_runs_and_writes_nothing_that_a_request_names(tmp_path: Path, body: str) -> None:
    """CVE-2023-33246: settings became parts of a shell command."""

    async def main() -> None:
        async with daemons(tmp_path) as pair, Peer(pair.broker.port) as peer:
            before = pair.broker.settings.text()
            marker = tmp_path / "marker"
            sent = body.replace("{marker}", str(marker)).encode()
            reply = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, sent)
            assert reply.code in (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)
            assert pair.broker.settings.text() == before
            assert not marker.exists()

    asyncio.run(main())


@pytest.mark.parametrize(
    "name", ["configStorePath", "configStorePathName", "kvConfigPath", "rocketmqHome"]
)
def test_a_name_server_writes_no_file_that_a_request_names(tmp_path: Path, name: str) -> None:
    """CVE-2023-37582: the update itself was written to configStorePath."""

    async def main() -> None:
        async with daemons(tmp_path) as pair, Peer(pair.name_server.port) as peer:
            before = files(tmp_path)
            marker = tmp_path / "marker"
            for body in (
                f"{name}={marker}\nproductEnvName=* * * * * root touch /x\\n\n",
                f"configBlackList=\n{name}={marker}\n",
                f"orderMessageEnable=true\\n{name}={marker}\n",
            ):
                reply = await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, {}, body.encode())
                assert reply.code != ResponseCode.SUCCESS
            assert files(tmp_path) == before

    asyncio.run(main())


def test_secrets_in_the_files_of_a_broker_are_in_no_answer(tmp_path: Path) -> None:
    """CVE-2024-23321: every authorized client could read all accounts, including secret keys."""
    path = tmp_path / "broker.conf"
    path.write_text(
        "brokerName=a\nsecretKey=hidden_one\ntls.server.keyPassword=hidden_two\n"
        "someToken=hidden_three\n"
    )
    text = BrokerSettings.load(path).text()
    assert "hidden" not in text
    assert "tls.server.keyPassword=******" in text

    async def main() -> None:
        conf = tmp_path / "conf"
        conf.mkdir()
        (conf / "plain_acl.yml").write_text(
            "globalWhiteRemoteAddresses: [127.0.0.1]\n"
            "accounts: [{accessKey: administrator, secretKey: hidden_four, admin: true}]\n"
        )
        properties = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
        async with daemons(tmp_path, **properties) as pair, Peer(pair.broker.port) as peer:
            for code in (
                RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
                RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
                RequestCode.GET_BROKER_CONFIG,
                RequestCode.GET_BROKER_RUNTIME_INFO,
            ):
                reply = await peer.ask(code)
                assert reply.code == ResponseCode.SUCCESS
                assert "hidden" not in f"{dict(reply.fields)} {bytes(reply.body)!r}"

    asyncio.run(main())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a\x00b", ".."])
def test_a_group_or_namespace_that_is_a_path_creates_no_file(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with (
            daemons(tmp_path) as pair,
            Peer(pair.broker.port) as broker,
            Peer(pair.name_server.port) as namesrv,
        ):
            outside = {path for path in files(tmp_path) if tmp_path / "store" not in path.parents}
            group = b'{"groupName":"%s"}' % name.encode()
            reply = await broker.ask(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                {},
                group.replace(b"\0", b"\\u0000"),
            )
            assert reply.code != ResponseCode.SUCCESS
            await broker.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                {"consumerGroup": name, "topic": "T", "queueId": "0", "commitOffset": "1"},
            )
            await namesrv.ask(
                RequestCode.PUT_KV_CONFIG, {"namespace": name, "key": name, "value": "v"}
            )
            now = {path for path in files(tmp_path) if tmp_path / "store" not in path.parents}
            assert now == outside

    asyncio.run(main())


def test_a_type_named_in_json_is_not_instantiated(tmp_path: Path) -> None:
    """fastjson's @type (CVE-2017-18349 and later ones): here it is an ordinary field."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as trap:
            trap.setblocking(False)
            url = f"ldap://127.0.0.1:{trap.getsockname()[1]}/x"
            body = (
                '{"@type":"com.sun.rowset.JdbcRowSetImpl","autoCommit":true,"clientID":"c",'
                f'"dataSourceName":"{url}","consumerDataSet":[],"producerDataSet":[]}}'
            ).encode()
            async with daemons(tmp_path) as pair:
                async with Peer(pair.broker.port) as peer:
                    await peer.ask(RequestCode.HEART_BEAT, {}, body)
                    reply = await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
                    assert reply.code == ResponseCode.SUCCESS
            with pytest.raises(BlockingIOError):
                trap.accept()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"brokerIP1": "192.0.2.7"}, True),
        ({"bindAddress": "0.0.0.0"}, True),
        ({"bindAddress": "::"}, True),
        ({"bindAddress": "127.0.0.1"}, False),
        ({}, False),
        ({"bindAddress": "0.0.0.0", "aclEnable": "true"}, False),
    ],
)
def test_a_reachable_broker_without_access_control_logs_a_warning(
    settings: dict[str, str], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    BrokerSettings.load(None, settings)
    loud = [r for r in caplog.records if "ACCESS CONTROL IS OFF" in r.getMessage()]
    assert [record.levelno for record in loud] == [logging.WARNING] * warned
