"""Sends that the native path serves: stored and answered as by Python, byte for byte."""

import asyncio
import json
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mq.daemons.overload.backlog import LARGE
from mq.protocol.native import native
from tests.daemons.broker.damaged_frames import damaged
from tests.daemons.broker.native_pair import (
    FIELDS,
    HEADER,
    TO_EACH_QUEUE,
    OneBroker,
    Pair,
    alone,
    framed,
    in_binary,
    in_words,
    stand_still,
)

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")

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
# The source of a message from a snode, usually as it writes it.
USUAL_HOSTS = st.sampled_from(["10.0.0.1:4567", "127.0.0.1:0", "255.255.255.255:65535"])
HOSTS = USUAL_HOSTS | st.builds(
    "{}:{}".format,
    st.ip_addresses() | st.sampled_from(["1.2.3.04", "1.2.3.256", "1.2.3", "", "[::1]", "h", "٣"]),
    st.integers(-1, 65537) | st.sampled_from(["", "01", " 1", "+1", "x", "٣"]),
)
CHANGED_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "i": PROPERTIES | PROPERTIES.map(lambda text: text + "\x02"),
        **dict.fromkeys("abcdefghjklmnp", TEXTS),
        "o": TEXTS | HOSTS,
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
        **dict.fromkeys(("extra", "version", "remark", "language"), VALUES),
    },
)


# The header of a message in a batch, usually correct.
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


FORMS = ("letters", "letters", "words", "binary", "binary words")


@st.composite
def frames(draw: st.DrawFn, forms: Sequence[str] = FORMS) -> bytes:
    """A send, usually as a client writes it."""
    form = draw(st.sampled_from(forms))
    usual = draw(st.booleans())
    fields = {**FIELDS, "i": draw(PROPERTIES)} if usual else FIELDS | draw(CHANGED_FIELDS)
    header = {**HEADER, "extFields": fields} | ({} if usual else draw(CHANGED_HEADER))
    fields["e"] = draw(st.sampled_from(["0", "1", "2", fields["e"]]))
    if draw(st.integers(0, 3)) == 0:
        fields["m"] = "true"
        fields["i"] = draw(st.sampled_from(["", "WAIT\x01false\x02UNIQ_KEY\x01A", fields["i"]]))
    if draw(st.integers(0, 2)) == 0:
        fields = {**fields, "o": draw(USUAL_HOSTS if usual else HOSTS)}
        header["extFields"] = fields
    if not usual and draw(st.booleans()):
        fields.pop(draw(st.sampled_from(sorted(fields))))
    body = draw(batches() if fields.get("m") == "true" else st.binary(max_size=20))
    if "words" in form:
        header = in_words(header)
    if "binary" in form:
        return in_binary(header, body)
    text = json.dumps(
        header,
        ensure_ascii=draw(st.booleans()),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), ("\n,", "\t:")])),
        sort_keys=draw(st.booleans()),
    ).encode(errors="surrogatepass")
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


BUFFERS = damaged(frames(), (0, 0, 1, 3))


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_still(monkeypatch.setattr)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def _compare(pairs: list[Pair], root: Path, data: st.DataObject) -> None:
    if not pairs:
        pairs.append(Pair(root / str(len(list(root.iterdir())))))
    drawn = data.draw(st.lists(BUFFERS, min_size=1, max_size=4))
    relayed = data.draw(st.booleans())  # not below: drawing too much raises, and they do not differ
    try:
        pairs[0].compare([TO_EACH_QUEUE, *drawn], relayed)
    except BaseException:
        pairs.pop().close()  # they differ from now on
        raise


def _one_of_many(frame: bytes) -> bytes:
    """A send of a client that waits for each reply, recognised by its first bytes."""
    end = 8 + struct.unpack_from(">ii", frame)[1]
    header = {"code": 310} | json.loads(frame[8:end])
    header["code"] = header["code"] if header["code"] in (10, 320) else 310
    return framed(header, frame[end:], blanks=False)


