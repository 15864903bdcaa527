"""Metadata: acknowledged changes are stored, and others are not acknowledged."""

import asyncio
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.daemons.service import CannotStart, InUse
from mq.daemons.tube.master import catalog as catalogs
from mq.daemons.tube.master.catalog import Catalog, ChangeRefused, DataCode
from mq.daemons.tube.master.records import (
    KINDS,
    Audit,
    BrokerConf,
    CatalogRecord,
    ClusterSettings,
    ConsumeControl,
    GroupControl,
    Malformed,
    ManageStatus,
    Props,
    TopicControl,
    TopicDeploy,
    TopicStatus,
)
from mq.daemons.tube.master.storage import Changes, SqliteStorage, StorageError
from tests.daemons.tube.loops import in_loop

AUDIT = Audit(3, 7, "me", "20260101000000", "you", "20260102000000")
RECORDS: list[CatalogRecord] = [
    ClusterSettings(flow_rules="[1]", props=Props(num_partitions=9), audit=AUDIT),
    BrokerConf(5, "10.0.0.1", status=ManageStatus.ONLY_READ, audit=AUDIT),
    TopicDeploy(5, "demo", TopicStatus.SOFT_DELETE, Props(accept_publish=False)),
    TopicControl("demo", auth_enabled=True, max_msg_size_in_mb=2),
    GroupControl("g-1", flow_enabled=True, flow_rules="[]"),
    ConsumeControl("g-1", "demo", enabled=False, reason="why", filters=["a", "b"]),
]


def changes(*records: CatalogRecord) -> Changes:
    return {(record.kind, record.key): record for record in records}


@pytest.mark.parametrize("record", RECORDS, ids=lambda one: one.kind)
def test_a_record_is_read_as_it_was_written(record: CatalogRecord) -> None:
    assert KINDS[record.kind].decode(record.encode()) == record


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"broker_id":"1","ip":"x"}', b'{"broker_id":true,"ip":"x"}',
     b'{"broker_id":1,"ip":"x","status":4}', b'{"broker_id":1,"ip":"x","later":1}',
     b'{"broker_id":1,"ip":"x","props":{"num_partitions":"1"}}'],
)  # fmt: skip
def test_a_record_that_is_damaged_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed, match="broker"):
        BrokerConf.decode(data)


@given(st.binary(max_size=60))
def test_no_bytes_make_reading_fail_in_another_way(data: bytes) -> None:
    for kind in KINDS.values():
        with suppress(Malformed):
            kind.decode(data)


