"""A collector survives failures of servers, sends few requests, and changes nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mq.client.admin import Admin
from mq.client.errors import ConnectError
from mq.client.operations.doctor.finding import Finding
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.console.collector.collector import Collector
from mq.daemons.console.collector.limits import Limits, networks
from mq.daemons.console.collector.paced import NotARead, Pace, PacedSession
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import (
    KVTable,
    SubscriptionGroupConfig,
    TopicConfig,
)
from mq.protocol.codes import RequestCode as C
from mq.protocol.codes import kind_of
from mq.protocol.command import Command
from mq.protocol.message import Message
from mq.protocol.requests import RequestKind
from tests.client.scripted import scripted
from tests.daemons.console.collector.peers import counting_broker, hung, name_server
from tests.daemons.console.pages.state import seen
from tests.daemons.console.site import Consoles
from tests.daemons.tube.loops import in_loop

TIMEOUT = 0.5


@asynccontextmanager
async def pair() -> AsyncIterator[Standalone]:
    async with Standalone(name_server_port=0, broker_port=0) as found:
        yield found


async def checked_up(collector: Collector) -> tuple[Finding, ...]:
    """Wait for the first findings: a new snapshot reports them."""
    await seen(collector, lambda _: collector.findings is not None)
    assert collector.findings is not None
    return collector.findings


@in_loop
async def test_a_broker_and_a_name_server_that_hang_are_shown_as_such_and_the_rest_goes_on() -> (
    None
):
    async with (
        pair() as alive,
        hung() as broker,
        hung() as silent,
        name_server({"b": {0: broker}}) as naming,
    ):
        addresses = f"{silent};{naming};{alive.name_server_address}"
        async with Collector(addresses, timeout=TIMEOUT) as collector:
            found = await seen(
                collector,
                lambda s: (
                    s.topics
                    and len(s.problems) >= 2
                    and len(s.name_servers) == 3
                    and any(one.name == "broker-a" and one.alive for one in s.brokers)
                ),
            )
            by_name = {one.name: one for one in found.brokers}
            assert by_name["b"].problem == "does not answer within 0.5 s"
            assert by_name["b"].seen is None
            assert by_name["b"].in_rate is None
            servers = {one.address: one for one in found.name_servers}
            assert servers[silent].problem == "does not answer within 0.5 s"
            assert servers[silent].brokers is None
            assert servers[naming].missing == (alive.broker.address,)
            assert servers[naming].alone == (broker,)


@in_loop
async def test_a_broker_that_dies_keeps_its_rows_with_their_age() -> None:
    async with Standalone(name_server_port=0, broker_port=0) as both:
        async with Collector(both.name_server_address, timeout=TIMEOUT) as collector:
            before = await seen(collector, lambda s: s.topics and s.groups)
            await both.broker.__aexit__(None, None, None)
            after = await seen(collector, lambda s: s.brokers[0].problem)
            assert after.brokers[0].seen == before.brokers[0].seen or after.brokers[0].seen
            assert {one.name for one in after.topics} >= {one.name for one in before.topics}
            assert all(one.partial for one in after.topics)
            assert after.topics[0].problem == "no answer from broker-a"
            assert after.clusters[0].problem == "no answer from broker-a (0)"
            assert after.clusters[0].in_rate is None


@in_loop
async def test_what_a_name_server_may_name_is_bounded_and_what_is_left_out_is_said() -> None:
    many = {f"b{n:03}": {0: f"127.0.0.1:{20_000 + n}"} for n in range(50)}
    async with name_server(many) as naming:
        limits = Limits(brokers=7)
        async with Collector(naming, timeout=TIMEOUT, limits=limits) as collector:
            found = await seen(collector, lambda s: s.brokers and s.problems)
            assert len(found.brokers) == 7
            assert any("43 of its brokers are ignored" in one.text for one in found.problems)


@in_loop
async def test_a_checkup_connects_to_no_more_brokers_than_are_watched() -> None:
    connected: set[int] = set()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.add(writer.get_extra_info("sockname")[1])
        writer.close()

    servers = [await asyncio.start_server(hang_up, "127.0.0.1", 0) for _ in range(20)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    many = {f"b{port}": {0: f"127.0.0.1:{port}"} for port in ports}
    async with name_server(many) as naming:
        limits = Limits(brokers=3)
        async with Collector(naming, timeout=TIMEOUT, limits=limits) as collector:
            findings = await checked_up(collector)
    assert len(connected) == 3
    assert any("it is not polled" in one.detail for one in findings)
    for server in servers:
        server.close()


@in_loop
async def test_nobody_is_connected_to_outside_the_networks_that_brokers_have_to_be_in() -> None:
    connected = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        writer.close()

    server = await asyncio.start_server(count, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    named = {"inside": {0: "127.0.0.2:1"}, "outside": {0: address}, "name": {0: "example.org:80"}}
    async with name_server(named) as naming:
        limits = Limits(networks=networks("127.0.0.2/32, fd00::/8"))
        async with Collector(naming, timeout=TIMEOUT, limits=limits) as collector:
            found = await seen(collector, lambda s: any(b.problem for b in s.brokers))
            assert [one.name for one in found.brokers] == ["inside"]
            assert any("2 of its brokers are ignored" in one.text for one in found.problems)
            await checked_up(collector)
    assert connected == 0
    server.close()


@in_loop
async def test_a_broker_is_asked_no_more_than_the_pace_allows_and_only_to_read() -> None:
    async with (
        counting_broker(3000, 500) as (broker, asked, times),
        name_server({"b": {0: broker}}) as naming,
        Collector(naming, rate=200.0, checkup_seconds=3600) as collector,
    ):
        found = await seen(collector, lambda s: sum(one.seen is not None for one in s.groups) > 400)
        assert len(found.topics) == 3000
        passed = times[-1] - times[0]
        # Its own requests, those of the check-up (4 per second), and those that were pending at the
        # end.
        assert len(times) <= (200 + 4) * passed + 5
        assert asked[C.GET_CONSUME_STATS] > 400
        assert not asked[C.GET_BROKER_CONSUME_STATS]
        assert all(kind_of(code) is RequestKind.READ for code in asked)


@in_loop
async def test_a_session_of_the_collector_sends_nothing_that_changes_something() -> None:
    async with counting_broker(0, 0) as (broker, asked, _):
        async with PacedSession(broker, None, Pace(100.0)) as session:
            admin = Admin(session)
            with pytest.raises(NotARead):
                await admin.update_broker_config(broker, {"a": "b"})
            with pytest.raises(NotARead):
                await session.invoke_oneway(broker, Command(C.UNREGISTER_CLIENT))
            with pytest.raises(NotARead):
                await session.call(broker, Command(31_337))
        assert not asked


@in_loop
async def test_lists_of_a_broker_are_bounded() -> None:
    async with (
        counting_broker(300, 300) as (broker, _, _),
        name_server({"b": {0: broker}}) as naming,
        Collector(naming, limits=Limits(topics=10, groups=5)) as collector,
    ):
        found = await seen(collector, lambda s: s.topics and s.groups)
        assert (len(found.topics), len(found.groups)) == (10, 5)
        texts = [one.text for one in found.problems]
        assert "over the limits, not shown: 290 topics" in texts
        assert "over the limits, not shown: 295 groups" in texts


@in_loop
async def test_lag_rates_and_members_are_those_that_the_commands_tell() -> None:
    async with pair() as both, Session(both.name_server_address) as session:
        admin = Admin(session)
        await admin.create_topic(
            both.broker.address, TopicConfig(topic_name="orders", read_queue_nums=4,
                                             write_queue_nums=4)
        )  # fmt: skip
        await admin.update_subscription_group(
            both.broker.address, SubscriptionGroupConfig(group_name="readers")
        )
        async with Producer(both.name_server_address, "clerks") as producer:
            for number in range(20):
                await producer.send(Message("orders", b"%d" % number))
            await admin.update_consumer_offset(both.broker.address, "readers", "orders", 0, 0)
            async with Collector(both.name_server_address) as collector:
                found = await seen(
                    collector,
                    lambda s: s.producers and any(one.lag for one in s.groups),
                )
                stats = await admin.consume_stats(both.broker.address, "readers")
                lag = sum(o.broker_offset - o.consumer_offset for o in stats.offset_table.values())
                group = found.group("readers")
                assert group is not None
                assert group.lag == lag
                assert group.topics[0].topic == "orders"
                assert [one.group for one in found.producers] == ["clerks"]
                found = await seen(collector, lambda s: any(one.stored == 20 for one in s.topics))
                topic = found.topic("orders")
                assert topic is not None
                assert (topic.stored, topic.queues, topic.perm) == (20, 4, 6)


@in_loop
async def test_the_checkup_finds_what_mq_doctor_finds() -> None:
    async with hung() as broker, name_server({"b": {0: broker}}) as naming:
        async with Collector(naming, timeout=TIMEOUT) as collector:
            findings = await checked_up(collector)
            subjects = {one.subject for one in findings if one.severity}
            assert broker in subjects


@in_loop
async def test_an_unreadable_answer_is_said_and_the_rest_goes_on() -> None:
    def garbage(request: Command, channel: Channel) -> Command:
        return request.reply(0, None, b"{{{{{{")

    def runtime(request: Command, channel: Channel) -> Command:
        return request.reply(0, None, KVTable(table={"putTps": "NaN x"}).encode())

    handlers = {int(code): garbage for code in C} | {int(C.GET_BROKER_RUNTIME_INFO): runtime}
    async with scripted(handlers) as broker, name_server({"b": {0: broker}}) as naming:
        async with Collector(naming, timeout=30.0) as collector:
            found = await seen(
                collector, lambda s: any("unreadable" in one.text for one in s.problems)
            )
            assert found.brokers[0].alive
            assert found.brokers[0].in_rate is None


@in_loop
async def test_pages_connect_to_no_broker_outside_the_networks_either(console: Consoles) -> None:
    async with console({"brokerNetworks": "10.0.0.0/8"}) as site:
        ask = Command(C.GET_BROKER_RUNTIME_INFO)
        with pytest.raises(ConnectError, match="in none of the networks"):
            await site.here.session.call(site.pair.broker.address, ask)
        listed = Command(C.GET_BROKER_CLUSTER_INFO)
        assert (await site.here.session.call_name_server(listed)).code == 0
