"""Pulls by plans: as long as nothing that a plan depends on has changed."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mq.client.machine import clock, files
from mq.daemons import outgoing
from mq.daemons.broker.pull import native_pulls, planned_pulls
from mq.daemons.broker.pull.native_pulls import PullAnswer
from mq.daemons.broker.store.log.batch import Batch
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.daemons.broker.store.recovery.truncation import cut_end
from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.flags import Permission, PullSysFlag
from mq.protocol.frame import encode
from mq.protocol.native import native
from tests.daemons.broker.groups.members import beat
from tests.daemons.broker.pulls import TOPIC, PullBroker, bodies, numbered, pull, request, serve
from tests.daemons.broker.store.stores import put
from tests.daemons.peer import Peer
from tests.daemons.written import Written, connected

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")

LARGE_FILES = {"mappedFileSizeCommitLog": "100000"}
Change = Callable[[PullBroker], Awaitable[object]]


class Time:
    """A clock that only the test advances: slow consumers have nothing prefetched."""

    def __init__(self) -> None:
        self.now = clock.monotonic()


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(clock, "monotonic", lambda: time.now)
    return time


def counted(broker: PullBroker) -> list[int]:
    """Record the number of messages of each pull that is served by its plan, from now on."""
    planned, answers = broker.services.pulls.planned, list[int]()
    send = planned._send

    def count(answer: PullAnswer, *arguments: Any) -> None:
        answers.append(answer[2])
        send(answer, *arguments)

    planned._send = count
    return answers


def test_a_repeated_pull_is_answered_by_its_plan_and_commits(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        answers = counted(broker)
        await broker.put(*numbered(5))
        flags = str(PullSysFlag.SUBSCRIPTION | PullSysFlag.COMMIT_OFFSET)
        for offset in range(4):
            command = request(offset, opaque=offset, sysFlag=flags, commitOffset=str(offset))
            reply = await pull(peer, command)
            assert bodies(reply) == numbered(5)[offset:]
            assert broker.stores.offsets.query("g", TOPIC, 0) == offset
        assert answers == [4, 3, 2]
        counter = broker.stats.counters.group(TOPIC, "g", 0)
        assert (counter.messages, counter.pulls) == (5 + 4 + 3 + 2, 4)

    serve(tmp_path, script, **LARGE_FILES)


async def _forbid_topic(broker: PullBroker) -> None:
    config = TopicConfig(
        topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4, perm=Permission.WRITE
    )
    await broker.stores.topics.update(config)


async def _forbid_group(broker: PullBroker) -> None:
    config = SubscriptionGroupConfig(group_name="g", consume_enable=False)
    await broker.stores.groups.update(config)


async def _forbid_broker(broker: PullBroker) -> None:
    broker.settings.update({"brokerPermission": "2"})


@pytest.mark.parametrize("forbid", [_forbid_topic, _forbid_group, _forbid_broker])
def test_a_pull_that_is_forbidden_meanwhile_is_refused(tmp_path: Path, forbid: Change) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(3))
        answers = counted(broker)
        for _ in range(2):
            assert bodies(await pull(peer, request(0))) == numbered(3)
        await forbid(broker)
        assert (await pull(peer, request(0))).code == ResponseCode.NO_PERMISSION
        assert answers == [3]

    serve(tmp_path, script, **LARGE_FILES)


def test_a_topic_that_was_created_again_is_read_from_its_new_queue(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        answers = counted(broker)
        await broker.put(b"old")
        for _ in range(2):
            assert bodies(await pull(peer, request(0))) == [b"old"]
        topics = broker.stores.topics
        await topics.delete(TOPIC, lambda: broker.stores.messages.delete_topic(TOPIC))
        assert (await pull(peer, request(0))).code == ResponseCode.TOPIC_NOT_EXIST
        await topics.update(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        await broker.put(b"new")
        for _ in range(2):
            assert bodies(await pull(peer, request(0))) == [b"new"]
        assert answers == [1, 1]

    serve(tmp_path, script, **LARGE_FILES)


def test_a_changed_subscription_applies_from_the_next_pull_on(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        answers = counted(broker)
        await broker.put(b"a", tag="a")
        await broker.put(b"b", tag="b")
        command = request(0, sysFlag="0")
        assert (await pull(peer, command)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        async with Peer(broker.listener.port) as member:
            for version, (tag, found) in enumerate(
                (("a", [b"a"]), ("b", [b"b"]), ("*", [b"a", b"b"]))
            ):
                await beat(member, "c", TOPIC, version=version + 1, wanted=tag)
                for _ in range(2):
                    assert bodies(await pull(peer, command)) == found
            await beat(member, "c", "another", version=4)
            assert (await pull(peer, command)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert answers == [1, 1, 1, 2, 2]

    serve(tmp_path, script, **LARGE_FILES)


class Filling(Written):
    """A transport whose peer accepts so many replies."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most
        self.on_full: Callable[[], None] = lambda: None

    def write(self, data: bytes | memoryview) -> None:
        super().write(data)
        self._left -= 1
        if not self._left:
            self.on_full()


