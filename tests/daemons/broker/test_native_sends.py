"""Sends that the native path takes: stored and answered as by Python, byte for byte."""

import asyncio
import json
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mq.client.machine import chance, clock
from mq.daemons.channel import Channel
from mq.protocol.native import native
from tests.daemons.broker.harness import Harness

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")

NOW = 1_700_000_000_000
FIELDS = {
    **{"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1699999999999"},
    **{"h": "0", "i": "", "j": "0", "k": "false", "l": "16", "m": "false"},
}
HEADER = {"code": 310, "flag": 0, "language": "JAVA", "opaque": 7, "version": 409}

NUMBERS = st.integers(-(1 << 65), 1 << 65) | st.integers(-20, 20)
TEXTS = (
    st.text('aé\x00\x01\x02 %"\\/😀', max_size=4)
    | NUMBERS.map(str)
    | st.sampled_from(
        ["true", "false", "+1", " 1", "1_0", "01", "-0", "1e3", "", "T", "T2", "%RETRY%g"]
    )
)
PROPERTIES = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("KEYS", "TAGS", "UNIQ_KEY", "WAIT", "a", "é", "CLUSTER", "DELAY"),
                *("TIMER_D", "aTIMER_D", "REAL_QID", "\x00" * 600),
            ]
        ),
        st.sampled_from(["\x01", "\x01", "\x01", ""]),
        st.sampled_from(
            [
                *("k1 k2", "v", "true", "false", "é😀", "", "\x01", "\x00", "9"),
                *("TIMER_D", "\x00" * 600, "v" * 32740),
            ]
        ),
    ).map("".join),
    max_size=6,
).map("\x02".join)
CHANGED_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "i": PROPERTIES | PROPERTIES.map(lambda text: text + "\x02"),
        **dict.fromkeys("abcdefghjklmn", TEXTS),
        "new": TEXTS,
    },
)
VALUES = NUMBERS | TEXTS | st.none() | st.booleans() | st.floats(allow_nan=False)
CHANGED_HEADER = st.fixed_dictionaries(
    {},
    optional={
        "code": st.sampled_from([310, 320, 310, 105, "310", 310.0]),
        "flag": st.sampled_from([0, 2, 1, 3, -1, "0", 1 << 40]),
        "opaque": VALUES,
        "extra": VALUES,
    },
)


