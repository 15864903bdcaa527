"""What is out of a topic or a group that is deleted: nothing of it counts for one made anew."""

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import order
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.mapped_file import MappedFile
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.broker.killed import copy_as_killed
from tests.daemons.broker.pop.consumers import GROUP, RETRY, TOPIC, PopConsumer, bodies, fill
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer
from tests.waiting import until

DELETIONS = {
    RequestCode.DELETE_TOPIC_IN_BROKER: {"topic": TOPIC},
    RequestCode.DELETE_SUBSCRIPTIONGROUP: {"groupName": GROUP, "removeOffset": "true"},
}
CODES = pytest.mark.parametrize("code", DELETIONS)


async def make_anew(peer: Peer, code: RequestCode) -> None:
    """Delete the topic, or the group, and make it again; the topic then has eight messages."""
    assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS
    if code == RequestCode.DELETE_TOPIC_IN_BROKER:
        await create_topic(peer, TOPIC, 1)
        for number in range(8):
            await send(peer, TOPIC, b"%d" % number)


def run(
    root: Path, script: Callable[[Broker, Peer, PopConsumer], Awaitable[None]], **settings: str
) -> None:
    async def main() -> None:
        async with broker_on(root, **settings) as broker, Peer(broker.port) as peer:
            await script(broker, peer, PopConsumer(peer, broker))

    asyncio.run(main())


@contextmanager
def flushes_held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is flushed in here."""
    goes_on = threading.Event()
    sync = MappedFile.sync

    def sync_later(file: MappedFile) -> None:
        if threading.current_thread() is not threading.main_thread():
            goes_on.wait()
        sync(file)

    monkeypatch.setattr(MappedFile, "sync", sync_later)
    try:
        yield
    finally:
        goes_on.set()


@CODES
def test_what_was_out_in_order_neither_blocks_nor_moves_the_group_made_anew(
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
def test_a_kill_does_not_bring_back_what_was_out_in_order(
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
def test_what_was_out_does_not_come_again_to_the_group_made_anew(
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
def test_a_kill_does_not_bring_back_what_was_out(tmp_path: Path, code: RequestCode) -> None:
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
def test_a_deletion_says_that_what_was_out_in_order_cannot_be_saved_and_is_done_all_the_same(
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
        assert reply.remark is not None and "is gone" in reply.remark
        assert reply.remark.endswith(
            "delete it once more, for they cannot be saved: No space left on device"
        )
        assert broker.stores.offsets.query(GROUP, TOPIC, 0) == -1
        assert f"{TOPIC}@{GROUP}" not in file.read_text()
        assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS
        assert GROUP not in (tmp_path / "config" / "consumerOrderInfo.json").read_text()

    run(tmp_path, script)


def test_what_was_out_ends_when_it_is_due_where_the_store_took_nothing_at_the_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        points = broker.services.pop.points
        await fill(peer, 2)
        (popped,) = await consumer.pop(maxMsgNums="1", invisibleTime="60000")

        def refuse(*_: object) -> None:
            raise StoreRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "full")

        with monkeypatch.context() as patch:
            patch.setattr(points._writer, "put", refuse)
            code = RequestCode.DELETE_SUBSCRIPTIONGROUP
            assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS
        assert (await consumer.hide(popped, 1)).code == ResponseCode.NO_MESSAGE
        (point,) = points._table.values()
        point.invisible_time = 0
        points.push(point)
        await until(lambda: not len(points))
        assert broker.stores.topics.get(RETRY) is None

    run(tmp_path, script)


def test_a_pop_that_is_on_its_way_to_the_disk_when_its_topic_is_deleted_moves_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group began in the new topic where the pop had left it in the old one."""

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


@pytest.mark.parametrize("again", [False, True])
def test_behind_a_kill_a_check_point_that_was_on_its_way_moves_no_group_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Whether it is put for the first time or, as an old one, again."""
    killed, copy = tmp_path / "killed", tmp_path / "copy"

    async def before(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        points = broker.services.pop.points
        await fill(peer, 3)
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
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
                deletion = asyncio.create_task(third.ask(code, DELETIONS[code]))
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


def test_a_deletion_of_a_group_says_that_what_it_popped_is_not_stored_yet(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        points = broker.services.pop.points
        await fill(peer, 2)
        await consumer.pop()
        for revive in points._queues.values():  # as while no slave has confirmed what is there
            revive.position -= 1
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        reply = await peer.ask(code, DELETIONS[code])
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reply.remark is not None and reply.remark.endswith("is not stored yet")
        assert broker.stores.offsets.query(GROUP, TOPIC, 0) == -1

    run(tmp_path, script, syncFlushTimeout="1")