def test_a_peer_that_stalls_in_the_middle_of_its_pulls_gets_no_further_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "_JOINED", 0)  # each reply is written separately

    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(3))
        assert bodies(await pull(peer, request(0))) == numbered(3)
        channel, transport = connected(broker.listener, Filling(2))
        transport.on_full = channel.pause_writing
        channel.data_received(b"".join(encode(request(0, opaque=number)) for number in range(6)))
        sent = CommandReader().receive(transport.data)
        channel.connection_lost(None)
        assert [reply.opaque for reply in sent] == [0, 1]

    serve(tmp_path, script, **LARGE_FILES)


def test_filters_by_properties_are_not_kept_in_plans(
    tmp_path: Path,
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        answers = counted(broker)
        await broker.put(*numbered(3))
        command = request(0, tags="a IS NULL", expressionType="SQL92")
        for _ in range(2):
            assert bodies(await pull(peer, command)) == numbered(3)
        assert answers == [3]
        (plan,) = broker.services.pulls.planned._plans.values()
        assert plan.expression is None

    serve(tmp_path, script, enablePropertyFilter="true", **LARGE_FILES)


def test_the_texts_of_plans_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_pulls, "_MOST_BYTES", 300)

    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(3))
        for number in range(20):
            await pull(peer, request(0, subVersion=f"{number:03}"))
            plans = broker.services.pulls.planned._plans
            assert sum(map(len, plans)) < 400
        assert plans

    serve(tmp_path, script, **LARGE_FILES)


def prefetched(broker: PullBroker) -> list[int]:
    """Record the positions of entries that were read ahead for following pulls, from now on."""
    path, places = broker.services.pulls.native, list[int]()
    prefetch = path.prefetch

    def note(queue: ConsumeQueue, offset: int, *arguments: Any) -> object:
        places.append(offset)
        return prefetch(queue, offset, *arguments)

    path.prefetch = note  # type: ignore[assignment, method-assign]
    return places


def one_of_many(at: int, most: int = 4) -> Command:
    """A pull as sent by `read`."""
    flags = str(PullSysFlag.SUBSCRIPTION | PullSysFlag.COMMIT_OFFSET)
    return request(at, most=most, opaque=at, sysFlag=flags, commitOffset=str(at))


async def read(peer: Peer, begin: int, end: int, most: int = 4) -> None:
    """Pull the messages of queue 0 between two offsets, one after the other."""
    for at in range(begin, end, most):
        reply = await pull(peer, one_of_many(at, most))
        assert bodies(reply) == numbered(end)[at : at + most]


