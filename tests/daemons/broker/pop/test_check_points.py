"""The revive topic: how far a start has to read it, and invalid records."""

import asyncio
import errno
import json
import shutil
import time
from pathlib import Path

import pytest

from mq.daemons import state_file
from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import check_points, revival
from mq.daemons.broker.pop.records import REVIVE_GROUP
from mq.protocol.codes import ResponseCode
from mq.protocol.message import StoredMessage
from tests.daemons.broker.harness import send
from tests.daemons.broker.pop.consumers import GROUP, TOPIC, PopConsumer, bodies, fill
from tests.daemons.broker.replication.sets import ScriptedControllers, set_master, set_slave
from tests.daemons.broker.running import broker_on
from tests.daemons.broker.store.stores import as_of_a_kill
from tests.daemons.peer import PATIENCE, Peer
from tests.daemons.stopped_time import stopped_time
from tests.waiting import until

ONE_QUEUE = {"reviveQueueNum": "1"}


def revive_offset(broker: Broker) -> int:
    return broker.stores.offsets.query(REVIVE_GROUP, broker.services.pop.points.topic, 0)


def test_an_old_check_point_is_written_again_and_keeps_its_acknowledgements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revival, "_MAX_RECORDS_AFTER", 4)

    async def before() -> None:
        async with broker_on(tmp_path, **ONE_QUEUE) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 2)
            lasting, acked = await consumer.pop(invisibleTime="3600000")
            assert (await consumer.ack(acked)).code == ResponseCode.SUCCESS
            for number in range(6):
                await send(peer, TOPIC, b"more-%d" % number)
                (more,) = await consumer.pop()
                assert (await consumer.ack(more)).code == ResponseCode.SUCCESS
            assert lasting.offset == 0
            assert revive_offset(broker) == -1  # nothing before its check point is done
            async with asyncio.timeout(PATIENCE):
                while revive_offset(broker) < 13:
                    broker.services.pop.points.changed.set()
                    await asyncio.sleep(0.01)

    async def after() -> None:
        async with broker_on(tmp_path, **ONE_QUEUE) as broker:
            (point,) = broker.services.pop.points._table.values()
            assert (point.offsets, point.missing) == ((0, 1), [0])

    asyncio.run(before())
    asyncio.run(after())


def test_groups_are_advanced_to_their_last_pops_if_the_offsets_file_is_older(
    tmp_path: Path,
) -> None:
    offsets = tmp_path / "config" / "consumerOffset.json"

    async def before() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 4)
            await broker.stores.offsets.save()
            saved = offsets.read_bytes() if offsets.exists() else b'{"offsetTable":{}}'
            popped = await consumer.pop(maxMsgNums="3")
            assert (await consumer.ack_all(popped)).code == ResponseCode.SUCCESS
            old.append(saved)

    async def after() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            assert broker.stores.offsets.query(GROUP, TOPIC, 0) == 3
            assert bodies(await PopConsumer(peer, broker).pop()) == [b"3"]

    old: list[bytes] = []
    asyncio.run(before())
    offsets.write_bytes(old[0])
    asyncio.run(after())


def test_check_points_are_on_the_disk_before_the_offsets_of_their_group_are_saved(
    tmp_path: Path,
) -> None:
    """A power failure lost the check points alone, and their messages were never redelivered."""

    async def script() -> None:
        seldom = {"flushIntervalCommitLog": "3600000"}
        async with broker_on(tmp_path, **seldom) as broker, Peer(broker.port) as peer:
            await fill(peer, 4)
            await PopConsumer(peer, broker).pop(maxMsgNums="3")
            log = broker.stores.messages.log
            assert log.flushed < log.written
            popped = log.written
            await broker.stores.offsets.save()
            assert log.flushed >= popped

    asyncio.run(script())


def test_a_popping_group_is_saved_before_it_gets_messages(tmp_path: Path) -> None:
    """A start after a kill dropped its check points: acknowledged messages were redelivered."""

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            await fill(peer, 1)
            with broker.stores.groups.file._lock:  # it is not written meanwhile
                pop = asyncio.create_task(PopConsumer(peer, broker).pop())
                await asyncio.wait([pop], timeout=0.2)
                assert not pop.done()
            assert bodies(await pop) == [b"0"]
            file = tmp_path / "config" / "subscriptionGroup.json"
            assert GROUP in json.loads(file.read_bytes())["subscriptionGroupTable"]

    asyncio.run(script())


