"""The preview of a reset matches its effect."""

import asyncio

import pytest

from mq.client.admin import Admin
from mq.client.errors import RemoteSystemError
from mq.client.operations.offsets import reset
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import (
    BrokerData,
    ConsumerData,
    ConsumeStats,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    MessageQueue,
    OffsetWrapper,
    QueueData,
    ResetOffsetBody,
    TopicConfig,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage
from tests.client.clusters import GROUP, TOPIC, Cluster, cluster, numbers
from tests.client.scripted import name_server, scripted

PATIENCE = 30.0
FUTURE = 4_000_000_000_000


async def filled(c: Cluster, consumed: int | None = 1) -> None:
    """Two messages in each of two queues, of which the group has consumed so many."""
    await c.send(*numbers(4))
    if consumed is not None:
        for queue_id in range(2):
            await c.admin.update_consumer_offset(
                c.pair.broker.address, "g", TOPIC, queue_id, consumed
            )


@pytest.mark.parametrize(
    ("timestamp", "new", "skipped", "again"), [(0, 0, 0, 1), (-1, 2, 1, 0), (FUTURE, 2, 1, 0)]
)
def test_what_was_foreseen_comes_about(timestamp: int, new: int, skipped: int, again: int) -> None:
    async def scenario() -> None:
        async with cluster(queues=2) as c:
            await filled(c)
            wanted = reset.OffsetReset(TOPIC, "g", timestamp)
            rows, failed = await reset.foresee(c.admin, wanted, PATIENCE)
            assert failed == {}
            assert [(r.queue_id, r.old, r.new, r.skipped, r.again) for r in rows] == [
                (0, 1, new, skipped, again),
                (1, 1, new, skipped, again),
            ]
            moved, failures, online, _ = await reset.all_queues(c.admin, wanted, pretending=True)
            assert (failures, online) == ([], False)
            assert [row.offset for row in moved] == [new, new]

    asyncio.run(scenario())


def test_members_are_sent_to_the_end_by_a_reset_to_a_future_time() -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as c:
            await c.send(*numbers(4))
            address = c.pair.broker.address
            await c.admin.update_consumer_offset(address, GROUP, TOPIC, 0, 1)
            async with c.consumer(listener=ignore):
                table = await c.admin.reset_offset(address, TOPIC, GROUP, FUTURE)
        assert list(table.values()) == [4]

    async def ignore(message: StoredMessage) -> None:
        pass

    asyncio.run(scenario())


def test_without_force_nothing_is_skipped() -> None:
    async def scenario() -> None:
        async with cluster(queues=2) as c:
            await filled(c)
            wanted = reset.OffsetReset(TOPIC, "g", reset.TO_THE_END, force=False)
            rows, _ = await reset.foresee(c.admin, wanted, PATIENCE)
        assert [(row.old, row.new) for row in rows] == [(1, 1), (1, 1)]

    asyncio.run(scenario())


def test_a_group_that_has_consumed_nothing_has_no_old_offset() -> None:
    async def scenario() -> None:
        async with cluster(queues=2) as c:
            await filled(c, consumed=None)
            rows, _ = await reset.foresee(
                c.admin, reset.OffsetReset(TOPIC, "g", 0), PATIENCE, offline=True
            )
        assert [(row.old, row.new, row.skipped, row.again) for row in rows] == [
            *((None, 0, 0, 0), (None, 0, 0, 0))
        ]

    asyncio.run(scenario())


def test_one_queue_is_foreseen_and_moved_alone() -> None:
    async def scenario() -> None:
        async with cluster(queues=2) as c:
            await filled(c)
            address = c.pair.broker.address
            queue = MessageQueue(TOPIC, c.pair.broker.settings.broker.broker_name, 1)
            wanted = reset.OffsetReset(TOPIC, "g", reset.TO_THE_END)
            row = await reset.foresee_queue(c.admin, address, wanted, queue, 0)
            assert (row.queue_id, row.old, row.new, row.end, row.again) == (1, 1, 0, 2, 1)
            await reset.one_queue(c.admin, address, TOPIC, "g", 1, row.new)
            offsets = [
                await c.admin.query_consumer_offset(address, "g", TOPIC, i) for i in range(2)
            ]
        assert offsets == [1, 0]

    asyncio.run(scenario())


@pytest.mark.parametrize("consumed", [1, None])
def test_a_queue_that_is_only_read_is_foreseen_and_moved(consumed: int | None) -> None:
    """Brokers omit it when they are queried for the ends of a topic's queues."""

    async def scenario() -> None:
        async with cluster(queues=2) as c:
            await filled(c, consumed)
            config = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=1, perm=6)
            await c.admin.create_topic(c.pair.broker.address, config)
            wanted = reset.OffsetReset(TOPIC, "g", reset.TO_THE_END)
            rows, _ = await reset.foresee(c.admin, wanted, PATIENCE, offline=True)
            moved, _ = await reset.at_brokers(c.admin, wanted)
        assert [(row.queue_id, row.old, row.new) for row in rows] == [
            (0, consumed, 2),
            (1, consumed, 2),
        ]
        assert sorted((row.queue_id, row.offset) for row in moved) == [(0, 2), (1, 2)]

    asyncio.run(scenario())