def test_a_sequential_consumer_gets_prefetched_messages(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        places = prefetched(broker)
        await broker.put(*numbered(200))
        await read(peer, 0, 200)
        # After the second pull of the plan, and at its end; not for less than two pulls.
        assert places == [12, 80, 148]
        assert broker.stores.offsets.query("g", TOPIC, 0) == 196
        counter = broker.stats.counters.group(TOPIC, "g", 0)
        assert (counter.messages, counter.pulls, counter.behind) == (200, 50, 0)

    serve(tmp_path, script, mappedFileSizeCommitLog="100000", mappedFileSizeConsumeQueue="20000")


def test_scattered_messages_are_prefetched_up_to_a_few_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_pulls, "_LONGEST_PREFETCHED", 2000)

    async def script(broker: PullBroker, peer: Peer) -> None:
        places = prefetched(broker)
        await broker.put(*numbered(100))
        await read(peer, 0, 100)
        record = broker.stores.messages.log.written // 100
        assert 16 * record < 2000 < 32 * record
        assert places[0] == 12
        assert {end - begin for begin, end in pairwise(places)} == {16, 20}  # sixteen, or twelve

    serve(tmp_path, script, mappedFileSizeCommitLog="100000", mappedFileSizeConsumeQueue="20000")


def test_a_consumer_with_random_offsets_has_nothing_prefetched(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        places = prefetched(broker)
        await broker.put(*numbered(100))
        for at in (0, 40, 20, 60, 0, 0, 30):
            assert bodies(await pull(peer, request(at, most=4))) == numbered(100)[at : at + 4]
        assert places == []

    serve(tmp_path, script, **LARGE_FILES)


def test_a_consumer_that_rarely_pulls_has_nothing_prefetched(tmp_path: Path, time: Time) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        places = prefetched(broker)
        await broker.put(*numbered(200))
        for at in range(0, 100, 4):
            time.now += 0.05
            assert bodies(await pull(peer, one_of_many(at))) == numbered(200)[at : at + 4]
        assert places == []
        await read(peer, 100, 200)
        assert places == [104, 172]

    serve(tmp_path, script, mappedFileSizeCommitLog="100000", mappedFileSizeConsumeQueue="20000")


def test_prefetched_data_is_valid_until_residency_is_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: Time
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(100))
        await broker.stores.messages.flusher.drain()
        residency, asked = broker.services.pulls._residency, list[int]()
        has = residency._kernel_has

        def ask(chunk: int) -> bool:
            asked.append(chunk)
            return has(chunk)

        monkeypatch.setattr(residency, "_kernel_has", ask)
        await read(peer, 0, 40)
        assert asked == [0]
        time.now += 1
        await read(peer, 40, 80)
        assert asked == [0, 0]

    serve(tmp_path, script, **LARGE_FILES)


def is_mapped(path: Path) -> bool:
    """Whether this process has a file mapped."""
    return str(path) in Path("/proc/self/maps").read_text()


