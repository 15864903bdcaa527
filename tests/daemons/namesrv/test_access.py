"""Permissions for changes at a name server: a real one, with peers that sign or do not."""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from mq.daemons.acl import signers
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.config import ConfigError
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.bodies import DataVersion
from mq.protocol.codes import RequestCode as Code
from mq.protocol.codes import ResponseCode, SnodeCode, answered_by
from mq.protocol.command import Command
from mq.protocol.requests import NAME_SERVER, RequestKind
from tests.daemons.broker.acl.accounts import home, whole
from tests.daemons.broker.acl.guarded import ACCOUNTS, ADMIN, MINE, STRANGER, Account, SigningPeer
from tests.daemons.own_records import own_records

DOCUMENT = (Path(__file__).parents[3] / "docs" / "permissions.md").read_text("utf-8")
SECTION = DOCUMENT.partition("## A name server")[2].partition("\n## ")[0]
ROW = r"^\| (\d+) \| (\w+) \| (everyone|a writer) \|$"
TABLE = {int(code): (name, who) for code, name, who in re.findall(ROW, SECTION, re.M)}
NOWHERE = "203.0.113.0/24"  # a network that no test uses
READS = {int(code) for code in answered_by(NAME_SERVER) if code.kind is RequestKind.READ}
WRITES = set(map(int, answered_by(NAME_SERVER))) - READS
WRONG = ("administrator", b"not its secret")

Script = Callable[[NameServer], Awaitable[None]]


def load(tmp_path: Path, acl: bool, allowed: str, **settings: str) -> NamesrvSettings:
    path = tmp_path / "namesrv.conf"
    if not path.exists():
        path.write_text(f"writeAllowList={allowed}\n")
    given = {"listenPort": "0", "bindAddress": "127.0.0.1", "kvConfigPath": f"{tmp_path}/kv.json"}
    if acl:
        given |= {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
    return NamesrvSettings.load(path, given | settings)


def serve(tmp_path: Path, script: Script, *, acl: bool = False, allowed: str = "") -> None:
    async def main() -> None:
        async with NameServer(load(tmp_path, acl, allowed)) as server:
            await script(server)

    asyncio.run(main())


async def ask(server: NameServer, who: Account | None, code: int) -> Command:
    fields = {**whole(code, {}), "accept": "x"} if code in Code.__members__.values() else {}
    body = DataVersion().encode() if code == Code.QUERY_DATA_VERSION else b""
    async with SigningPeer(server.port, who) as peer:
        return await peer.ask(code, fields, body)


def is_refused(reply: Command) -> bool:
    says = re.search("accessKey|acl config|signature|admin|writeAllowList", reply.remark or "")
    return reply.code == ResponseCode.NO_PERMISSION and says is not None


def test_every_code_is_a_read_or_a_write_and_is_documented(tmp_path: Path) -> None:
    async def script(server: NameServer) -> None:
        assert not READS & WRITES
        assert server.listener.dispatcher.handlers.keys() == READS | WRITES
        assert not server.listener.dispatcher.direct
        assert {c for c, (_, who) in TABLE.items() if who == "everyone"} == READS
        assert {c for c, (_, who) in TABLE.items() if who == "a writer"} == WRITES
        named = {**Code.__members__, **SnodeCode.__members__}
        assert all(named[name] == code for code, (name, _) in TABLE.items())

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("acl", "allowed", "who", "may_write"),
    [
        (False, "", None, True),  # as in Java
        (False, NOWHERE, None, False),
        (False, NOWHERE, ADMIN, False),
        (False, f"{NOWHERE};127.0.0.0/8", None, True),
        (True, "", None, False),
        (True, "", STRANGER, False),
        (True, "", WRONG, False),
        (True, "", MINE, False),  # an account, but not an administrator
        (True, "", ADMIN, True),
        (True, NOWHERE, ADMIN, True),
        (True, "127.0.0.1", None, True),  # a broker that cannot sign
        (True, "127.0.0.1", WRONG, True),
    ],
)
def test_who_may_write_and_everyone_may_read(
    tmp_path: Path, acl: bool, allowed: str, who: Account | None, may_write: bool
) -> None:
    async def script(server: NameServer) -> None:
        for code in server.listener.dispatcher.handlers:
            reply = await ask(server, who, code)
            assert is_refused(reply) is (code in WRITES and not may_write), (code, reply)

    serve(tmp_path, script, acl=acl, allowed=allowed)


@pytest.mark.parametrize(
    ("acl", "who", "may"), [(True, ADMIN, True), (True, None, False), (False, ADMIN, False)]
)
def test_a_code_without_a_class_is_for_administrators_only(
    tmp_path: Path, acl: bool, who: Account | None, may: bool
) -> None:
    async def script(server: NameServer) -> None:
        server.listener.dispatcher.serve({99_999: lambda command, channel: command.reply()})
        reply = await ask(server, who, 99_999)
        assert is_refused(reply) is not may

    serve(tmp_path, script, acl=acl, allowed="127.0.0.1")


def test_a_refusal_names_its_cause_and_shows_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(server: NameServer) -> None:
        reply = await ask(server, WRONG, Code.REGISTER_BROKER)
        assert reply.code == ResponseCode.NO_PERMISSION
        assert (reply.remark or "").startswith("Check signature failed for accessKey=administrator")
        assert server.listener.dispatcher.refusals[Code.REGISTER_BROKER, "NO_PERMISSION"] == 1
        async with SigningPeer(server.port, None) as peer:
            config = await peer.ask(Code.GET_NAMESRV_CONFIG)
        told = [r for r in caplog.records if "refused" in r.getMessage()]
        assert len(told) == 1
        assert told[0].__dict__["peer"] == "127.0.0.1"  # the log of the daemon is limited by it
        for text in (caplog.text, reply.remark, bytes(config.body).decode()):
            assert "admin_secret" not in str(text)

    serve(tmp_path, script, acl=True)


