"""Pulls that the native path serves: replies equal those of Python, byte for byte."""

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mq.client.machine import clock
from mq.daemons.broker.filters.errors import FilterSyntaxError
from mq.daemons.broker.filters.sql92 import read_filter
from mq.daemons.broker.pull.native_pulls import PullAnswer
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import JSON, ROCKETMQ, Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.frame import encode
from mq.protocol.message import decode_records
from mq.protocol.native import native
from tests.daemons.broker.damaged_frames import damaged
from tests.daemons.broker.harness import Harness
from tests.daemons.broker.native_pair import NOW, plain
from tests.daemons.broker.pulls import PullBroker, pull, request, serve
from tests.daemons.peer import Peer
from tests.daemons.written import Written, connected

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")

# Records are in several files of the log, entries in several files of a queue and in memory.
SMALL = {
    **{"mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "400"},
    "enablePropertyFilter": "true",
}
TAGS = ("a", "b", "", "é")
MESSAGES = 70  # in each of two queues, one of which has its messages side by side

CODES = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
PULL = {
    **{"consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"},
    **{"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*"},
    **{"subVersion": "1", "expressionType": "TAG"},
}
NUMBERS = st.integers(-3, MESSAGES + 3) | st.sampled_from([-(1 << 63), 1 << 63, 1 << 70])
ODD_TEXTS = NUMBERS.map(str) | st.sampled_from(["", " 1", "01", "1_0", "x", "*", "T"])
EXPRESSIONS = st.sampled_from(["*", "a", "b||é", "a||b||é", "nobody's", " ", "||", "", "a || a"])
FILTERS = st.sampled_from(
    [
        *("TAGS = 'a'", "TAGS IS NULL OR TAGS > 5", "TAGS IN ('a', 'é')", "CLUSTER IS NOT NULL"),
        *("nobody = 1", "TAGS IS NULL", "not a filter", "TAGS > 5", "TAGS BETWEEN 'a' AND 'b'"),
    ]
)


def read(expression: str) -> str:
    """Have an expression parsed: a pull with a new one waits for a thread that parses it."""
    with suppress(FilterSyntaxError):
        read_filter(expression)
    return expression


@st.composite
def pulls(draw: st.DrawFn) -> bytes:
    """A pull, usually as a client writes it."""
    fields = PULL | {
        "queueId": draw(st.sampled_from("0012")),
        "queueOffset": str(draw(st.integers(0, MESSAGES))),
        "maxMsgNums": str(draw(st.sampled_from([32, 32, 1, 3, 100, 0, -1]))),
        "sysFlag": str(draw(st.sampled_from([4, 5, 6, 7, 0]))),
        "commitOffset": str(draw(st.integers(0, MESSAGES))),
        "subscription": draw(EXPRESSIONS),
    }
    if draw(st.integers(0, 2)) == 0:
        fields |= {"expressionType": "SQL92", "subscription": draw(FILTERS)}
    if draw(st.integers(0, 4)) == 0:
        odd = dict.fromkeys(PULL, ODD_TEXTS)
        # Others would depend on time.
        odd["suspendTimeoutMillis"] = st.sampled_from(["x", "-1", "1000000"])
        fields |= draw(st.fixed_dictionaries({}, optional=odd))
    read(fields["subscription"])
    if draw(st.integers(0, 4)) == 0:
        fields["maxMsgBytes"] = draw(st.sampled_from(["300000", "5", "x"]))
    code = draw(st.sampled_from(CODES))
    kind = draw(st.sampled_from([JSON, JSON, ROCKETMQ]))
    opaque = draw(st.integers(-(1 << 31), (1 << 31) - 1))
    flag = draw(st.sampled_from([0, 0, 0, 2]))
    return encode(Command(code, fields, opaque=opaque, flag=flag, serialization=kind))


BUFFERS = damaged(pulls(), (0, 0, 0, 1))


def walked(queue: str, begin: int, most: int, expression: str = "*") -> list[bytes]:
    """Pulls of a queue from one offset to the next, as by a consumer."""
    return [_plain_pull(queue, at, expression, most) for at in range(begin, MESSAGES, most)]


WALKS = st.builds(
    walked,
    st.sampled_from("01"),
    st.integers(-1, MESSAGES // 2),
    st.integers(1, 9),
    st.sampled_from(["*", "*", "*", "a", "TAGS = 'a'"]),
)


@dataclass(frozen=True)
class Damage:
    """An entry that is overwritten, or some bytes of its record."""

    queue: int
    index: int
    change: Callable[[tuple[int, int, int]], tuple[int, int, int]] | None = None
    record_at: int = 0
    raw: bytes = b""


CHANGES: Sequence[Callable[[tuple[int, int, int]], tuple[int, int, int]]] = (
    lambda entry: (0, 0, 0),
    lambda entry: struct.unpack(">qiq", layout.FILLER_ENTRY),
    lambda entry: (entry[0] + 1, entry[1], entry[2]),
    lambda entry: (entry[0], entry[1] - 1, entry[2]),
    lambda entry: (entry[0], -entry[1], entry[2]),
    lambda entry: (entry[0], 0x7FFFFFFF, entry[2]),
    lambda entry: (-1, entry[1], entry[2]),
    lambda entry: ((1 << 63) - 1, entry[1], entry[2]),
    lambda entry: (-(1 << 63), entry[1], entry[2]),
    lambda entry: (entry[0], entry[1], 97),
    lambda entry: (entry[0], 4, entry[2]),
)
DAMAGES = st.lists(
    st.builds(
        Damage, st.sampled_from((0, 1)), st.integers(0, MESSAGES - 1), st.sampled_from(CHANGES)
    )
    | st.builds(
        Damage,
        st.sampled_from((0, 1)),
        st.integers(0, MESSAGES - 1),
        record_at=st.integers(0, 30),
        raw=st.binary(min_size=1, max_size=4),
    ),
    max_size=2,
)
LIMITS = st.fixed_dictionaries(
    {
        "maxTransferCountOnMessageInMemory": st.sampled_from(["32", "32", "1", "5"]),
        "maxTransferBytesOnMessageInMemory": st.sampled_from(["262144", "262144", "1", "700"]),
    }
)


class OneBroker:
    """A broker with two queues of messages, whose native path is used or not."""

    def __init__(self, root: Path, is_native: bool) -> None:
        self._root = root
        self._is_native = is_native
        self.taken = 0
        self.planned = 0
        self.prefetched = 0  # number of those

    async def start(self) -> None:
        self.broker = await Harness(self._root, SMALL).__aenter__()
        await self.take(plain(e="2"))
        for number in range(MESSAGES):
            queue = "0" if number % 2 else "1"
            sent = plain(e=queue, i=f"TAGS\x01{TAGS[number % 4]}" if TAGS[number % 4] else "")
            await self.take(sent)
        await self.take(b"".join(plain(e="0") for _ in range(MESSAGES - MESSAGES // 2)))
        for one in self.broker.stores.messages.queues:
            one.persist()
        await self.take(b"".join(plain(e="1", i="TAGS\x01a") for _ in range(MESSAGES // 2)))
        # A pull with a changed byte may request anything else: to delete the topic, for example.
        dispatcher = self.broker.listener.dispatcher
        dispatcher.handlers = {code: dispatcher.handlers[code] for code in CODES}
        for other in set(dispatcher.direct) - set(CODES):
            del dispatcher.direct[other]
        pulls = self.broker.services.pulls
        # Events of moved offsets are added to the log when a thread has time for it.
        pulls._on_moved = lambda *_: None
        made = pulls.native
        answer = made.answer

        def counted(*arguments: object) -> PullAnswer | None:
            found = answer(*arguments) if self._is_native else None  # type: ignore[arg-type]
            self.taken += found is not None
            return found

        made.answer = counted  # type: ignore[assignment]
        send, ask = pulls.planned._send, pulls.planned._answer

        def count_sent(*arguments: Any) -> None:
            self.planned += 1
            self.prefetched += 1
            send(*arguments)

        def count_asked(*arguments: Any) -> PullAnswer | None:
            answer = ask(*arguments)
            self.prefetched -= answer is not None
            return answer

        pulls.planned._send = count_sent
        pulls.planned._answer = count_asked  # type: ignore[method-assign, assignment]

    async def take(self, data: bytes) -> bytes:
        """The replies to these bytes."""
        channel, transport = connected(self.broker.listener, Written())
        try:
            channel.data_received(data)
            for _ in range(3):
                await asyncio.sleep(0)
            await self.broker.services.pulls.close()
        finally:
            channel.connection_lost(None)
        return transport.data

    def queue(self, number: int) -> ConsumeQueue:
        return self.broker.stores.messages.queue("T", number)

    async def answers(
        self,
        data: list[bytes],
        damages: list[Damage],
        limits: dict[str, str],
        trusted: int,
        walk: Sequence[bytes] = (),
    ) -> tuple[object, ...]:
        """The replies to pulls while some of the store is damaged, and the counts.

        Pulls of a walk are sent one after the other, half of them before the damage.
        """
        self.broker.settings.update(limits)
        begun = [await self.take(piece) for piece in walk[: len(walk) // 2]]
        kept = [
            (queue, queue.entries(index, 1), index)
            for queue in map(self.queue, (0, 1))
            for index in range(queue.readable)
        ]
        undo = [self._damage(damage, entry) for damage, entry in self._placed(damages)]
        if any(damage.change for damage in damages):  # as no readable entry is changed
            self.broker.services.pulls.planned.forget_prefetched()
        for number in (0, 1):
            self.queue(number).trusted = trusted
        try:
            # Once more, for plans that were made the first time.
            replies = begun + [await self.take(piece) for piece in walk[len(walk) // 2 :]]
            replies += [await self.take(piece) for piece in data for _ in range(2)]
        finally:
            self.broker.services.pulls.planned.forget_prefetched()
            for put_back in reversed(undo):
                put_back()
            for queue, entry, index in kept:
                if queue.entries(index, 1) != entry:
                    queue.mend(index, entry)
        stats = self.broker.stats.counters
        groups = {
            key: tuple(getattr(one, name) for name in ("behind", "messages", "pulls", "size"))
            for key, one in stats.groups.items()
        }
        totals = stats.found, stats.missed, stats.transferred
        return replies, groups, totals, self.broker.stores.offsets.table

    def _placed(self, damages: list[Damage]) -> list[tuple[Damage, tuple[int, int, int]]]:
        """Each with its entry as it was before the first: a changed entry may point nowhere."""
        placed = []
        for damage in damages:
            entry = self.queue(damage.queue).entry(damage.index)
            assert entry is not None
            placed.append((damage, entry))
        return placed

    def _damage(self, damage: Damage, entry: tuple[int, int, int]) -> Callable[[], object]:
        if damage.change is not None:
            changed = struct.pack(">qiq", *damage.change(entry))
            self.queue(damage.queue).mend(damage.index, changed)
            return lambda: None
        file = self.broker.stores.messages.log.file_at(entry[0])
        assert file is not None
        position = entry[0] - file.start + damage.record_at
        before = file.read(position, len(damage.raw))
        file.write(damage.raw, position)
        return lambda: file.write(before, position)


class Pair:
    """Two brokers, one of which uses its native path."""

    def __init__(self, root: Path) -> None:
        self.brokers = [OneBroker(root / str(native), native) for native in (True, False)]
        self._runner = asyncio.Runner()
        for broker in self.brokers:
            broker._root.mkdir(parents=True)
            self._runner.run(broker.start())

    def compare(self, *what: object) -> None:
        ours, theirs = (self._runner.run(broker.answers(*what)) for broker in self.brokers)  # type: ignore[arg-type]
        assert ours == theirs

    def close(self) -> None:
        for broker in self.brokers:
            self._runner.run(broker.broker.__aexit__())
        self._runner.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.lists(BUFFERS, min_size=1, max_size=4),
    damages=DAMAGES,
    limits=LIMITS,
    trusted=st.sampled_from([0, 0, 20, MESSAGES]),
    walk=WALKS,
)
def _compare(
    pairs: list[Pair],
    root: Path,
    data: list[bytes],
    damages: list[Damage],
    limits: dict[str, str],
    trusted: int,
    walk: list[bytes],
) -> None:
    if not pairs:
        pairs.append(Pair(root / str(len(list(root.iterdir())))))
    try:
        pairs[0].compare(data, damages, limits, trusted, walk)
    except BaseException:
        pairs.pop().close()  # they differ from now on
        raise


def test_any_pulls_of_any_store_are_answered_and_counted_as_by_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "milliseconds", lambda: NOW)
    pairs: list[Pair] = []
    try:
        _compare(pairs, tmp_path)
        one = pairs[0].brokers[0]  # about 100 of those drawn at random
        assert one.taken > 10 and one.prefetched > 10
    finally:
        for pair in pairs:
            pair.close()


EACH_DAMAGE: list[list[Damage]] = [
    [],
    *([Damage(queue, 12, change)] for queue in (0, 1) for change in CHANGES),
    *(
        [Damage(queue, 12, record_at=at, raw=b"\x05")]
        for queue in (0, 1)
        for at in (3, 7, 15, 20, 27)
    ),
    [Damage(0, 12, lambda entry: (-1, *entry[1:])), Damage(0, 12, record_at=3, raw=b"\x05")],
]


def _plain_pull(queue: str, offset: int, expression: str, most: int) -> bytes:
    fields = {"queueId": queue, "queueOffset": str(offset), "maxMsgNums": str(most)}
    kind = "SQL92" if " " in expression else "TAG"
    read(expression)
    fields |= {"subscription": expression, "expressionType": kind}
    return encode(Command(RequestCode.PULL_MESSAGE, PULL | fields, opaque=5))


def test_pulls_from_each_offset_with_each_damage_are_answered_as_by_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "milliseconds", lambda: NOW)
    usual = {
        "maxTransferCountOnMessageInMemory": "32",
        "maxTransferBytesOnMessageInMemory": "262144",
    }
    pair = Pair(tmp_path)
    try:
        native_one, _ = pair.brokers
        everywhere = b"".join(
            _plain_pull(queue, offset, expression, most)
            for queue in "01"
            for offset in range(MESSAGES + 1)
            for expression, most in (
                *(("*", 32), ("a", 32), ("b||é", 9), ("nobody's", 3)),
                *(("TAGS = 'a'", 32), ("TAGS <> 'a'", 9), ("TAGS IS NULL", 3)),
            )
        )
        sizes = [entry[1] for number in (0, 1) if (entry := native_one.queue(0).entry(number))]
        for most in (262144, sum(sizes), sum(sizes) - 1):
            limits = usual | {"maxTransferBytesOnMessageInMemory": str(most)}
            pair.compare([everywhere], [], limits, 0)
        assert native_one.planned > MESSAGES
        around = [
            _plain_pull(queue, offset, expression, most)
            for queue in "01"
            for offset, most in ((0, 32), (9, 3), (12, 5), (10, 3))
            for expression in ("*", "a", "b||é", "TAGS = 'a'", "TAGS <> 'a'", "TAGS IS NULL")
        ]
        for damages in EACH_DAMAGE:
            for trusted in (0, MESSAGES):
                pair.compare(around, damages, usual, trusted)
            for queue in "01":
                pair.compare([], damages, usual, 0, walked(queue, 0, 2))
        assert native_one.prefetched > MESSAGES
    finally:
        pair.close()


def test_a_pull_by_a_filter_is_answered_natively(tmp_path: Path) -> None:
    async def main() -> None:
        broker = OneBroker(tmp_path, True)
        await broker.start()
        taken = broker.taken
        text = read("TAGS = 'a'")
        fields = PULL | {"queueId": "1", "expressionType": "SQL92", "subscription": text}
        (reply,) = CommandReader().receive(await broker.take(encode(Command(11, fields))))
        assert (reply.code, broker.taken) == (ResponseCode.SUCCESS, taken + 1)
        found = decode_records(reply.body)
        assert len(found) >= 10 and {one.tags for one in found} == {"a"}
        await broker.broker.__aexit__()

    asyncio.run(main())


def test_after_a_native_failure_pulls_are_answered_by_python(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        pulls = broker.services.pulls
        await broker.put(b"m0", b"m1")
        assert pulls.native.is_taken
        broker.queue.queue_id = 1 << 40  # more than a record holds
        reply = await pull(peer, request(0))
        # none of the records is of this queue
        assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert not pulls.native.is_taken
        broker.queue.queue_id = 0
        assert (await pull(peer, request(0))).code == ResponseCode.SUCCESS
        assert not pulls.native.is_taken

    with caplog.at_level(logging.ERROR):
        serve(tmp_path, script)
    assert caplog.text.count("pulls stay in Python") == 1


def test_a_log_file_shorter_than_stated_is_not_read_natively() -> None:
    assert native is not None
    pieces = [b""] * 5
    path = native.PullPath(pieces, pieces)
    entry = struct.pack(">qiq", 0, 100, 0)
    for written in (101, 1 << 62):
        part = memoryview(bytes(100)), written, 0
        assert path.answer(entry, 0, 0, ((), None), (32, 1000), part, (0, 1), 1) is None
