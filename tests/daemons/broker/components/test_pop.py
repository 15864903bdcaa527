"""Messages in flight of a deleted topic or group: they do not count for a new one of the same
name."""

import asyncio
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import order
from mq.daemons.broker.store.queue import generations
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.broker.killed import copy_as_killed
from tests.daemons.broker.pop.consumers import GROUP, TOPIC, PopConsumer, bodies, fill, run
from tests.daemons.broker.pop.deletions import DELETIONS, flushes_held_up
from tests.daemons.peer import Peer
from tests.waiting import until

CODES = pytest.mark.parametrize("code", DELETIONS)


async def make_anew(peer: Peer, code: RequestCode) -> None:
    """Delete the topic, or the group, and create it again; the topic then has eight messages."""
    assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS
    if code == RequestCode.DELETE_TOPIC_IN_BROKER:
        await create_topic(peer, TOPIC, 1)
        for number in range(8):
            await send(peer, TOPIC, b"%d" % number)


@CODES
def test_old_ordered_messages_in_flight_neither_block_nor_advance_a_recreated_group(
    tmp_path: Path, code: RequestCode
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 8)
        old = await consumer.pop(order="true", maxMsgNums="5")
        await make_anew(peer, code)
        assert (await consumer.hide(old[0], 1000)).code == ResponseCode.NO_MESSAGE
        assert (await consumer.ack(old[0])).code == ResponseCode.NO_MESSAGE
        assert broker.stores.offsets.query(GROUP, TOPIC, 0) == -1
        new = await consumer.pop(order="true", maxMsgNums="5")
        assert bodies(new) == [b"0", b"1", b"2", b"3", b"4"]

    run(tmp_path, script)