def test_what_is_foreseen_while_a_member_is_online_is_what_its_broker_tells_it() -> None:
    """A broker leaves a queue that is only read, which was foreseen as moved."""

    async def scenario() -> None:
        async with cluster(queues=2) as c:
            await filled(c)
            address = c.pair.broker.address
            config = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=1, perm=6)
            await c.admin.create_topic(address, config)
            groups = [ConsumerData(group_name="g")]
            member = HeartbeatData(client_id="member", consumer_data_set=groups)
            beat = Command(RequestCode.HEART_BEAT, None, member.encode())
            await c.session.call(address, beat)
            wanted = reset.OffsetReset(TOPIC, "g", reset.TO_THE_END)
            rows, failed = await reset.foresee(c.admin, wanted, PATIENCE)
            moved, failures, online, _ = await reset.all_queues(c.admin, wanted)
        assert (failed, failures, online) == ({}, [], True)
        assert [(row.queue_id, row.new) for row in rows] == [(0, 2)]
        assert [(row.queue_id, row.offset) for row in moved] == [(0, 2)]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("config", "foreseen"), [("true", [(0, 9, 2), (1, 9, 2)]), ("false", [(0, 9, 0)])]
)
def test_what_a_broker_of_5_2_resets_is_foreseen_also_where_it_does_so_by_itself(
    config: str, foreseen: list[tuple[int, int, int]]
) -> None:
    """AdminBrokerProcessor.resetOffsetInner resets all readable queues, also forward. Before that,
    Broker2Client.resetOffset resets the writable ones, and without force only backward. Before
    5.3 GET_TOPIC_STATS_INFO reports only the writable ones.
    """
    runtime = b'{"table":{"brokerVersionDesc":"V5_2_0"}}'
    queues = [MessageQueue(TOPIC, "a", number) for number in range(2)]
    stats = TopicStatsTable(offset_table={queues[0]: TopicOffset(max_offset=9)}).encode()
    consumed = ConsumeStats(offset_table={queue: OffsetWrapper() for queue in queues}).encode()
    members = GetConsumerListByGroupResponseBody(consumer_id_list=["member"]).encode()
    setting = f"useServerSideResetOffset={config}\n".encode()
    handlers: dict[int, Handler] = {
        RequestCode.GET_BROKER_RUNTIME_INFO: lambda r, _: r.reply(body=runtime),
        RequestCode.GET_BROKER_CONFIG: lambda r, _: r.reply(body=setting),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda r, _: r.reply(body=members),
        RequestCode.GET_CONSUME_STATS: lambda r, _: r.reply(body=consumed),
        RequestCode.GET_TOPIC_STATS_INFO: lambda r, _: r.reply(body=stats),
        RequestCode.GET_MIN_OFFSET: lambda r, _: r.reply(0, {"offset": "0"}),
        RequestCode.GET_MAX_OFFSET: lambda r, _: r.reply(0, {"offset": "9"}),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda r, _: r.reply(0, {"offset": "2"}),
    }

    async def scenario() -> None:
        async with scripted(handlers) as a:
            data = QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=1, perm=6)
            broker = BrokerData(cluster="c", broker_name="a", broker_addrs={0: a})
            route = TopicRouteData(queue_datas=[data], broker_datas=[broker]).encode()
            routes: dict[int, Handler] = {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda r, _: r.reply(body=route)
            }
            async with scripted(routes) as server, Session(server) as session:
                wanted = reset.OffsetReset(TOPIC, "g", 5, force=False)
                rows, failed = await reset.foresee(Admin(session), wanted, PATIENCE)
        assert failed == {}
        assert [(row.queue_id, row.end, row.new) for row in rows] == foreseen

    asyncio.run(scenario())