def test_a_deleted_log_file_is_not_held_by_prefetched_data(
    tmp_path: Path,
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        messages = broker.stores.messages
        await broker.put(*numbered(100))
        await read(peer, 0, 40)
        path = messages.log.files[0].path
        assert is_mapped(path)
        while len(messages.log.files) == 1:
            await broker.put(bytes(1000))
        messages.log.remove_first()
        assert not is_mapped(path)

    serve(tmp_path, script, mappedFileSizeCommitLog="20000", mappedFileSizeConsumeQueue="20000")


def test_a_closed_log_is_not_held_by_prefetched_data(tmp_path: Path) -> None:
    async def main() -> None:
        broker = PullBroker(tmp_path, LARGE_FILES)
        async with broker, Peer(broker.listener.port) as peer:
            await broker.put(*numbered(40))
            await read(peer, 0, 20)
            path = broker.stores.messages.log.files[0].path
            assert is_mapped(path)
        assert not is_mapped(path)

    asyncio.run(main())


def test_a_message_stored_after_a_truncation_is_not_confused_with_a_prefetched_one(
    tmp_path: Path,
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        store, other = broker.stores.messages, "others"
        assert len(other) == len(TOPIC)
        await put(store, other, 0, *numbered(20))
        await broker.put(*numbered(40))
        await read(peer, 0, 20)
        entry = broker.queue.entry(20)
        assert entry is not None
        await cut_end(store, entry[0], "its master does not have it")
        store.appender._batch = Batch(store.log.position)  # a slave does not use it
        await put(store, other, 0, b"o20", b"o21", b"o22", b"o23")
        await broker.put(b"n20", b"n21", b"n22", b"n23")
        assert bodies(await pull(peer, one_of_many(20))) == [b"n20", b"n21", b"n22", b"n23"]

    serve(tmp_path, script, **LARGE_FILES)


def test_a_message_deleted_by_age_is_not_returned_from_prefetched_data(
    tmp_path: Path,
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(100))
        await read(peer, 0, 40)
        broker.queue.minimum = 60
        reply = await pull(peer, one_of_many(40))
        assert (reply.code, reply.fields["nextBeginOffset"]) == (
            ResponseCode.PULL_OFFSET_MOVED,
            "60",
        )

    serve(tmp_path, script, **LARGE_FILES)


def test_a_planned_pull_whose_entries_cannot_be_read_gets_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "the disk is broken")

    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(40))
        broker.queue.persist()
        await read(peer, 0, 8)
        with monkeypatch.context() as patch:
            patch.setattr(files, "pread", fail)
            reply = await pull(peer, one_of_many(8))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "the disk is broken" in (reply.remark or "")
        await read(peer, 0, 40)

    serve(tmp_path, script, mappedFileSizeCommitLog="100000", mappedFileSizeConsumeQueue="20000")


@pytest.mark.parametrize("is_planned", [True, False])
def test_a_pull_without_matches_is_answered_once_if_the_disk_fails_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_planned: bool
) -> None:
    pread, reads = files.pread, list[int]()

    def fail(descriptor: int, size: int, position: int) -> bytes:
        reads.append(position)
        if len(reads) > 1:
            raise OSError(errno.EIO, "the disk is broken")
        return pread(descriptor, size, position)

    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(20))
        broker.queue.persist()
        flags = str(PullSysFlag.SUBSCRIPTION | PullSysFlag.COMMIT_OFFSET)
        commands = [
            request(0, opaque=number, tags="nobody's", sysFlag=flags, commitOffset=str(number))
            for number in range(3)
        ]
        if is_planned:
            await pull(peer, commands[0])
        with monkeypatch.context() as patch:
            patch.setattr(files, "pread", fail)
            reply = await pull(peer, commands[1])
        assert (reply.code, len(reads)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2)
        assert broker.stores.offsets.query("g", TOPIC, 0) == 1
        await pull(peer, commands[2])  # the next reply

    serve(tmp_path, script, mappedFileSizeCommitLog="100000", mappedFileSizeConsumeQueue="20000")


def test_a_pull_is_answered_if_the_following_file_cannot_be_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOMEM, "no memory for maps")

    async def script(broker: PullBroker, peer: Peer) -> None:
        log, places = broker.stores.messages.log, prefetched(broker)
        for number in range(60):
            await broker.put(b"m%d" % number)
        behind = broker.queue.first_at_or_after(log.files[1].start)
        begin = behind % 4
        await read(peer, begin, behind - 4)
        broker.services.pulls.planned.forget_prefetched()
        places.clear()
        with monkeypatch.context() as patch:
            patch.setattr(log.files[1], "_view", None)
            patch.setattr(files, "map_to_read", fail)
            reply = await pull(peer, one_of_many(behind - 4))
        assert bodies(reply) == numbered(behind)[-4:]
        assert places == [behind]

    serve(tmp_path, script, mappedFileSizeConsumeQueue="20000")


def test_few_plans_have_prefetched_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_pulls, "_MOST_PREFETCHED", 3)

    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(100))
        for version in range(8):
            for at in range(0, 24, 4):
                await pull(peer, request(at, most=4, subVersion=str(version)))
            plans = broker.services.pulls.planned._plans.values()
            assert sum(plan.prefetched is not None for plan in plans) <= 3

    serve(tmp_path, script, **LARGE_FILES)
