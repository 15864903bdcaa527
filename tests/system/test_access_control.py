"""A broker with access control: client and commands, allowed and refused, on a real port."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.credentials import AccessKey
from mq.client.errors import BrokerError
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.config import ConfigError
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import ConsumeFromWhere, TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests import answered
from tests.cli.support import Mq
from tests.daemons.broker.acl.accounts import home
from tests.daemons.peer import PATIENCE, Peer

ACCOUNTS = """\
accounts:
  - {accessKey: administrator, secretKey: admin_secret, admin: true}
  - accessKey: application
    secretKey: application_secret
    defaultGroupPerm: SUB
    topicPerms: [Orders=PUB|SUB, Prices=SUB]
"""
ADMIN = AccessKey("administrator", "admin_secret")
APPLICATION = AccessKey("application", "application_secret")


@asynccontextmanager
async def broker(tmp_path: Path) -> AsyncIterator[Standalone]:
    """A broker with access control, and the topics Orders and Prices."""
    home(tmp_path, ACCOUNTS)
    properties = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    async with Standalone(name_server_port=0, broker_port=0, properties=properties) as pair:
        await pair.broker.registration.first_round.wait()
        async with Session(pair.name_server_address, credentials=ADMIN) as session:
            for topic in ("Orders", "Prices"):
                config = TopicConfig(
                    topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=6
                )
                await Admin(session).create_topic(pair.broker.address, config)
        yield pair


def test_a_signing_client_sends_and_consumes_within_its_permissions(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as pair:
            servers = pair.name_server_address
            async with Producer(servers, "app", credentials=APPLICATION) as producer:
                await producer.send(Message("Orders", b"one"))
                await producer.send_batch([Message("Orders", b"two"), Message("Orders", b"three")])
                for refused in ([Message("Prices", b"x")], [Message("Prices", b"x")] * 2):
                    with pytest.raises(BrokerError) as error:
                        await producer.send_batch(refused)
                    assert error.value.code == ResponseCode.NO_PERMISSION
                    assert error.value.remark == "No default permission for topic:Prices"
            consumer = Consumer(
                servers,
                "app",
                {"Orders": "*"},
                credentials=APPLICATION,
                consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            )
            bodies = []
            async with asyncio.timeout(30), consumer:
                async for message in consumer:
                    bodies.append(bytes(message.body))
                    if len(bodies) == 3:
                        break
            assert sorted(bodies) == [b"one", b"three", b"two"]

    asyncio.run(main())


def test_a_client_that_does_not_sign_or_is_not_an_administrator_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as pair:
            address = pair.broker.address
            wrong = AccessKey("application", "another_secret")
            for credentials, remark in (
                (None, "No accessKey is configured"),
                (wrong, "Check signature failed for accessKey=application"),
                (APPLICATION, "Need admin permission for request code=25"),
            ):
                async with Session(pair.name_server_address, credentials=credentials) as session:
                    request = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"a=b\n")
                    reply = await session.invoke(address, request)
                assert reply.code == ResponseCode.NO_PERMISSION
                assert reply.remark is not None and reply.remark.startswith(remark)
            # the fast listener and the binary headers do not bypass it
            async with Peer(pair.broker.fast_listener.port) as peer:
                fields = {"b": "Orders", "e": "0"}
                for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.GET_BROKER_CONFIG):
                    assert (await peer.ask(code, fields, b"x")).code == ResponseCode.NO_PERMISSION

    asyncio.run(main())


def test_a_message_read_by_its_offset_needs_permission_for_its_topic(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as pair:
            address = pair.broker.address
            async with Session(pair.name_server_address, credentials=ADMIN) as admin:
                config = TopicConfig(topic_name="Secrets", perm=6)
                await Admin(admin).create_topic(address, config)
                async with Producer(admin, "p") as producer:
                    sent = {
                        topic: await producer.send(Message(topic, topic.encode()))
                        for topic in ("Orders", "Secrets")
                    }
            places = {topic: int(one.offset_message_id[16:], 16) for topic, one in sent.items()}
            async with Session(pair.name_server_address, credentials=APPLICATION) as session:
                found = await Admin(session).view_message(address, places["Orders"])
                assert found.body == b"Orders"
                with pytest.raises(BrokerError, match="No default permission for topic:Secrets"):
                    await Admin(session).view_message(address, places["Secrets"])

                # A message whose body contains a fake record of itself that is longer than the
                # message: it would expose the following stored data.
                async with Producer(session, "p") as producer:
                    record = (await session.invoke(address, _view(places["Orders"]))).body
                    forged = struct.pack(">i", len(record) + 400) + bytes(record)[4:]
                    own = await producer.send(Message("Orders", forged))
                async with Producer(pair.name_server_address, "p", credentials=ADMIN) as producer:
                    await producer.send(Message("Secrets", b"behind" * 200))
                place = int(own.offset_message_id[16:], 16)
                whole = bytes((await session.invoke(address, _view(place))).body)
                inside = place + whole.index(forged)
                assert pair.broker.stores.messages.record_at(inside) is not None
                reply = await session.invoke(address, _view(inside))
                assert reply.code == ResponseCode.SYSTEM_ERROR
                assert b"behind" not in bytes(reply.body)

    asyncio.run(main())


def _view(offset: int) -> Command:
    return Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})


def test_every_request_that_a_broker_answers_is_checked(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as pair, Peer(pair.broker.port) as peer:
            codes = {
                *pair.broker.listener.dispatcher.handlers,
                *pair.broker.listener.dispatcher.direct,
            }
            assert len(codes) > 40
            for code in codes:
                assert isinstance(code, int)
                reply = await peer.ask(code, {})
                assert (reply.code, reply.remark) == (
                    ResponseCode.NO_PERMISSION,
                    "No accessKey is configured",
                ), code

    asyncio.run(main())


@answered.by_broker(
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
)
def test_accounts_change_by_request_and_by_editing_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with (
            broker(tmp_path) as pair,
            Session(pair.name_server_address, credentials=ADMIN) as admin,
            Session(
                pair.name_server_address, credentials=AccessKey("new_account", "brand_new_secret")
            ) as newcomer,
        ):
            address = pair.broker.address

            async def ask(session: Session, code: int, **fields: str) -> Command:
                return await session.invoke(address, Command(code, fields))

            update = {"accessKey": "new_account", "secretKey": "brand_new_secret"}
            create = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
            assert (await ask(admin, create, **update, admin="true")).code == 0
            assert (await ask(newcomer, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)).code == 0
            bad = await ask(admin, create, accessKey="new_account", secretKey="tiny")
            assert bad.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
            assert bad.remark is not None and "tiny" not in bad.remark
            versions = await ask(admin, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
            assert '"counter":1' in versions.fields["version"]
            assert "plain_acl.yml" in versions.fields["allAclFileVersion"]
            assert (
                await ask(admin, RequestCode.DELETE_ACL_CONFIG, accessKey="new_account")
            ).code == 0
            gone = await ask(newcomer, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
            assert gone.remark == "No acl config for new_account"
            again = await ask(admin, RequestCode.DELETE_ACL_CONFIG, accessKey="new_account")
            assert again.code == ResponseCode.DELETE_ACL_CONFIG_FAILED
            addresses = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
            for path in ("/etc/passwd", f"{tmp_path}/conf/../../x.yml"):
                refused = await ask(admin, addresses, globalWhiteAddrs="*", aclFileFullPath=path)
                assert refused.code == ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
            accounts = await ask(admin, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
            assert (
                b"administrator" in accounts.body and b"secret" not in bytes(accounts.body).lower()
            )
            refused = await ask(newcomer, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
            assert refused.code != 0

            home(tmp_path, ACCOUNTS + "  - {accessKey: new_account, secretKey: brand_new_secret}\n")
            async with asyncio.timeout(PATIENCE):
                # the file is checked twice a second, without an event
                while (await ask(newcomer, RequestCode.GET_BROKER_RUNTIME_INFO)).code:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    asyncio.run(main())
    for secret in ("brand_new_secret", "admin_secret", "tiny"):
        assert secret not in caplog.text


def test_the_command_signs_with_the_access_key_of_a_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as pair:
            (tmp_path / "conf" / "tools.yml").write_text(
                f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n"
            )
            keys = tmp_path / "application.yml"
            keys.write_text("accessKey: application\nsecretKey: application_secret\n")
            mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
            call = ("updateTopic", "-t", "New", "-b", pair.broker.address)
            unsigned = await asyncio.to_thread(mq, *call)
            assert "No accessKey is configured" in unsigned.err
            refused = await asyncio.to_thread(mq, *call, "--acl-file", str(keys))
            assert "Need admin permission for request code=17" in refused.err
            assert (unsigned.status, refused.status) == (77, 77)
            allowed = await asyncio.to_thread(mq, *call, ROCKETMQ_HOME=str(tmp_path))
            assert (allowed.status, allowed.err) == (0, "")
            for name in ("sendMessage", "consumeMessage"):
                given = ["-p", "text"] if name == "sendMessage" else []
                done = await asyncio.to_thread(
                    mq, name, "-t", "Orders", *given, "--acl-file", str(keys)
                )
                assert done.status == 0, done

    asyncio.run(main())


def test_a_broker_without_accounts_refuses_to_start(tmp_path: Path) -> None:
    async def main() -> None:
        properties = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
        async with Standalone(name_server_port=0, broker_port=0, properties=properties):
            raise AssertionError("it started")

    with pytest.raises(ConfigError, match="set rocketmqHome"):
        asyncio.run(main())
