"""Messages in flight of a group that is deleted with its offsets."""

import asyncio
import errno
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import deleted_groups
from mq.daemons.broker.store.errors import StoreRefused
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.killed import copy_as_killed
from tests.daemons.broker.pop.consumers import GROUP, RETRY, TOPIC, PopConsumer, bodies, fill, run
from tests.daemons.broker.pop.deletions import DELETIONS, flushes_held_up
from tests.daemons.peer import Peer
from tests.waiting import until

CODE = RequestCode.DELETE_SUBSCRIPTIONGROUP
FULL = StoreRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")


def test_a_deletion_whose_ends_are_refused_fails_and_the_ends_are_retried(
    tmp_path: Path,
) -> None:
    """After a kill a new group of that name got messages again that it had acknowledged."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        points = broker.services.pop.points
        await fill(peer, 2)
        (popped,) = await consumer.pop(maxMsgNums="1", invisibleTime="600000")
        appender = broker.stores.messages.appender
        appender.refuse("disk", FULL)
        refused = await peer.ask(CODE, DELETIONS[CODE])
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark is not None and refused.remark.endswith(
            f"delete it again, because they cannot be saved: check points of group {GROUP} "
            "end later: the disk is full"
        )
        assert (await peer.ask(CODE, DELETIONS[CODE])).code == ResponseCode.SYSTEM_ERROR
        assert len(points) == 1
        appender.accept("disk")
        await until(lambda: not len(points))  # long before it is due
        assert (await peer.ask(CODE, DELETIONS[CODE])).code == ResponseCode.SUCCESS
        assert (await consumer.hide(popped, 1)).code == ResponseCode.NO_MESSAGE
        assert broker.stores.topics.get(RETRY) is None

    run(tmp_path, script)


def test_a_repeatedly_refused_check_point_is_due_once_and_ends_when_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal made it due once more: a disk that was full for a day filled the memory."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        points = broker.services.pop.points
        await fill(peer, 3)
        for _ in range(3):
            await consumer.pop(maxMsgNums="1", invisibleTime="600000")
        with monkeypatch.context() as full:
            real = files.pwrite

            def refused(descriptor: int, data: bytes | memoryview, position: int) -> int:
                if b"TAGS\x01ack" in bytes(data):
                    raise OSError(errno.ENOSPC, "No space left on device")
                return real(descriptor, data, position)

            full.setattr(files, "pwrite", refused)
            for _ in range(4):
                reply = await peer.ask(CODE, DELETIONS[CODE])
                assert reply.remark is not None and reply.remark.endswith("could not be ended")
            assert (len(points), len(points._due)) == (3, 3)
        await until(lambda: not len(points))  # long before they are due

    run(tmp_path, script)


def test_very_many_check_points_end_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ended in the turn of the deletion, and no other client was served."""
    killed, copy = tmp_path / "killed", tmp_path / "copy"
    monkeypatch.setattr(deleted_groups, "_AT_ONCE", 2)

    async def before(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        points = broker.services.pop.points
        await fill(peer, 5)
        for _ in range(5):
            await consumer.pop(maxMsgNums="1")
        in_turn: list[int] = []
        put = points._writer.put

        def counted(*given: object) -> int:
            in_turn[-1] += 1
            return put(*given)  # type: ignore[arg-type]

        def turn() -> None:
            in_turn.append(0)
            asyncio.get_running_loop().call_soon(turn)

        turn()
        monkeypatch.setattr(points._writer, "put", counted)
        assert (await peer.ask(CODE, DELETIONS[CODE])).code == ResponseCode.SUCCESS
        assert (sum(in_turn), max(in_turn)) == (5, 2)
        assert len(points) == 0
        copy_as_killed(killed, copy)

    async def after(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        assert len(broker.services.pop.points) == 0

    run(killed, before)
    run(copy, after)


@pytest.mark.parametrize("again", [False, True])
def test_after_a_kill_a_check_point_in_flight_advances_no_recreated_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Whether it is put for the first time or, as an old one, again."""
    killed, copy = tmp_path / "killed", tmp_path / "copy"

    async def before(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        points = broker.services.pop.points
        await fill(peer, 3)
        async with Peer(broker.port) as second, Peer(broker.port) as third:
            if again:
                await consumer.pop()
            await broker.stores.offsets.save()
            with flushes_held_up(monkeypatch):
                if again:
                    (point,) = points._table.values()
                    points.put_again(point)
                else:
                    old = asyncio.create_task(PopConsumer(second, broker).ask())
                    await until(lambda: bool(points._fresh))
                deletion = asyncio.create_task(third.ask(CODE, DELETIONS[CODE]))
                await until(lambda: GROUP not in broker.stores.groups.table)
            assert (await deletion).code == ResponseCode.SUCCESS
            if not again:
                await old
        assert bodies(await consumer.pop(maxMsgNums="1")) == [b"0"]
        await broker.stores.groups.file.settle()
        copy_as_killed(killed, copy)

    async def after(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        assert bodies(await consumer.pop()) == [b"1", b"2"]

    run(killed, before, flushDiskType="SYNC_FLUSH")
    run(copy, after)


def test_a_deletion_of_a_group_reports_that_its_check_points_are_not_stored_yet(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        points = broker.services.pop.points
        await fill(peer, 2)
        await consumer.pop()
        for revive in points._queues.values():  # as while no slave has confirmed the records
            revive.position -= 1
        reply = await peer.ask(CODE, DELETIONS[CODE])
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reply.remark is not None and reply.remark.endswith("are not stored yet")
        assert broker.stores.offsets.query(GROUP, TOPIC, 0) == -1

    run(tmp_path, script, syncFlushTimeout="1")