def test_changed_accounts_apply_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(server: NameServer) -> None:
        def accounts() -> Mapping[str, object]:
            assert server.access is not None and server.access.signers is not None
            return server.access.signers.rules.accounts

        assert is_refused(await ask(server, STRANGER, Code.PUT_KV_CONFIG))
        key, secret = STRANGER[0], STRANGER[1].decode()
        home(tmp_path, f"accounts:\n- {{accessKey: {key}, secretKey: {secret}, admin: true}}\n")
        async with asyncio.timeout(30):
            while STRANGER[0] not in accounts():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert not is_refused(await ask(server, STRANGER, Code.PUT_KV_CONFIG))
        assert is_refused(await ask(server, ADMIN, Code.PUT_KV_CONFIG))

    monkeypatch.setattr(signers, "WATCH_SECONDS", 0.02)
    serve(tmp_path, script, acl=True)


def test_sighup_reads_the_allow_list_again_and_keeps_it_when_it_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(server: NameServer) -> None:
        conf = tmp_path / "namesrv.conf"
        assert is_refused(await ask(server, None, Code.PUT_KV_CONFIG))
        conf.write_text("writeAllowList=127.0.0.1\n")
        server.reload()
        assert not is_refused(await ask(server, None, Code.PUT_KV_CONFIG))
        for wrong in ("writeAllowList=10.0.0.0/99\n", "", "writeAllowList=;\n"):
            conf.write_text(wrong)
            server.reload()
            assert not is_refused(await ask(server, None, Code.PUT_KV_CONFIG))
        assert caplog.text.count("keeping the old writeAllowList") == 3
        conf.write_text(f"writeAllowList={NOWHERE}\n")
        server.reload()
        assert is_refused(await ask(server, None, Code.PUT_KV_CONFIG))

    serve(tmp_path, script, allowed=NOWHERE)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"writeAllowList": "10.0.0.0/99"}, "neither an address nor a network"),
        ({"aclEnable": "true", "rocketmqHome": "/nowhere"}, "write one with an account"),
    ],
)
def test_settings_that_cannot_work_end_the_start_with_one_line(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    async def main() -> None:
        async with NameServer(load(tmp_path, False, "", **settings)):
            pass

    with pytest.raises(ConfigError, match=said) as raised:
        asyncio.run(main())
    assert "\n" not in str(raised.value)


def test_a_reachable_name_server_without_access_control_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def host(**settings: str) -> str:
        caplog.clear()
        return NamesrvSettings.load(None, {"listenPort": "0"} | settings).listen_host()

    assert host() == "127.0.0.1"
    assert host(bindAddress="0.0.0.0") == "0.0.0.0"
    assert "ACCESS CONTROL IS OFF" in caplog.text
    for nobody in (";", " , ;"):  # as in a template whose variables are empty
        assert host(writeAllowList=nobody) == "127.0.0.1"
        assert host(writeAllowList=nobody, bindAddress="0.0.0.0") == "0.0.0.0"
        assert "ACCESS CONTROL IS OFF" in caplog.text
    caplog.clear()
    assert host(writeAllowList="10.0.0.0/8") == host(aclEnable="true") == "0.0.0.0"
    assert host(bindAddress="10.0.0.5", aclEnable="true") == "10.0.0.5"
    assert own_records(caplog) == []


def keys(path: Path, account: Account) -> str:
    path.write_text(f"accessKey: {account[0]}\nsecretKey: {account[1].decode()}\n")
    return str(path)


async def broker(tmp_path: Path, server: NameServer, **settings: str) -> Broker:
    given = {
        **{"listenPort": "0", "brokerIP1": "127.0.0.1", "brokerName": "broker-a"},
        **{"storePathRootDir": f"{tmp_path}/s", "namesrvAddr": server.address},
    }
    return Broker(BrokerSettings.load(None, {**given, **settings}))


def test_a_broker_signs_its_registrations_and_its_key_changes_at_sighup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(server: NameServer) -> None:
        file = tmp_path / "keys.yml"
        async with await broker(tmp_path, server, namesrvAclFile=keys(file, MINE)) as one:
            assert server.routes.live == {}
            refused = [r for r in caplog.records if "registration with" in r.getMessage()]
            assert len(refused) == 1
            assert "Need admin permission" in refused[0].getMessage()
            keys(file, ADMIN)
            os.utime(file)
            one.reload()
            await one.registration.announced()
            async with asyncio.timeout(30):
                while not server.routes.live:
                    await one.registration.round_ended()
            one.stores.topics.create_internal("T", 1)
            await one.registration.announced()
            assert "T" in server.routes.topics
            file.write_text("nonsense")
            one.reload()
            assert "keeping the old key for requests" in caplog.text
        assert server.routes.live == {}  # its unregistration is signed, too
        assert "mine_secret" not in caplog.text and "admin_secret" not in caplog.text

    caplog.set_level(logging.INFO)
    serve(tmp_path, script, acl=True)


def test_a_broker_whose_keys_cannot_be_read_does_not_start(tmp_path: Path) -> None:
    async def script(server: NameServer) -> None:
        with pytest.raises(ConfigError, match=r"namesrvAclFile: .*nowhere"):
            async with await broker(tmp_path, server, namesrvAclFile=f"{tmp_path}/nowhere"):
                pass

    serve(tmp_path, script)