def test_pops_do_not_try_to_save_groups_while_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them wrote the file."""
    real = state_file._write
    tries = 0

    def fail(path: Path, data: bytes) -> None:
        nonlocal tries
        if path.name == "subscriptionGroup.json":
            tries += 1
            raise OSError(errno.EROFS, "Read-only file system")
        real(path, data)

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            await fill(peer, 1)
            consumer = PopConsumer(peer, broker)
            with monkeypatch.context() as failing:
                failing.setattr(state_file, "_write", fail)
                assert bodies(await consumer.pop()) == [b"0"]
                for _ in range(50):
                    assert await consumer.pop() == []
                assert 1 <= tries <= 10
            # Another change is saved at once, together with the one that could not be saved.
            other = PopConsumer(peer, broker, "H")
            await other.pop()
            saved = json.loads((tmp_path / "config" / "subscriptionGroup.json").read_bytes())
            assert {GROUP, "H"} <= saved["subscriptionGroupTable"].keys()

    asyncio.run(script())


def test_a_group_that_was_reset_pops_acknowledged_messages_again(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 3)
            popped = await consumer.pop()
            assert (await consumer.ack_all(popped)).code == ResponseCode.SUCCESS
            broker.stores.offsets.commit(GROUP, TOPIC, 0, 1)
            assert bodies(await consumer.pop()) == [b"1", b"2"]

    async def after() -> None:
        async with broker_on(tmp_path) as broker:
            assert broker.stores.offsets.query(GROUP, TOPIC, 0) == 3

    asyncio.run(script())
    asyncio.run(after())


def test_invalid_records_are_skipped(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path, **ONE_QUEUE) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 1)
            (popped,) = await consumer.pop()
            for tag, body in (
                ("ck", b"{"),
                ("ack", b"[]"),
                ("bAck", b""),
                ("x", b"y"),
                ("ck", b"{}"),
            ):
                message = StoredMessage(broker.services.pop.points.topic, body, {"TAGS": tag})
                broker.delivery.writer.put(message)
            assert (await consumer.ack(popped)).code == ResponseCode.SUCCESS
            assert len(broker.services.pop.points) == 0
            assert revive_offset(broker) == 6

    asyncio.run(script())


def test_messages_popped_by_a_deleted_group_or_topic_are_not_redelivered(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 1)
            with stopped_time():
                assert len(await consumer.pop(invisibleTime="200")) == 1
                assert (await peer.ask(207, {"groupName": GROUP})).code == ResponseCode.SUCCESS
            await until(lambda: not broker.services.pop.points)
            assert broker.services.pop.revival.revived == 0
            assert broker.stores.topics.get(f"%RETRY%{GROUP}_{TOPIC}") is None

    asyncio.run(script())


def test_a_deletion_skips_no_check_point_after_a_slave_has_stopped_acting(
    tmp_path: Path,
) -> None:
    """It had forgotten its check points by then: when it was acting master again, it never read
    them.
    """

    async def script() -> None:
        async with broker_on(tmp_path, **ONE_QUEUE) as broker, Peer(broker.port) as peer:
            await fill(peer, 1)
            assert len(await PopConsumer(peer, broker).pop()) == 1
            points = broker.services.pop.points
            points.stop()
            broker.stores.offsets.remove_topic("Other")
            points.start()
            assert len(points) == 1

    asyncio.run(script())


def test_acknowledgements_without_check_points_are_kept_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_points, "_MOST_ORPHANS", 50)

    async def main() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 20)
            popped = await consumer.pop()
            points = broker.services.pop.points
            now = time.time_ns() // 1_000_000
            for late in range(10):  # of pops that never happened
                for one in popped:
                    start, _, *rest = one.receipt.split(" ")
                    one.receipt = " ".join((start, str(now + 2**40 + late), *rest))
                assert (await consumer.ack_all(popped)).code == ResponseCode.SUCCESS
            assert sum(len(acked) for _, acked in points._orphans.values()) == 40
            week = 7 * 24 * 3600 * 1000
            assert all(due < now + week + 60_000 for due, _ in points._orphans.values())

    asyncio.run(main())


def test_check_points_in_memory_equal_those_that_a_start_reads(tmp_path: Path) -> None:
    states = []

    def note(broker: Broker) -> None:
        points = broker.services.pop.points
        assert not points._fresh
        kept = {
            key: (one.offsets, one.acked, one.due, one.revive_queue_id, one.revive_offset,
                  one.stored_at)
            for key, one in points._table.items()
        }  # fmt: skip
        states.append((kept, points._orphans))

    async def before() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 12, queues=2)
            popped = await consumer.pop(maxMsgNums="4", queueId="0")
            assert (await consumer.ack(popped[1])).code == ResponseCode.SUCCESS
            hidden = await consumer.pop(maxMsgNums="3", queueId="1")
            assert (await consumer.hide(hidden[0], 90_000)).code == ResponseCode.SUCCESS
            assert (await consumer.ack_all(hidden[1:])).code == ResponseCode.SUCCESS
            ended = await consumer.pop(maxMsgNums="2", queueId="0")
            assert (await consumer.ack_all(ended)).code == ResponseCode.SUCCESS
            early = popped[0]  # of a check point that has not arrived
            start, _, *rest = early.receipt.split(" ")
            early.receipt = " ".join((start, str(time.time_ns() // 1_000_000 + 1), *rest))
            assert (await consumer.ack(early)).code == ResponseCode.SUCCESS
            note(broker)

    async def after() -> None:
        async with broker_on(tmp_path) as broker:
            note(broker)

    asyncio.run(before())
    asyncio.run(after())
    (kept, orphans), (kept_later, orphans_later) = states
    assert len(kept) == 2 and len(orphans) == 1
    assert kept == kept_later
    # Including ended check points, which are before the ones that are read again.
    assert all(orphans_later[key] == orphan for key, orphan in orphans.items())


def test_a_record_in_place_of_a_refused_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would have the same offsets."""

    async def script() -> None:
        async with broker_on(tmp_path, **ONE_QUEUE) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 4)
            first, second, *_ = await consumer.pop()
            points, file = broker.services.pop.points, broker.stores.messages.log.files[-1]
            with monkeypatch.context() as patch:

                def full(self: object, data: bytes, position: int) -> None:
                    raise OSError(errno.ENOSPC, "No space left on device")

                patch.setattr(type(file), "write", full)
                assert (await consumer.ack(first)).code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert not points._fresh
            assert (await consumer.ack(second)).code == ResponseCode.SUCCESS
            (point,) = points._table.values()
            assert point.acked == {second.offset}

    asyncio.run(script())