SMALL_SENDS = (
    frames(("letters", "words")).map(_one_of_many).filter(lambda frame: len(frame) < LARGE)
)
TOGETHER = st.lists(st.tuples(st.integers(1, 5), SMALL_SENDS), min_size=1, max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def _compare_together(pairs: list[Pair], root: Path, data: st.DataObject) -> None:
    if not pairs:
        pairs.append(Pair(root / str(len(list(root.iterdir())))))
    drawn = data.draw(TOGETHER)
    try:
        pairs[0].compare_together([(0, TO_EACH_QUEUE), *drawn])
    except BaseException:
        pairs.pop().close()
        raise


def test_sends_of_many_connections_are_stored_and_answered_as_by_python(
    tmp_path: Path, stopped_clock: None
) -> None:
    pairs: list[Pair] = []
    try:
        _compare_together(pairs, tmp_path)
    finally:
        for pair in pairs:
            pair.close()
    for pair in pairs:
        ours, theirs = (broker.files() for broker in pair.brokers)
        assert ours == theirs and len(ours) > 2


def test_sends_of_many_connections_are_served_together(tmp_path: Path) -> None:
    async def main() -> None:
        broker = OneBroker(tmp_path, True)
        await broker.start()
        await broker.take_together([(0, TO_EACH_QUEUE)])
        taken = broker.together()
        sent = [(number, alone(e=str(number % 3))) for number in range(100)]
        _, (answers, *_, messages) = await broker.take_together([*sent, (1, alone())])
        assert isinstance(answers, list) and all(data for data, _ in answers)
        assert messages == 4 + 100 + 1
        assert taken == [64, 35]  # one opens the batch, one finds 64 of them there
        await broker.stop()

    asyncio.run(main())


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
        assert pair.brokers[0].taken > 0


def _with_raw(before: int, raw: bytes, behind: int, place: str = "i") -> bytes:
    """A send with these bytes in a field, at some position."""
    header = {**HEADER, "extFields": FIELDS | {place: f"{'a' * before}PLACE{'b' * behind}"}}
    text = json.dumps(header, separators=(",", ":")).encode().replace(b"PLACE", raw)
    return struct.pack(">ii", 4 + len(text), len(text)) + text


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("place", ["c", "n", "new"])
def test_strings_end_at_the_same_byte_as_by_python_in_every_position(
    tmp_path: Path, stopped_clock: None, place: str
) -> None:
    """They are read eight bytes at a time: each byte that cannot be in a string, or is above 127,
    or next to one of those, is put in each of these positions.
    """
    pair = Pair(tmp_path, {})  # one file of the log: none ends in between
    try:
        pair.compare([TO_EACH_QUEUE])
        for raw in (b'"', b"\\", b'\\"', b"\\n", b"\x1f", b"\x00", b"!", b"#", b"[", b"]", b" ",
                    b"\x7f", "é".encode(), "\u0120".encode(), b"\xa2", b"\xdc"):  # fmt: skip
            for before in range(18):
                for behind in (0, 1, 7, 9):
                    taken, frame = pair.brokers[0].taken, _with_raw(before, raw, behind, place)
                    pair.compare([frame])
                    assert (pair.brokers[0].taken > taken) is _is_json(frame[8:])
    finally:
        pair.close()


SEND = {**HEADER, "extFields": FIELDS}


@pytest.mark.parametrize(
    "frame",
    [framed(in_words(SEND)), in_binary(SEND), in_binary(in_words(SEND))],
    ids=["words", "binary", "binary words"],
)
def test_the_other_forms_of_a_header_are_served_natively_too(
    tmp_path: Path, stopped_clock: None, frame: bytes
) -> None:
    pair = Pair(tmp_path)
    try:
        pair.compare([TO_EACH_QUEUE])
        taken = pair.brokers[0].taken
        pair.compare([frame * 3])
        assert pair.brokers[0].taken == taken + 1
    finally:
        pair.close()


@pytest.mark.parametrize("form", ["words", "binary"])
def test_each_field_of_the_other_forms_is_checked_as_by_python(
    tmp_path: Path, stopped_clock: None, form: str
) -> None:
    """In the usual form some need no check once the queue is known."""
    pair = Pair(tmp_path, {})
    try:
        pair.compare([TO_EACH_QUEUE])
        for name in "abcdefghijklmn":
            fields = {key: text for key, text in FIELDS.items() if key != name}
            for value in ({}, *({name: text} for text in ("", "x", "2147483648", "TRUE", "5"))):
                header = {**HEADER, "extFields": fields | value}
                is_json = form == "words"
                pair.compare([framed(in_words(header)) if is_json else in_binary(header)])
    finally:
        pair.close()


@pytest.mark.parametrize(
    "names", [("n", "n"), ("new", "new"), ("ab", "ba"), ("Z", "Z"), ("é", "é"), ("~", "~")]
)
def test_a_repeated_name_is_left_to_python(
    tmp_path: Path, stopped_clock: None, names: tuple[str, str]
) -> None:
    pair = Pair(tmp_path)
    first, second = names
    try:
        pair.compare([TO_EACH_QUEUE])
        fields = json.dumps(FIELDS)[:-1] + f', "{first}": "1", "{second}": "2"}}'
        text = json.dumps(HEADER)[:-1] + f', "extFields": {fields}}}'
        header = text.encode()
        taken = pair.brokers[0].taken
        pair.compare([struct.pack(">ii", 4 + len(header), len(header)) + header])
        assert (pair.brokers[0].taken > taken) is (first != second)
    finally:
        pair.close()