@in_loop
async def test_what_was_changed_is_there_after_a_start(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "meta.sqlite"
    async with SqliteStorage(path) as storage:
        catalog = Catalog(storage)
        await catalog.load()
        await catalog.change(lambda: changes(*RECORDS))
        await catalog.change(lambda: {("group", "g-1"): None})
    async with SqliteStorage(path) as storage:
        again = Catalog(storage)
        await again.load()
        assert again.cluster == RECORDS[0]
        assert list(again.brokers()) == [RECORDS[1]]
        assert again.of_broker(5) == again.of_topic("demo") == [RECORDS[2]]
        assert again.deployed_topics() == {"demo"}
        assert again.group_control("g-1") is None
        assert again.forbidden_topics("g-1") == {"demo"}
        assert again.next_serial() > 7


@in_loop
async def test_a_change_is_all_or_nothing(tmp_path: Path) -> None:
    async with SqliteStorage(tmp_path / "meta.sqlite") as storage:
        await storage.keep(changes(RECORDS[1]))
        storage._connection.execute(
            "CREATE TRIGGER no BEFORE INSERT ON records WHEN NEW.key = 'bad' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        with pytest.raises(StorageError, match="no"):
            await storage.keep(changes(RECORDS[2], TopicControl("bad")))
        assert await storage.load() == [RECORDS[1]]
        await storage.keep(changes(RECORDS[2]))
        assert len(await storage.load()) == 2


@in_loop
async def test_a_second_master_finds_the_database_taken(tmp_path: Path) -> None:
    async with SqliteStorage(tmp_path / "meta.sqlite"):
        with pytest.raises(InUse, match="another master uses it"):
            async with SqliteStorage(tmp_path / "meta.sqlite"):
                pass
    async with SqliteStorage(tmp_path / "meta.sqlite"):
        pass


@in_loop
async def test_a_database_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, but a text of some length" * 100)
    with pytest.raises(CannotStart, match="text"):
        async with SqliteStorage(tmp_path / "text"):
            pass
    later = sqlite3.connect(tmp_path / "later")
    later.execute("PRAGMA user_version = 2")
    later.close()
    with pytest.raises(CannotStart, match="schema 2, of a later release"):
        async with SqliteStorage(tmp_path / "later"):
            pass


@in_loop
async def test_a_record_of_a_later_release_stops_the_start(tmp_path: Path) -> None:
    async with SqliteStorage(tmp_path / "meta") as storage:
        storage._connection.execute("INSERT INTO records VALUES ('novel', 'x', x'7b7d')")
        with pytest.raises(StorageError, match="a later release"):
            await storage.load()


class Scripted:
    """Storage controlled by a test."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], CatalogRecord] = {}
        self.fails: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self) -> list[CatalogRecord]:
        if self.fails:
            raise self.fails.pop(0)
        return list(self.kept.values())

    async def keep(self, changes: Changes) -> None:
        await self.gate.wait()
        for key, record in changes.items():
            if record is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = record
        if self.fails:
            raise self.fails.pop(0)


@in_loop
async def test_a_write_in_doubt_is_refused_and_then_read_again() -> None:
    storage = Scripted()
    catalog = Catalog(storage)
    await catalog.load()
    storage.fails = [StorageError("gone")]
    with pytest.raises(ChangeRefused, match="not confirmed") as refused:
        await catalog.change(lambda: changes(RECORDS[1]))
    assert refused.value.code == DataCode.STORE_ABNORMAL
    assert catalog.broker(5) is None
    assert not catalog.is_known
    told: list[Changes] = []
    catalog.on_change.append(told.append)
    await catalog.settle()  # the write was done all the same
    assert catalog.broker(5) == RECORDS[1]
    assert told == [{("broker", "5"): RECORDS[1]}]


@in_loop
async def test_the_next_change_begins_with_what_is_kept() -> None:
    storage = Scripted()
    catalog = Catalog(storage)
    await catalog.load()
    storage.fails = [StorageError("gone"), StorageError("still")]
    with pytest.raises(ChangeRefused):
        await catalog.change(lambda: changes(RECORDS[1]))
    with pytest.raises(ChangeRefused, match="still"):
        await catalog.change(lambda: changes(RECORDS[2]))
    seen: list[object] = []

    def step() -> Changes:
        seen.append(catalog.broker(5))
        return changes(RECORDS[2])

    await catalog.change(step)
    assert seen == [RECORDS[1]]


@in_loop
async def test_a_change_that_nobody_waits_for_any_more_goes_on() -> None:
    storage = Scripted()
    catalog = Catalog(storage)
    await catalog.load()
    storage.gate.clear()
    task = asyncio.ensure_future(catalog.change(lambda: changes(RECORDS[1])))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    storage.gate.set()
    await catalog.finish()
    assert catalog.broker(5) == RECORDS[1]
    assert catalog.is_known


@in_loop
async def test_changes_come_one_after_the_other() -> None:
    storage = Scripted()
    catalog = Catalog(storage)
    await catalog.load()

    def count() -> Changes:
        old = catalog.group_control("g")
        return changes(GroupControl("g", flow_count=1 + (old.flow_count if old else 0)))

    await asyncio.gather(*(catalog.change(count) for _ in range(20)))
    control = catalog.group_control("g")
    assert control is not None
    assert control.flow_count == 20


@in_loop
async def test_there_is_room_for_so_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "MOST_RECORDS", 1)
    catalog = Catalog(Scripted())
    await catalog.load()
    await catalog.change(lambda: changes(GroupControl("a1")))
    await catalog.change(lambda: changes(GroupControl("a1", flow_count=1)))
    with pytest.raises(ChangeRefused, match="1 records of kind group"):
        await catalog.change(lambda: changes(GroupControl("b1")))
    with pytest.raises(ChangeRefused, match="too large"):
        await catalog.change(lambda: changes(GroupControl("a1", flow_rules="x" * 600_000)))


@in_loop
async def test_a_step_that_refuses_changes_nothing() -> None:
    catalog = Catalog(Scripted())
    await catalog.load()

    def step() -> Changes:
        raise ChangeRefused(DataCode.EXISTED, "there")

    with pytest.raises(ChangeRefused, match="there"):
        await catalog.change(step)
    assert await catalog.change(dict) == {}
    assert catalog.changes == 0


class Seen(str):
    """A name that counts its comparisons."""

    __slots__ = ()
    looks = 0

    def __eq__(self, other: object) -> bool:
        Seen.looks += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


@in_loop
async def test_who_may_consume_what_is_found_without_a_look_at_all_other_groups() -> None:
    catalog = Catalog(Scripted())
    await catalog.load()
    mine = [ConsumeControl("mine", f"topic_{n}", enabled=n > 1) for n in range(3)]
    await catalog.change(lambda: changes(*mine))
    others = [ConsumeControl(Seen(f"other-{n}"), Seen(f"of_{n}")) for n in range(500)]
    await catalog.change(lambda: changes(*others))
    Seen.looks = 0
    assert catalog.forbidden_topics("mine") == {"topic_0", "topic_1"}
    assert catalog.consume_controls(group="mine") == mine
    assert catalog.consume_controls(topic="topic_1") == [mine[1]]
    assert catalog.consume_controls("topic_1", "mine") == [mine[1]]
    assert catalog.consume_controls("topic_1", "another") == []
    assert Seen.looks < 50
    assert len(catalog.consume_controls()) == 503
    await catalog.change(lambda: {(mine[0].kind, mine[0].key): None})
    await catalog.change(lambda: changes(ConsumeControl("mine", "topic_1", enabled=True)))
    assert catalog.forbidden_topics("mine") == set()
    assert [one.topic for one in catalog.consume_controls(group="mine")] == ["topic_1", "topic_2"]
    assert catalog.consume_controls("topic_0") == []
    await catalog.load()
    assert [one.topic for one in catalog.consume_controls(group="mine")] == ["topic_1", "topic_2"]
