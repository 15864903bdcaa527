"""Cleaning on request: unneeded data is deleted, needed data stays."""

import asyncio
import errno
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from mq.client.machine import files
from mq.client.transport.session import Session
from mq.daemons.broker.admin import retention_handlers
from mq.daemons.broker.app import Broker
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.store_times import store_time
from mq.protocol import fastjson
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import decode_records
from tests import answered
from tests.daemons.broker.replication.pair import caught_up, pair
from tests.daemons.broker.running import broker_on
from tests.daemons.broker.running import send as send_later
from tests.daemons.broker.store.stores import put
from tests.waiting import until

FILE_SIZE = 64 * 1024
LONG_AGO = 1_000_000_000


def small_files(root: Path) -> Broker:
    return broker_on(root, mappedFileSizeCommitLog=str(FILE_SIZE))


async def send(session: Session, address: str, topic: str, body: bytes) -> None:
    fields = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0"}
    fields |= {"h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
    reply = await session.invoke(address, Command(RequestCode.SEND_MESSAGE_V2, fields, body))
    assert reply.code == ResponseCode.SUCCESS, reply


async def ask(session: Session, address: str, code: RequestCode) -> None:
    assert (await session.invoke(address, Command(code))).code == ResponseCode.SUCCESS


async def seen_during(work: Coroutine[Any, Any, None], look: Callable[[], int]) -> set[int]:
    """Observations of another task of the loop until some work is done."""
    task, seen = asyncio.create_task(work), set()
    while not task.done():
        seen.add(look())
        await asyncio.sleep(0)
    await task
    return seen


@answered.by_broker(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG)
def test_expired_log_files_and_then_queues_without_messages_are_deleted(tmp_path: Path) -> None:
    async def script() -> None:
        async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, "Old", b"x" * 1000)
            for _ in range(10):  # three to a file
                await send(session, broker.address, "New", b"x" * 20_000)
            store = broker.stores.messages
            files = [file.path for file in store.log.files]
            assert len(files) == 4
            await store.flusher.drain()
            await store.checkpointer.checkpoint()
            for path in files[:2]:
                os.utime(path, (LONG_AGO, LONG_AGO))
            await ask(session, broker.address, RequestCode.DELETE_EXPIRED_COMMITLOG)
            assert [path.exists() for path in files] == [False, False, True, True]
            assert store.max_offset("Old", 0) == 1

            await ask(session, broker.address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
            assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (0, 0)
            assert not (tmp_path / "consumequeue" / "Old" / "0").exists()
            assert store.max_offset("New", 0) == 10
            await send(session, broker.address, "Old", b"again")
            assert store.max_offset("Old", 0) == 1
            assert store.entries.at("Old", 0, 0) is not None

    asyncio.run(script())


READ_BY_BROKER = (
    "rmq_sys_wheel_timer",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "SCHEDULE_TOPIC_XXXX",
)


async def delete_old(broker: Broker, session: Session) -> None:
    """Have all existing messages deleted by age."""
    for _ in range(4):  # more than a file
        await send(session, broker.address, "New", b"x" * 20_000)
    store = broker.stores.messages
    await store.flusher.drain()
    await store.checkpointer.checkpoint()
    for file in store.log.files[:-1]:
        os.utime(file.path, (LONG_AGO, LONG_AGO))
    await ask(session, broker.address, RequestCode.DELETE_EXPIRED_COMMITLOG)


async def expire(broker: Broker, session: Session) -> None:
    """Have all existing messages deleted by age, and their queues cleaned."""
    await delete_old(broker, session)
    await ask(session, broker.address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


def test_queues_that_the_broker_reads_itself_keep_their_offsets(tmp_path: Path) -> None:
    async def script() -> None:
        async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
            for topic in (*READ_BY_BROKER, "Old"):
                await put(broker.stores.messages, topic, 0, b"one", b"two")
            await expire(broker, session)
            store = broker.stores.messages
            for topic in READ_BY_BROKER:
                assert (store.min_offset(topic, 0), store.max_offset(topic, 0)) == (2, 2), topic
            assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (0, 0)

    asyncio.run(script())


def test_timed_messages_are_delivered_after_a_cleaning_and_after_the_next_start(
    tmp_path: Path,
) -> None:
    async def send_timed(broker: Broker, session: Session, body: bytes) -> None:
        due = time.time_ns() // 1_000_000 + 1000
        reply = await send_later(session, broker.address, body, {"TIMER_DELIVER_MS": str(due)})
        assert reply.code == ResponseCode.SUCCESS

    async def receive(broker: Broker, session: Session, offset: int) -> list[bytes]:
        fields = {"consumerGroup": "G", "topic": "Later", "queueId": "1", "maxMsgNums": "32"}
        fields |= {"queueOffset": str(offset), "sysFlag": "6", "commitOffset": "0"}
        fields |= {"suspendTimeoutMillis": "20000", "subscription": "*", "subVersion": "0"}
        command = Command(RequestCode.PULL_MESSAGE, fields)
        reply = await session.invoke(broker.address, command, 30)
        return [message.body for message in decode_records(reply.body)]

    async def script() -> None:
        async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send_timed(broker, session, b"first")
            assert await receive(broker, session, 0) == [b"first"]
            await expire(broker, session)
            await send_timed(broker, session, b"second")
            assert await receive(broker, session, 0) == [b"second"]
            await send_timed(broker, session, b"third")
        async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
            # after a start the timer may deliver again what it delivered just before a stop
            offset = 1
            while b"third" not in (found := await receive(broker, session, offset)):
                assert found
                offset += len(found)

    asyncio.run(script())


@answered.by_broker(RequestCode.CLEAN_UNUSED_TOPIC)
def test_queues_of_missing_topics_are_deleted(tmp_path: Path) -> None:
    async def script() -> None:
        async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, "Kept", b"x")
            await send(session, broker.address, "Dropped", b"x")
            await broker.stores.messages.checkpointer.checkpoint()
            await broker.stores.topics.delete("Dropped")
            await ask(session, broker.address, RequestCode.CLEAN_UNUSED_TOPIC)
            queues = tmp_path / "consumequeue"
            assert ((queues / "Kept").exists(), (queues / "Dropped").exists()) == (True, False)

    asyncio.run(script())


def test_missing_topics_are_cleaned_though_an_earlier_queue_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed after every cleaning: created again, the topic had its old messages."""

    async def script() -> None:
        async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
            store = broker.stores.messages
            for topic, queue_id in (("Stuck", 0), ("Stuck", 1), ("Dropped", 0)):
                await put(store, topic, queue_id, b"x")
            remove = files.remove_tree

            def stuck(folder: Path) -> None:
                if folder == tmp_path / "consumequeue" / "Stuck" / "0":
                    raise OSError(errno.EIO, "Input/output error")
                remove(folder)

            monkeypatch.setattr(files, "remove_tree", stuck)
            reply = await session.invoke(broker.address, Command(RequestCode.CLEAN_UNUSED_TOPIC))
            assert reply.code == ResponseCode.SYSTEM_ERROR
            left = [(queue.topic, queue.queue_id) for queue in store.queues if queue.appended]
            assert left == [("Stuck", 0)]

    asyncio.run(script())


def test_queues_are_cleaned_though_an_earlier_one_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stayed after every cleaning, and offsets were not saved."""

    async def script() -> None:
        async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
            store, offsets = broker.stores.messages, broker.stores.offsets
            for topic in ("Stuck", "Old"):
                await put(store, topic, 0, b"x")
                offsets.commit("G", topic, 0, 1)
            await delete_old(broker, session)
            remove = files.remove

            def stuck(path: files.AnyPath) -> None:
                if Path(path).parent == tmp_path / "consumequeue" / "Stuck" / "0":
                    raise OSError(errno.EIO, "Input/output error")
                remove(path)

            monkeypatch.setattr(files, "remove", stuck)
            command = Command(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
            reply = await session.invoke(broker.address, command)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert [store.end_offset(topic, 0) for topic in ("Stuck", "Old")] == [1, 0]
            saved = fastjson.loads((tmp_path / "config" / "consumerOffset.json").read_bytes())
            assert saved["offsetTable"]["Old@G"] == {"0": 0}
            monkeypatch.undo()
            await ask(session, broker.address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
            assert store.end_offset("Stuck", 0) == 0

    asyncio.run(script())


@pytest.mark.parametrize("tags", ["*", "a"])
def test_a_pull_suspended_at_a_cleaned_queue_is_moved_to_its_beginning(
    tmp_path: Path, tags: str
) -> None:
    """It kept waiting at the old end of the queue, and skipped as many of the next messages."""

    async def script() -> None:
        async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
            store = broker.stores.messages
            for _ in range(2):
                await send(session, broker.address, "Old", b"old")
            await delete_old(broker, session)
            fields = {"consumerGroup": "G", "topic": "Old", "queueId": "0", "maxMsgNums": "32"}
            fields |= {"queueOffset": "2", "sysFlag": "6", "commitOffset": "0"}
            fields |= {"suspendTimeoutMillis": "60000", "subscription": tags, "subVersion": "0"}
            command = Command(RequestCode.PULL_MESSAGE, fields)
            pull = asyncio.create_task(session.invoke(broker.address, command, 30))
            queue = store.queues.get_or_make("Old", 0)
            await until(lambda: queue.waiting)
            await ask(session, broker.address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
            reply = await pull
            assert reply.code == ResponseCode.PULL_OFFSET_MOVED
            assert reply.fields["nextBeginOffset"] == "0"

    asyncio.run(script())


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_a_consumer_of_a_cleaned_queue_skips_no_later_message(
    tmp_path: Path, is_deleted: bool, restart: bool
) -> None:
    """A consumer between two pulls was sent to the end of the queue at that time; the group of a
    stopped one began after as many messages as there had been.
    """

    async def clean(broker: Broker, session: Session) -> None:
        for _ in range(3):
            await send(session, broker.address, "Old", b"old")
        await delete_old(broker, session)
        if is_deleted:
            await broker.stores.topics.delete("Old")
            broker.stores.messages.delete_topic("Old")
        await ask(session, broker.address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        assert broker.stores.messages.end_offset("Old", 0) == 0

    async def go_on(broker: Broker, session: Session) -> None:
        await send(session, broker.address, "Old", b"new")
        fields = {"consumerGroup": "G", "topic": "Old", "queueId": "0", "commitOffset": "3"}
        commit = Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        await session.invoke(broker.address, commit)
        assert broker.stores.offsets.query("G", "Old", 0) == -1
        fields |= {"queueOffset": "3", "sysFlag": "5", "suspendTimeoutMillis": "0"}
        fields |= {"maxMsgNums": "32", "subscription": "*", "subVersion": "0"}
        reply = await session.invoke(broker.address, Command(RequestCode.PULL_MESSAGE, fields))
        assert reply.code == ResponseCode.PULL_OFFSET_MOVED
        assert reply.fields["nextBeginOffset"] == "0"
        assert broker.stores.offsets.query("G", "Old", 0) == -1

    async def script() -> None:
        async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await clean(broker, session)
            if not restart:
                await go_on(broker, session)
        if restart:
            async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
                await go_on(broker, session)

    asyncio.run(script())


async def lose_topic(its_master: Broker, slave: Broker, topic: str) -> None:
    """Drop the configuration of a topic and keep its queues, as an older slave may have it.

    The master loses the topic, too: otherwise the next copy restores it at the slave.
    """
    for broker in (its_master, slave):
        assert await broker.stores.topics.delete(topic)


def test_a_slave_keeps_recent_messages_of_a_topic_that_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave may know less than its master. It deletes such queues an hour after their last
    message.
    """

    async def script() -> None:
        async with pair(tmp_path) as (its_master, slave), Session("127.0.0.1:1") as session:
            await send(session, its_master.address, "New", b"x")
            await caught_up(slave, its_master)
            await lose_topic(its_master, slave, "New")
            store = slave.stores.messages
            await ask(session, slave.address, RequestCode.CLEAN_UNUSED_TOPIC)
            assert store.end_offset("New", 0) == 1
            monkeypatch.setattr(retention_handlers, "_COPIED_WITHIN", -60_000)
            await ask(session, slave.address, RequestCode.CLEAN_UNUSED_TOPIC)
            assert store.end_offset("New", 0) == 0

    asyncio.run(script())


def test_a_slave_cleans_other_topics_if_the_age_of_one_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def of_a_failing_disk(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
        if topic == "Unreadable":
            raise OSError(errno.EIO, "Input/output error")
        return store_time(store, topic, queue_id, offset)

    async def script() -> None:
        async with pair(tmp_path) as (its_master, slave), Session("127.0.0.1:1") as session:
            for topic in ("Unreadable", "Old"):
                await send(session, its_master.address, topic, b"x")
            await caught_up(slave, its_master)
            for topic in ("Unreadable", "Old"):
                await lose_topic(its_master, slave, topic)
            monkeypatch.setattr(retention_handlers, "_COPIED_WITHIN", -60_000)
            monkeypatch.setattr(retention_handlers, "store_time", of_a_failing_disk)
            store = slave.stores.messages
            command = Command(RequestCode.CLEAN_UNUSED_TOPIC)
            reply = await session.invoke(slave.address, command)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert [store.end_offset(topic, 0) for topic in ("Unreadable", "Old")] == [1, 0]

    asyncio.run(script())


def test_others_are_served_while_queues_of_many_topics_are_deleted(tmp_path: Path) -> None:
    count = 60

    async def script() -> None:
        async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
            store = broker.stores.messages
            for number in range(count):
                await put(store, f"Dropped{number}", 0, b"x")
            asking = ask(session, broker.address, RequestCode.CLEAN_UNUSED_TOPIC)
            seen = await seen_during(asking, lambda: len(store.queues.topics()))
            assert not [one for one in store.queues.topics() if one.startswith("Dropped")]
            assert len(seen) > 2  # between none and all of them

    asyncio.run(script())


def test_others_are_served_while_many_queues_are_cleaned(tmp_path: Path) -> None:
    count = 100

    async def script() -> None:
        async with small_files(tmp_path) as broker, Session("127.0.0.1:1") as session:
            store = broker.stores.messages
            for number in range(count):
                await put(store, f"Old{number}", 0, b"x")
            await delete_old(broker, session)
            seen = await seen_during(
                ask(session, broker.address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE),
                lambda: sum(store.max_offset(f"Old{number}", 0) for number in range(count)),
            )
            assert max(seen) == count and min(seen) == 0
            assert len(seen) > 2

    asyncio.run(script())