# What stands in the head of a message of a batch, mostly as it should be.
DAMAGE = st.sampled_from([0] * 20 + [1, -1, 1 << 20])


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """The body of a request that has several messages."""
    raw = b""
    for _ in range(draw(st.integers(0, 4))):
        body, text = draw(st.binary(max_size=20)), draw(PROPERTIES).encode()
        flag = draw(st.sampled_from([0, 5, -1]))
        size = 22 + len(body) + len(text) + draw(DAMAGE)
        raw += struct.pack(">iiiii", size, 0, 0, flag, len(body) + draw(DAMAGE)) + body
        raw += struct.pack(">H", len(text) & 0xFFFF) + text
    return raw[: len(raw) - draw(DAMAGE)]


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A send, mostly as a client writes it."""
    usual = draw(st.booleans())
    fields = {**FIELDS, "i": draw(PROPERTIES)} if usual else FIELDS | draw(CHANGED_FIELDS)
    header = {**HEADER, "extFields": fields} | ({} if usual else draw(CHANGED_HEADER))
    fields["e"] = draw(st.sampled_from(["0", "1", "2", fields["e"]]))
    if draw(st.integers(0, 3)) == 0:
        fields["m"] = "true"
        fields["i"] = draw(st.sampled_from(["", "WAIT\x01false\x02UNIQ_KEY\x01A", fields["i"]]))
    if not usual and draw(st.booleans()):
        fields.pop(draw(st.sampled_from(sorted(fields))))
    text = json.dumps(
        header,
        ensure_ascii=draw(st.booleans()),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), ("\n,", "\t:")])),
        sort_keys=draw(st.booleans()),
    ).encode(errors="surrogatepass")
    body = draw(batches() if fields.get("m") == "true" else st.binary(max_size=20))
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


@st.composite
def buffers(draw: st.DrawFn) -> bytes:
    """Frames, some of whose bytes have been changed."""
    data = bytearray(b"".join(draw(st.lists(frames(), min_size=1, max_size=6))))
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


def plain(**fields: str) -> bytes:
    """A send as clients write it."""
    text = json.dumps({**HEADER, "extFields": FIELDS | fields}).encode()
    return struct.pack(">ii", 4 + len(text), len(text)) + text


# The queues are known from here on, and what is sent to them may be taken natively.
TO_EACH_QUEUE = b"".join(plain(e=str(queue)) for queue in range(3)) + plain()

# Files roll in the middle of what comes; a slot of the index holds several keys.
SMALL = {"mappedFileSizeCommitLog": "20000", "maxHashSlotNum": "50", "maxIndexNum": "40"}


class Written:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""
        self.closed = False

    def write(self, data: bytes | memoryview) -> None:
        self.data += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 5555) if name in ("peername", "sockname") else default


class OneBroker:
    """A broker that takes bytes as they come, natively or not."""

    def __init__(self, root: Path, is_native: bool) -> None:
        self._root = root
        self._is_native = is_native
        self._seen = 0  # of the log
        self.taken = 0  # calls that took something

    async def start(self) -> None:
        self._broker = await Harness(self._root, SMALL).__aenter__()
        self._broker.listener.dispatcher.serve_bulk(self._bulk if self._is_native else None)

    def _bulk(self, data: bytes, position: int, channel: Channel) -> int:
        bulk = self._broker.services.sends.native.bulk
        assert bulk is not None
        behind = bulk(data, position, channel)
        self.taken += behind > position
        return behind

    async def stop(self) -> None:
        await self._broker.__aexit__()

    async def take(self, data: list[bytes]) -> tuple[object, ...]:
        """What is answered to what comes in so many pieces, and what has been stored of it."""
        listener, store = self._broker.listener, self._broker.stores.messages
        channel, transport = Channel(listener, listener.dispatcher), Written()
        channel.connection_made(transport)  # type: ignore[arg-type]  # as much of one as is needed
        try:
            for piece in data:
                if not transport.closed:
                    channel.data_received(piece)
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            channel.connection_lost(None)  # the listener waits for it when it closes
        stored, self._seen = self._log_from(self._seen), store.log.written
        ends = {(one.topic, one.queue_id): (one.readable, one.put_bytes) for one in store.queues}
        index = store.key_index
        assert index is not None
        items = [(file.count, file.used_slots, file.end_offset) for file in index.files]
        return transport.data, transport.closed, stored, ends, items, store.appender.messages

    def _log_from(self, start: int) -> bytes:
        log = self._broker.stores.messages.log
        return b"".join(
            bytes(file.view[max(0, start - file.start) : max(0, log.written - file.start)])
            for file in log.files
        )

    def files(self) -> dict[str, bytes]:
        """Queues and index, as they have been written."""
        store = self._root / "store"
        folders = (store / "consumequeue", store / "commitlog")
        found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
        index = [path.read_bytes() for path in sorted((store / "index").iterdir())]
        named = {str(path.relative_to(store)): path.read_bytes() for path in found}
        return named | {f"index {number}": data for number, data in enumerate(index)}


class Pair:
    """Two brokers, of which one takes sends natively, at a clock that stands."""

    def __init__(self, root: Path) -> None:
        self.brokers = [OneBroker(root / str(native), native) for native in (True, False)]
        self._runner = asyncio.Runner()
        for broker in self.brokers:
            broker._root.mkdir(parents=True)
            self._runner.run(broker.start())

    def compare(self, data: list[bytes]) -> None:
        ours, theirs = (self._runner.run(broker.take(data)) for broker in self.brokers)
        assert ours == theirs

    def close(self) -> None:
        for broker in self.brokers:
            self._runner.run(broker.stop())
        self._runner.close()


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "milliseconds", lambda: NOW)
    # Of the queues for a message that names none, both brokers choose the same.
    monkeypatch.setattr(chance, "randrange", lambda *bounds: bounds[-1] - 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def _compare(pairs: list[Pair], root: Path, data: st.DataObject) -> None:
    if not pairs:
        pairs.append(Pair(root / str(len(list(root.iterdir())))))
    drawn = data.draw(st.lists(buffers(), min_size=1, max_size=4))
    try:
        pairs[0].compare([TO_EACH_QUEUE, *drawn])
    except BaseException:
        pairs.pop().close()  # they differ from now on
        raise


def test_any_bytes_are_stored_and_answered_as_by_python(
    tmp_path: Path, stopped_clock: None
) -> None:
    pairs: list[Pair] = []
    try:
        _compare(pairs, tmp_path)
    finally:
        for pair in pairs:
            pair.close()
    for pair in pairs:
        ours, theirs = (broker.files() for broker in pair.brokers)
        assert ours == theirs and len(ours) > 2
        assert pair.brokers[0].taken > 50
