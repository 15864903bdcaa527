"""Filter servers of a broker: which may register, which are dropped, and which it starts itself."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.credentials import AccessKey
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.components import filters
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.config import ConfigError
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
    TopicRouteData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.filtersrv import (
    RegisterFilterServerRequestHeader,
    RegisterFilterServerResponseHeader,
    RegisterMessageFilterClassRequestHeader,
)
from mq.protocol.headers.pull import PullMessageRequestHeader
from mq.protocol.message import Message
from tests import answered
from tests.daemons.broker.acl.accounts import home
from tests.daemons.peer import Peer

ACCOUNTS = """\
accounts:
  - {accessKey: administrator, secretKey: admin_secret, admin: true}
  - {accessKey: consumer, secretKey: consumer_secret, defaultTopicPerm: PUB|SUB,
     defaultGroupPerm: SUB}
"""


@asynccontextmanager
async def pair(**settings: str) -> AsyncIterator[Standalone]:
    async with Standalone(name_server_port=0, broker_port=0, properties=settings) as both:
        yield both


async def register(peer: Peer, address: str = "10.0.0.1:3000") -> Command:
    header = RegisterFilterServerRequestHeader(filter_server_addr=address)
    return await peer.ask(RequestCode.REGISTER_FILTER_SERVER, header)


async def route(at: Standalone) -> TopicRouteData:
    await at.broker.registration.announced()
    async with Session(at.name_server_address) as session:
        return await session.route("TBW102")


@answered.by_broker(RequestCode.REGISTER_FILTER_SERVER)
def test_one_at_an_allowed_address_gets_its_broker_and_is_in_the_routes() -> None:
    async def main() -> None:
        async with pair(filterServerAllowList="127.0.0.0/8") as at:
            async with Peer(at.broker.port) as peer, Peer(at.broker.port) as other:
                reply = await register(peer)  # REGISTER_FILTER_SERVER
                assert reply.code == ResponseCode.SUCCESS
                told = RegisterFilterServerResponseHeader.decode(reply.fields)
                assert (told.broker_name, told.broker_id) == ("broker-a", 0)
                await register(other, "10.0.0.2:3000")
                found = await route(at)
                assert found.filter_server_table == {
                    at.broker.address: ["10.0.0.1:3000", "10.0.0.2:3000"]
                }
                await register(other, "10.0.0.3:3000")  # it has moved
                found = await route(at)
                assert found.filter_server_table == {
                    at.broker.address: ["10.0.0.1:3000", "10.0.0.3:3000"]
                }
            gone = asyncio.Event()
            at.broker.filters.servers.on_change.append(gone.set)
            while at.broker.filters.servers.addresses:
                await gone.wait()
                gone.clear()
            assert (await route(at)).filter_server_table == {}

    asyncio.run(main())


def test_a_stranger_cannot_put_an_address_into_the_routes() -> None:
    async def main() -> None:
        async with pair() as at, Peer(at.broker.port) as peer:
            reply = await register(peer)
            assert reply.code == ResponseCode.NO_PERMISSION
            assert "may not register filter servers" in str(reply.remark)
            assert not at.broker.filters.servers.addresses
            # Nor with a key that this broker has issued, without its secret.
            key = at.broker.filters.servers.issue_key()
            forged = AccessKey(key.access_key, "another secret")
            assert (await signed(at.broker.address, forged)).code == ResponseCode.NO_PERMISSION
            assert (await signed(at.broker.address, key)).code == ResponseCode.SUCCESS
            at.broker.filters.servers.revoke(key)
            assert (await signed(at.broker.address, key)).code == ResponseCode.NO_PERMISSION

    asyncio.run(main())


async def signed(
    address: str, key: AccessKey, code: int = RequestCode.REGISTER_FILTER_SERVER,
    fields: Mapping[str, str] | None = None,
) -> Command:  # fmt: skip
    header = RegisterFilterServerRequestHeader(filter_server_addr="10.0.0.1:3000")
    async with Session(address, credentials=key) as session:
        return await session.invoke(address, Command(code, fields or header.encode()))


def test_with_access_control_administrators_may_register_and_other_accounts_may_not(
    tmp_path: Path,
) -> None:
    home(tmp_path, ACCOUNTS)

    async def main() -> None:
        async with pair(aclEnable="true", rocketmqHome=str(tmp_path)) as at:
            address = at.broker.address
            administrator = AccessKey("administrator", "admin_secret")
            assert (await signed(address, administrator)).code == ResponseCode.SUCCESS
            consumer = AccessKey("consumer", "consumer_secret")
            refused = await signed(address, consumer)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert "may not register filter servers" in str(refused.remark)

    asyncio.run(main())


def test_the_key_of_a_filter_server_has_only_the_permissions_that_it_needs(
    tmp_path: Path,
) -> None:
    home(tmp_path, ACCOUNTS)
    pull = {
        **{"topic": "TBW102", "consumerGroup": "FILTERSRV_CONSUMER", "queueId": "0"},
        **{"queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0"},
        **{"suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*"},
    }

    async def main() -> None:
        async with pair(aclEnable="true", rocketmqHome=str(tmp_path)) as at:
            address, key = at.broker.address, at.broker.filters.servers.issue_key()
            assert (await signed(address, key)).code == ResponseCode.SUCCESS
            found = await signed(address, key, RequestCode.PULL_MESSAGE, pull)
            assert found.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
            for code, fields in (
                (RequestCode.PULL_MESSAGE, pull | {"consumerGroup": "other"}),
                (RequestCode.PULL_MESSAGE, pull | {"topic": "%RETRY%other"}),
                (RequestCode.PULL_MESSAGE, pull | {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}),
                (RequestCode.UPDATE_BROKER_CONFIG, {}),
                (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"}),
                (RequestCode.SEND_MESSAGE, {"topic": "TBW102"}),
            ):
                refused = await signed(address, key, code, fields)
                assert refused.code != ResponseCode.SUCCESS, code
                if code != RequestCode.SEND_MESSAGE:
                    assert refused.code == ResponseCode.NO_PERMISSION, (code, refused.remark)

    asyncio.run(main())


def test_the_broker_itself_does_not_filter_for_subscriptions_by_class() -> None:
    subscription = SubscriptionData(
        topic="Orders", sub_string="Even", class_filter_mode=True, sub_version=5
    )
    heartbeat = HeartbeatData(
        client_id="10.0.0.9@1",
        producer_data_set=[],
        consumer_data_set=[
            ConsumerData(
                group_name="billing",
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                subscription_data_set=[subscription],
                unit_mode=False,
            )
        ],
    )

    async def main() -> None:
        async with pair() as at, Producer(at.name_server_address) as producer:
            sent = [await producer.send(Message("Orders", b"%d" % n, "tag")) for n in range(4)]
            async with Peer(at.broker.port) as peer:
                await peer.ask(RequestCode.HEART_BEAT, None, heartbeat.encode())
                header = PullMessageRequestHeader(
                    consumer_group="billing",
                    topic="Orders",
                    queue_id=sent[0].queue.queue_id,
                    queue_offset=0,
                    max_msg_nums=32,
                    sys_flag=0,
                    commit_offset=0,
                    suspend_timeout_millis=0,
                    sub_version=5,
                )
                found = await peer.ask(RequestCode.PULL_MESSAGE, header)
                assert found.code == ResponseCode.SUCCESS, found.remark

    asyncio.run(main())


@pytest.mark.parametrize("address", ["", "host", "host:0", "host:70000", "a b:1 \n", "é:80"])
def test_an_invalid_address_is_refused(address: str) -> None:
    async def main() -> None:
        async with pair(filterServerAllowList="127.0.0.1") as at, Peer(at.broker.port) as peer:
            reply = await register(peer, address)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert not at.broker.filters.servers.addresses

    asyncio.run(main())


def test_one_that_is_silent_is_dropped_with_its_connection() -> None:
    async def main() -> None:
        async with pair(filterServerAllowList="127.0.0.1") as at, Peer(at.broker.port) as peer:
            await register(peer)
            servers = at.broker.filters.servers
            servers.expire()
            assert servers.addresses == ["10.0.0.1:3000"]
            servers.expire(-1.0)  # as if 30 s had passed
            assert not servers.addresses
            assert await peer.reader.read() == b""  # it has been closed

    asyncio.run(main())


def test_settings_that_cannot_work_are_refused() -> None:
    for name, value in (
        ("filterServerNums", "-1"),
        ("filterServerNums", "65"),
        ("filterServerAllowList", "everywhere"),
    ):
        with pytest.raises(ConfigError, match=name):
            BrokerSettings.load(None, {name: value})


def test_missing_ones_are_started_and_a_dead_one_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(filters, "FIRST_START_SECONDS", 0.0)

    async def main() -> None:
        async with pair(filterServerNums="2", filterServerAllowList="127.0.0.1") as at:
            broker = at.broker
            changed = asyncio.Event()
            broker.filters.servers.on_change.append(changed.set)
            async with asyncio.timeout(60):
                await count(broker, 2, changed)
                first = {helper.process.pid for helper in broker.filters.helpers.running}
                assert len(first) == 2
                os.kill(min(first), signal.SIGKILL)
                await count(broker, 1, changed)
                await count(broker, 2, changed)
                second = {helper.process.pid for helper in broker.filters.helpers.running}
                assert len(second) == 2 and len(first & second) == 1
            found = (await route(at)).filter_server_table[broker.address]
            assert len(found) == 2 and all(one.startswith("127.0.0.1:") for one in found)
            async with asyncio.timeout(60), Session(at.name_server_address) as session:
                admin, members = Admin(session), 0
                while members != 2:  # a heartbeat follows the registration
                    seen = await admin.consumer_connection(broker.address, "FILTERSRV_CONSUMER")
                    members = len(seen.connection_set)
        for pid in second:
            assert not Path(f"/proc/{pid}").exists()

    asyncio.run(main())


def test_one_that_a_broker_starts_has_its_accounts_and_its_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(filters, "FIRST_START_SECONDS", 0.0)
    home(tmp_path, ACCOUNTS)
    acl = {"aclEnable": "true", "rocketmqHome": str(tmp_path), "bindAddress": "127.0.0.1"}
    header = RegisterMessageFilterClassRequestHeader(
        consumer_group="billing", topic="Orders", class_name="Even", class_crc=0
    )
    source = b"class Even:\n    def match(self, message):\n        return True\n"

    async def main() -> None:
        async with (
            pair(filterServerNums="1", clientUploadFilterClassEnable="true", **acl) as at,
            asyncio.timeout(60),
        ):
            changed = asyncio.Event()
            at.broker.filters.servers.on_change.append(changed.set)
            await count(at.broker, 1, changed)
            (address,) = at.broker.filters.servers.addresses
            for key, code in (
                (AccessKey("administrator", "admin_secret"), ResponseCode.SUCCESS),
                (AccessKey("consumer", "consumer_secret"), ResponseCode.NO_PERMISSION),
                (None, ResponseCode.NO_PERMISSION),
            ):
                async with Session(address, credentials=key, timeout=30) as session:
                    command = Command(
                        RequestCode.REGISTER_MESSAGE_FILTER_CLASS, header.encode(), source
                    )
                    assert (await session.invoke(address, command)).code == code

    asyncio.run(main())


def test_one_whose_connection_just_ended_gets_time_to_reconnect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filters, "FIRST_START_SECONDS", 0.0)

    async def main() -> None:
        async with pair(filterServerNums="1") as at, asyncio.timeout(60):
            changed = asyncio.Event()
            own = at.broker.filters
            own.servers.on_change.append(changed.set)
            await count(at.broker, 1, changed)
            (helper,) = own.helpers.running
            helper.began -= 2 * filters.MUTE_SECONDS  # long ago
            for channel in list(own.servers._entries):
                channel.abort()
            await count(at.broker, 0, changed)
            await own._start_missing()
            await count(at.broker, 1, changed)
            assert list(own.helpers.running) == [helper]
            assert own.servers.registered_at(helper.ticket) is not None

    asyncio.run(main())


def test_one_that_a_broker_starts_signs_with_its_key_though_the_file_names_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(filters, "FIRST_START_SECONDS", 0.0)
    home(tmp_path, ACCOUNTS)
    path = tmp_path / "administrator.yml"  # for those that a unit starts
    path.write_text("accessKey: administrator\nsecretKey: admin_secret\n")
    acl = {"aclEnable": "true", "rocketmqHome": str(tmp_path), "bindAddress": "127.0.0.1"}

    async def main() -> None:
        async with pair(filterServerNums="1", brokerAclFile=str(path), **acl) as at:
            changed = asyncio.Event()
            own = at.broker.filters
            own.servers.on_change.append(changed.set)
            async with asyncio.timeout(60):
                await count(at.broker, 1, changed)
            (helper,) = own.helpers.running
            assert own.servers.registered_at(helper.ticket) is not None
            assert own.servers.started_elsewhere == 0

    asyncio.run(main())


async def count(broker: Broker, wanted: int, changed: asyncio.Event) -> None:
    while len(broker.filters.servers.addresses) != wanted:
        await changed.wait()
        changed.clear()


def test_externally_started_ones_count_and_no_more_are_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filters, "FIRST_START_SECONDS", 1000.0)

    async def main() -> None:
        async with pair(filterServerNums="1", filterServerAllowList="127.0.0.1") as at:
            async with Peer(at.broker.port) as peer:
                await register(peer)
                await at.broker.filters._start_missing()
                assert not at.broker.filters.helpers.running

    asyncio.run(main())


def test_the_command_that_starts_one_is_a_list_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "broker $(touch x).conf"
    path.write_text(
        "listenPort=0\ntls.server.keyPassword=hidden\nfilterMaxClasses=7\n"
        "tls.server.mode=enforcing\ntls.test.mode.enable=true\n"
    )
    settings = BrokerSettings.load(path, {"namesrvAddr": "127.0.0.1:1;127.0.0.1:2"})
    words = filters.filter_server_command(settings, 4711)
    assert words[words.index("-c", 4) + 1] == str(path)
    assert words[words.index("-n") + 1] == "127.0.0.1:1;127.0.0.1:2"
    assert "connectWhichBroker=127.0.0.1:4711" in words
    assert "filterMaxClasses=7" in words
    assert "tls.enable=true" in words  # the broker accepts no other connections
    assert not any("hidden" in word or "listenPort" in word for word in words)
