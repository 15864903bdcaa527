"""Brokers with a new address, or a new master, are found again."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from mq.client.operations.cluster_snapshot import RegisteredBroker
from mq.daemons.console.call import Call
from mq.daemons.console.collector import rows
from mq.daemons.console.collector.assembly import Assembly
from mq.daemons.console.collector.book import TopicSettings
from mq.daemons.console.collector.limits import Limits
from mq.daemons.console.collector.name_server_watch import NameServerWatch
from mq.daemons.console.collector.paced import PacedSession
from mq.daemons.console.pages import broker_queries
from mq.protocol.bodies import BrokerData, ClusterInfo
from tests.daemons.tube.loops import in_loop

TOPIC = TopicSettings(8, 8, 6, False, "")


def naming(limits: Limits) -> NameServerWatch:
    return NameServerWatch(cast(PacedSession, None), "127.0.0.1:9876", limits, 1.0, lambda: None)


def told(clusters: Mapping[str, Mapping[str, Mapping[int, str]]]) -> ClusterInfo:
    return ClusterInfo(
        broker_addr_table={
            name: BrokerData(cluster=cluster, broker_name=name, broker_addrs=dict(addresses))
            for cluster, brokers in clusters.items()
            for name, addresses in brokers.items()
        },
        cluster_addr_table={cluster: set(brokers) for cluster, brokers in clusters.items()},
    )


def test_brokers_that_register_by_the_thousand_take_no_place_of_one_that_is_known() -> None:
    server = naming(Limits(brokers=200))
    server._take(told({"prod": {"orders": {0: "10.0.0.1:10911"}}}))
    crowd = {f"a{n}": {0: f"10.1.{n // 250}.{n % 250}:1"} for n in range(10_000)}
    server._take(told({"aaa": crowd, "prod": {"orders": {0: "10.0.0.1:10911"}}}))
    assert server.brokers["10.0.0.1:10911"] == RegisteredBroker(
        "prod", "orders", 0, "10.0.0.1:10911"
    )
    assert len(server.brokers) == 200


def test_nobody_renames_a_broker_by_registering_its_address() -> None:
    server = naming(Limits())
    server._take(told({"prod": {"orders": {0: "10.0.0.1:10911"}}}))
    server._take(
        told({"aaa": {"mine": {0: "10.0.0.1:10911"}}, "prod": {"orders": {0: "10.0.0.1:10911"}}})
    )
    assert server.brokers["10.0.0.1:10911"].name == "orders"


@in_loop
async def test_a_broker_that_came_back_at_another_address_is_asked_there() -> None:
    server, assembly = naming(Limits()), Assembly(Limits())
    assembly.name_servers = [server]
    for now, address in enumerate(("10.0.0.1:10911", "10.0.0.2:10911")):
        server._take(told({"prod": {"orders": {0: address}}}))
        for book in assembly.follow(now):
            if book.address == address:
                book.seen = now
            else:
                book.problem = "does not answer"
    snapshot = await assembly.snapshot(2)
    assert len(snapshot.brokers) == 2
    row = snapshot.broker("orders", 0)
    assert row is not None
    assert row.address == "10.0.0.2:10911"
    call = cast(Call, SimpleNamespace(cluster=SimpleNamespace(snapshot=snapshot)))
    assert list(broker_queries.masters(call, "prod")) == ["10.0.0.2:10911"]
    assert broker_queries.master_names(call) == ("orders",)


def test_brokers_that_come_back_at_other_addresses_all_day_leave_room_for_the_next() -> None:
    server, assembly = naming(Limits(brokers=3)), Assembly(Limits(brokers=3))
    assembly.name_servers = [server]
    for now in range(10):
        server._take(told({"prod": {"orders": {0: f"10.0.0.{now}:10911"}}}))
        books = assembly.follow(now)
    assert [book.address for book in books if book.listed] == ["10.0.0.9:10911"]
    assert len(books) == 3


@in_loop
async def test_a_broker_with_another_name_at_an_address_is_named_in_the_rows() -> None:
    server, assembly = naming(Limits()), Assembly(Limits())
    assembly.name_servers = [server]
    for name in ("old", "new"):
        server._take(told({"prod": {name: {0: "10.0.0.1:10911"}}}))
        (book,) = assembly.follow(1)
        book.seen, book.topics = 1, {"t": TOPIC}
        if name == "old":
            assembly.topics.add("t")
        snapshot = await assembly.snapshot(1)
        assert snapshot.topics[0].brokers == (name,)


@in_loop
async def test_rows_that_could_not_be_made_are_made_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, assembly = naming(Limits()), Assembly(Limits())
    assembly.name_servers = [server]
    server._take(told({"prod": {"orders": {0: "10.0.0.1:10911"}}}))
    (book,) = assembly.follow(1)
    book.seen, book.topics = 1, {"t": TOPIC, "u": TOPIC}
    await assembly.snapshot(1)
    with monkeypatch.context() as broken:
        broken.setattr(rows, "topic_row", lambda *_: 1 // 0)
        assembly.topics = {"t", "u"}
        with pytest.raises(ZeroDivisionError):
            await assembly.snapshot(2)
    assert {one.name for one in (await assembly.snapshot(3)).topics} == {"t", "u"}
    assert not assembly.topics