def test_an_unconfirmed_message_is_redelivered_although_it_was_due_before_it_was_readable(
    tmp_path: Path,
) -> None:
    """In a replica set whose master was killed: nothing is confirmed before another replica has
    it."""
    killed = tmp_path / "killed"

    async def main() -> None:
        async with (
            set_master(tmp_path, ScriptedControllers(), **ONE_QUEUE) as broker,
            Peer(broker.port) as peer,
        ):
            await fill(peer, 1)
            with stopped_time():
                assert len(await PopConsumer(peer, broker).pop(invisibleTime="1000")) == 1
                shutil.copytree(
                    tmp_path / "1", killed / "1", ignore=shutil.ignore_patterns("*.tmp")
                )
                as_of_a_kill(killed / "1")
        controllers = ScriptedControllers((1, 2))
        controllers.gate.clear()  # the other replica is waited for
        async with (
            set_master(killed, controllers, **ONE_QUEUE) as broker,
            Peer(broker.port) as peer,
        ):
            points = broker.services.pop.points
            (point,) = points._table.values()
            await until(lambda: time.time() * 1000 > point.due + 100)
            points.changed.set()
            await asyncio.sleep(0.2)
            controllers.tell(frozenset((1,)), controllers.epoch + 1)
            await until(lambda: not points)
            assert bodies(await PopConsumer(peer, broker).pop()) == [b"0"]

    asyncio.run(main())


def test_a_master_stops_although_no_replica_has_the_check_points_of_a_pop(
    tmp_path: Path,
) -> None:
    """It waited for them until it was killed, and could not become a slave, either."""

    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        async with (
            asyncio.timeout(PATIENCE),
            set_master(tmp_path, controllers) as broker,
            Peer(broker.port) as peer,
        ):
            async with set_slave(tmp_path, broker):
                await fill(peer, 1)
                controllers.gate.clear()  # from now on the other replica is waited for
            consumer = PopConsumer(peer, broker)
            popping = asyncio.create_task(consumer.pop())
            await until(lambda: broker.services.pop._pop._running)
            popping.cancel()

    asyncio.run(main())