REFUSED = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"


@pytest.mark.parametrize("remark", [REFUSED, "java.lang.NullPointerException"])
def test_a_queue_is_left_where_a_broker_does_not_say_whether_consumers_are_there(
    remark: str,
) -> None:
    """They would overwrite it. Java's 4.9 refuses with the code that also says there are none."""
    runtime = b'{"table":{"brokerVersionDesc":"V4_9_8"}}'
    moved = []

    def failing(request: Command, channel: Channel) -> Command:
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)

    def move(request: Command, channel: Channel) -> Command:
        moved.append(request.fields)
        return request.reply(ResponseCode.SUCCESS)

    handlers: dict[int, Handler] = {
        RequestCode.GET_BROKER_RUNTIME_INFO: lambda request, _: request.reply(body=runtime),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: failing,
        RequestCode.QUERY_CONSUMER_OFFSET: lambda request, _: request.reply(0, {"offset": "1"}),
        RequestCode.GET_MAX_OFFSET: lambda request, _: request.reply(0, {"offset": "2"}),
        RequestCode.UPDATE_CONSUMER_OFFSET: move,
    }

    async def scenario() -> None:
        async with scripted(handlers) as broker, Session(broker) as session:
            with pytest.raises(RemoteSystemError, match=remark):
                await reset.one_queue(Admin(session), broker, TOPIC, "g", 0, 0)

    asyncio.run(scenario())
    assert moved == []


def test_members_unknown_to_a_new_broker_are_notified() -> None:
    """A broker that just started does not know the members, which may overwrite its offsets.
    Another broker notifies them.
    """

    def at(name: str, online: bool) -> dict[int, Handler]:
        queue = MessageQueue(TOPIC, name, 0)
        told = ResetOffsetBody(offset_table={queue: 0}).encode()
        stats = ConsumeStats(offset_table={queue: OffsetWrapper(broker_offset=2)}).encode()
        code = ResponseCode.SUCCESS if online else ResponseCode.CONSUMER_NOT_ONLINE
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: lambda r, _: r.reply(code, body=told),
            RequestCode.GET_CONSUME_STATS: lambda r, _: r.reply(body=stats),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda r, _: r.reply(0, {"offset": "0"}),
            RequestCode.UPDATE_CONSUMER_OFFSET: lambda r, _: r.reply(),
        }

    async def scenario() -> None:
        async with (
            scripted(at("a", online=True)) as a,
            scripted(at("b", online=False)) as b,
            scripted(name_server({"a": a, "b": b})) as server,
            Session(server) as session,
        ):
            wanted = reset.OffsetReset(TOPIC, "g", 0)
            rows, failures, *_ = await reset.all_queues(Admin(session), wanted)
        assert len(rows) == 2
        (line,) = failures
        assert line.startswith(f"{b}: no member of group g is connected to it yet")

    asyncio.run(scenario())


def test_only_what_is_still_there_counts() -> None:
    row = reset.planned("b", 0, old=5, new=90, first=10, end=100)
    assert (row.skipped, row.again) == (80, 0)
    row = reset.planned("b", 0, old=2**62, new=0, first=10, end=100)
    assert (row.skipped, row.again) == (0, 90)
