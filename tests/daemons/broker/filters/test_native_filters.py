"""Filters on the native path: they accept the same messages as in Python."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mq.daemons.broker.filters import properties
from mq.daemons.broker.filters.errors import FilterSyntaxError
from mq.daemons.broker.filters.program import Programs, programs
from mq.daemons.broker.filters.properties import PropertyExpression
from mq.daemons.broker.filters.sql92 import Sql92Filter, read_filter
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.message_store import MessageStore
from mq.protocol.native import native
from tests.daemons.broker.filters.expressions import Writer
from tests.daemons.broker.store import stores

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")

MESSAGES = 300
NUMBERS = [
    *("0" * 50 + "5", "9" * 19, "9" * 400, "-" + "0" * 18 + "1", "5e99999999999999999999"),
    *(
        "1e-400",
        "4.9e-324",
        "0." + "0" * 400 + "1e401",
        "-NaN",
        "+Infinity",
        "Infinityf",
        "infinity",
    ),
    *(
        "5fd",
        "1e5D",
        ".",
        ".e5",
        "5.e5",
        "e5",
        "\x1f5\x00",
        "\xa05",
        "--5",
        "0x1p-1074",
        "0X.p1",
        "0x1",
    ),
]
# If hypothesis drew each of them, examples would be megabytes.
CHANCE = st.integers(0, (1 << 64) - 1).map(Random)
BYTES = st.sampled_from([0, 1, 2, 0x20, 0x35, 0x61, 0x80, 0xFF])


def filter_by(writer: Writer) -> Sql92Filter:
    while True:
        try:
            return read_filter(writer.condition(writer.random.randint(0, 4)))
        except FilterSyntaxError:
            continue


def properties_by(writer: Writer) -> bytes:
    """Stored properties, some with numbers at the limits of the type, some damaged."""
    raw = bytearray(writer.properties().encode())
    if writer.random.random() < 0.3:
        raw = bytearray(f"a\x01{writer.random.choice(NUMBERS)}\x02".encode()) + raw
    if raw and writer.random.random() < 0.2:
        raw[writer.random.randrange(len(raw))] = writer.random.choice([1, 2, 0x30, 0x61, 0xC3])
    return bytes(raw)


@given(CHANCE)
def test_a_filter_decides_any_properties_like_in_python(chance: Random) -> None:
    writer = Writer(chance)
    wanted = filter_by(writer)
    assert wanted.program is not None
    for _ in range(50):
        raw = properties_by(writer)
        answer = wanted.program.matches(raw)
        if answer is None:  # left to Python: digits of other scripts, hexadecimal numbers
            seen = f"{wanted!r}".encode() + raw
            assert not seen.isascii() or b"0x" in seen.lower(), (wanted, raw)
        else:
            assert answer is wanted.matches(raw), (wanted, raw)


@given(st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), st.data())
def test_a_number_in_text_is_what_it_is_in_python(symbol: str, data: st.DataObject) -> None:
    texts = st.from_regex(
        r"[ \x00]?[+-]?(NaN|Infinity|inf|[0-9]{0,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{0,4})?)"
        r"[fFdDlL]?",
        fullmatch=True,
    )
    drawn = data.draw(st.lists(texts | st.sampled_from(NUMBERS), min_size=20, max_size=20))
    for literal in ("5", "3000000000", "-5L", "2.5", "-1e300", "other", "9007199254740993"):
        for expression in (f"a {symbol} {literal}", f"{literal} {symbol} a"):
            wanted = read_filter(expression)
            for text in drawn:
                raw = f"other\x010.1\x02a\x01{text}".encode()
                answer = wanted.program.matches(raw)
                if answer is None:
                    assert not raw.isascii() or b"0x" in raw.lower(), (wanted, raw)
                else:
                    assert answer is wanted.matches(raw), (wanted, raw)


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"a='{number}'" for number in range(1300)),
        "NOT " * 98 + "(a = 'x')",
        "(" * 8000 + "a='x'" + ")" * 8000,
        "- " * 97 + "a = 5",
    ],
)
def test_the_longest_and_the_deepest_filter_are_there(text: str) -> None:
    wanted = read_filter(text)
    for raw in (b"a\x011299", b"a\x01x", b""):
        assert wanted.program.matches(raw) is wanted.matches(raw)


@pytest.mark.parametrize(
    "form",
    [
        (),
        ("like", ("property", "a")),
        ("=", ("property", "a")),
        ("=", ("property", "b"), ("text", b"x")),
        ("=", ("property", "a"), ("integer", 1 << 63)),
        ("and", True),
        (b"constant", True),
    ],
)
def test_an_invalid_form_of_a_filter_is_refused(form: tuple[Any, ...]) -> None:
    assert native is not None
    with pytest.raises((ValueError, TypeError, IndexError, OverflowError)):
        native.Filter(["a"], form)


def test_a_filter_nested_too_deep_is_refused() -> None:
    assert native is not None
    form: tuple[Any, ...] = ("constant", True)
    for _ in range(100_000):
        form = ("not", form)
    with pytest.raises(ValueError, match="nested too deep"):
        native.Filter([], form)
    while form[0] == "not":  # freed one after the other
        form = form[1]


# whole pulls --------------------------------------------------------------------------------------


class Stored:
    """A store of messages in two queues, in files of the log that are soon full."""

    def __init__(self, root: Path) -> None:
        self._runner = asyncio.Runner()
        config = stores.settings(root, log_file=16384, queue_file=20_000)
        self.store = MessageStore(lambda: config, stores.HOST)
        self._runner.run(self.store.__aenter__())
        self._runner.run(self._fill())
        self.queue = self.store.queue("T", 0)

    async def _fill(self) -> None:
        writer = Writer(Random(5))
        for number in range(MESSAGES):
            raw, body = properties_by(writer), b"x" * writer.random.randint(0, 90)
            # Usually several messages of a queue side by side.
            await stores.put(self.store, "T", number // 7 % 3 % 2, body, properties=raw)

    def select(
        self, wanted: Sql92Filter, is_native: bool, first: int, *limits: int
    ) -> tuple[object, ...]:
        source = wanted if is_native else None
        expression = PropertyExpression(
            self.store, wanted.matches, memory=wanted.memory, source=source
        )
        entries = self.queue.entries(first, MESSAGES)
        return expression.select(self.queue, first, entries, *limits)

    def change(self, physical: int, content: bytes) -> bytes:
        """Overwrite a part of the log; returns the old bytes."""
        file = self.store.log.file_at(physical)
        assert file is not None
        at = physical - file.start
        content = content[: file.size - at]
        before = bytes(file.view[at : at + len(content)])
        file.write(content, at)
        return before

    def close(self) -> None:
        self._runner.run(self.store.__aexit__())
        self._runner.close()


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    stored = Stored(tmp_path)
    try:
        yield stored
    finally:
        stored.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHANCE, st.data())
def test_pulls_get_the_same_replies_as_in_python(
    stored: Stored, chance: Random, data: st.DataObject
) -> None:
    wanted = filter_by(Writer(chance))
    places = st.integers(0, stored.queue.readable - 1)
    changes = []
    try:
        for index in data.draw(st.lists(places, max_size=4)):
            entry = stored.queue.entry(index)
            assert entry is not None
            within = data.draw(st.integers(0, 87) | st.integers(0, entry[1] - 1))
            spoilt = bytes(data.draw(st.lists(BYTES, min_size=1, max_size=8)))
            physical = entry[0] + within
            changes.append((physical, stored.change(physical, spoilt)))
        for _ in range(5):
            first = data.draw(places)
            limits = data.draw(
                st.tuples(
                    st.sampled_from([-(1 << 70), 0, 1, 5, 32, MESSAGES]),
                    st.sampled_from([1 << 62, 1000, 0, -5]),
                )
            )
            ours = stored.select(wanted, True, first, *limits)
            assert ours == stored.select(wanted, False, first, *limits)
    finally:
        for physical, before in reversed(changes):
            stored.change(physical, before)


def test_a_pull_is_served_natively_up_to_the_end_of_a_log_file(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def select(*arguments: Any) -> Any:
        found = native.select(*arguments)
        taken.append(found[3])
        return found

    monkeypatch.setattr(programs, "select", select)
    wanted = read_filter("a IS NOT NULL OR a IS NULL")
    *_, passed = stored.select(wanted, True, 0, MESSAGES)
    assert passed == stored.queue.readable > 150
    file = stored.store.log.files[0]
    inside = [entry for entry in layout.ENTRY.iter_unpack(stored.queue.entries(0, MESSAGES))]
    assert taken == [sum(physical < file.end for physical, _, _ in inside)]


def test_pulls_that_fail_natively_are_left_to_python_and_logged_once(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Programs(native)
    monkeypatch.setattr(properties, "programs", ours)
    wanted = read_filter("a = 'x' OR b = 'x'")
    stored.queue.queue_id = 1 << 70  # more than a record holds
    expected = stored.select(wanted, False, 0, 32)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert stored.select(wanted, True, 0, 32) == expected
    assert caplog.text.count("filters stay in Python") == 1
    assert ours.select is None
    assert ours.compile(["a"], ("constant", True)) is None