@CODES
def test_a_kill_does_not_restore_ordered_messages_in_flight(
    tmp_path: Path, code: RequestCode
) -> None:
    killed, copy = tmp_path / "killed", tmp_path / "copy"

    async def before(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 8)
        await consumer.pop(order="true", maxMsgNums="5")
        await broker.services.pop.save()
        await make_anew(peer, code)
        copy_as_killed(killed, copy)

    async def after(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        assert len(await consumer.pop(order="true")) == 8

    run(killed, before)
    run(copy, after)


@CODES
def test_messages_in_flight_are_not_redelivered_to_a_recreated_group(
    tmp_path: Path, code: RequestCode
) -> None:
    """With messages of the new topic: they have the old one's offsets."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 8)
        old = await consumer.pop(maxMsgNums="5")
        await make_anew(peer, code)
        new = await consumer.pop()
        assert len(new) == 8
        assert (await consumer.hide(old[0], 1000)).code == ResponseCode.NO_MESSAGE
        assert (await consumer.ack_all(new)).code == ResponseCode.SUCCESS
        assert len(broker.services.pop.points) == 0

    run(tmp_path, script)


@CODES
def test_a_kill_does_not_restore_messages_in_flight(tmp_path: Path, code: RequestCode) -> None:
    killed, copy = tmp_path / "killed", tmp_path / "copy"

    async def before(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 8)
        await broker.stores.offsets.save()
        await consumer.pop(maxMsgNums="5")
        await make_anew(peer, code)
        copy_as_killed(killed, copy)

    async def after(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        assert len(broker.services.pop.points) == 0
        assert broker.stores.offsets.query(GROUP, TOPIC, 0) == -1
        assert len(await consumer.pop()) == 8

    run(killed, before)
    run(copy, after)


@CODES
def test_a_deletion_reports_that_ordered_messages_in_flight_cannot_be_saved_and_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: RequestCode
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        file = tmp_path / "config" / "consumerOffset.json"
        await fill(peer, 8)
        await consumer.pop(order="true", maxMsgNums="4")
        await broker.stores.offsets.save()
        await broker.services.pop.save()
        assert f"{TOPIC}@{GROUP}" in file.read_text()
        with monkeypatch.context() as patch:
            patch.setattr(order, "write_atomically", full)
            reply = await peer.ask(code, DELETIONS[code])
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reply.remark is not None and "is deleted" in reply.remark
        assert reply.remark.endswith(
            "delete it again, because they cannot be saved: No space left on device"
        )
        assert broker.stores.offsets.query(GROUP, TOPIC, 0) == -1
        assert f"{TOPIC}@{GROUP}" not in file.read_text()
        assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS
        assert GROUP not in (tmp_path / "config" / "consumerOrderInfo.json").read_text()

    run(tmp_path, script)


def test_a_pop_in_flight_to_the_disk_during_a_deletion_advances_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group started in the new topic where the pop had left it in the old one."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        points = broker.services.pop.points
        await fill(peer, 3)
        async with Peer(broker.port) as second, Peer(broker.port) as third:
            with flushes_held_up(monkeypatch):
                old = asyncio.create_task(PopConsumer(second, broker).ask())
                await until(lambda: bool(points._fresh))
                code = RequestCode.DELETE_TOPIC_IN_BROKER
                deletion = asyncio.create_task(third.ask(code, DELETIONS[code]))
                await until(lambda: broker.stores.topics.get(TOPIC) is None)
                await create_topic(peer, TOPIC, 1)
                assert await consumer.pop() == []
            await asyncio.gather(old, deletion)
        assert len(points) == 0
        for number in range(3):
            await send(peer, TOPIC, b"new-%d" % number)
        assert bodies(await consumer.pop()) == [b"new-0", b"new-1", b"new-2"]

    run(tmp_path, script, flushDiskType="SYNC_FLUSH")


@contextmanager
def stuck_queue(monkeypatch: pytest.MonkeyPatch, root: Path) -> Iterator[None]:
    """Queue 1 of the topic cannot be deleted from the disk in here."""
    remove = files.remove_tree

    def stuck(folder: Path) -> None:
        if folder == root / "consumequeue" / TOPIC / "1":
            raise OSError(errno.EIO, "Input/output error")
        remove(folder)

    with monkeypatch.context() as failing:
        failing.setattr(files, "remove_tree", stuck)
        yield


def test_a_topic_with_a_queue_that_cannot_be_deleted_restarts_nevertheless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other queues were deleted, and their groups were past the next messages there. Their
    messages in flight were redelivered as those.
    """

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        code, offsets = RequestCode.DELETE_TOPIC_IN_BROKER, broker.stores.offsets
        await fill(peer, 6, queues=2)
        assert len(await consumer.pop()) == 6
        with stuck_queue(monkeypatch, tmp_path):
            reply = await peer.ask(code, DELETIONS[code])
            assert reply.code == ResponseCode.SYSTEM_ERROR
        assert (offsets.queues(GROUP, TOPIC), len(broker.services.pop.points)) == ({}, 0)
        await send(peer, TOPIC, b"new", 0)
        assert b"new" in bodies(await consumer.pop())
        assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS

    run(tmp_path, script)


def test_its_groups_skip_no_new_message_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion was refused before the removal of the offsets was saved."""
    killed, copy = tmp_path / "killed", tmp_path / "copy"

    async def before(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        await fill(peer, 6, queues=2)
        assert len(await consumer.pop()) == 6
        await broker.stores.offsets.save()
        with stuck_queue(monkeypatch, killed):
            reply = await peer.ask(code, DELETIONS[code])
        assert reply.remark == (
            f"topic {TOPIC} is deleted, but not all of its queues can be removed from the disk; "
            "delete it again: Input/output error"
        )
        await create_topic(peer, TOPIC, 2)
        for number in range(5):
            await send(peer, TOPIC, b"%d" % number, 0)
        copy_as_killed(killed, copy)

    async def after(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        assert bodies(await consumer.pop(queueId="0")) == [b"0", b"1", b"2", b"3", b"4"]

    run(killed, before)
    run(copy, after)


def test_its_groups_skip_no_new_message_if_the_deletion_failed_and_queues_were_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, copy = tmp_path / "killed", tmp_path / "copy"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def before(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        await fill(peer, 3)
        assert len(await consumer.pop()) == 3
        await broker.stores.offsets.save()
        with monkeypatch.context() as failing:
            failing.setattr(generations, "write_atomically", full)
            assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SYSTEM_ERROR
        cleaned = await peer.ask(RequestCode.CLEAN_UNUSED_TOPIC)
        assert cleaned.code == ResponseCode.SUCCESS
        await create_topic(peer, TOPIC, 1)
        for number in range(5):
            await send(peer, TOPIC, b"%d" % number)
        copy_as_killed(killed, copy)

    async def after(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        assert bodies(await consumer.pop()) == [b"0", b"1", b"2", b"3", b"4"]

    run(killed, before)
    run(copy, after)
