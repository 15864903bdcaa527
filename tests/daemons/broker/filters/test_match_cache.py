from hypothesis import given
from hypothesis import strategies as st

from mq.daemons.broker.filters.match_cache import MatchCache
from mq.daemons.broker.filters.sql92 import read_filter

FILTER = "level > 5 AND kind = 'x' OR region IS NULL"
NAMES = ["level", "kind", "region", "other", "kin", "kindly"]
VALUES = st.sampled_from(["", "1", "7", "x", "y", "x=1", "kind", "\n", "ü"])
PROPERTIES = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6)


def stored(pairs: list[tuple[str, str]], end: str = "") -> bytes:
    return ("\x02".join(f"{name}\x01{value}" for name, value in pairs) + end).encode()


@given(st.lists(st.tuples(PROPERTIES, st.sampled_from(["", "\x02"])), max_size=40))
def test_it_decides_each_message_like_the_filter(
    messages: list[tuple[list[tuple[str, str]], str]],
) -> None:
    wanted = read_filter(FILTER)
    memory = MatchCache(["level", "kind", "region"], wanted.matches)
    for pairs, end in messages:
        raw = b"before" + stored(pairs, end) + b"behind"
        told = memory.decide(memoryview(raw), 6, len(raw) - 6)
        assert told is wanted.matches(stored(pairs, end)), (pairs, end)


@given(st.lists(st.binary(max_size=20).map(lambda raw: raw.replace(b"\0", b"\x01")), max_size=40))
def test_it_decides_damaged_properties_like_the_filter(raws: list[bytes]) -> None:
    wanted = read_filter("a = 'b' OR b IS NOT NULL")
    memory = MatchCache(["a", "b"], wanted.matches)
    for raw in (*raws, b"a\x01b\x02b\x01", *raws):
        assert memory.decide(raw, 0, len(raw)) is wanted.matches(raw), raw


def asked(names: list[str], raws: list[bytes]) -> list[bytes]:
    """The calls of a filter while these messages are decided."""
    questions: list[bytes] = []

    def matches(raw: bytes | memoryview) -> bool:
        questions.append(bytes(raw))
        return True

    memory = MatchCache(names, matches)
    assert all(memory.decide(raw, 0, len(raw)) for raw in raws)
    return questions


def test_the_filter_is_called_once_for_repeated_values() -> None:
    raws = [stored([("id", str(number)), ("kind", "ab"[number % 2])]) for number in range(100)]
    assert asked(["kind"], raws) == raws[:2]


def test_two_alternating_shapes_are_both_remembered() -> None:
    # The second is learned once it has been met often enough.
    short, long = stored([("kind", "a")]), stored([("kind", "a"), ("more", "b")])
    assert len(asked(["kind"], [short, long] * 1000)) <= 202


def test_long_and_new_values_call_the_filter_each_time_and_memory_is_limited() -> None:
    raws = [stored([("kind", "x" * 2000 + str(number))]) for number in range(10)] * 2
    assert asked(["kind"], raws) == raws
    raws = [stored([("kind", str(number))]) for number in range(1000)]
    memory = MatchCache(["kind"], lambda _: True)
    for raw in raws:
        memory.decide(raw, 0, len(raw))
    assert len(memory.known) <= 256


def test_new_names_do_not_accumulate() -> None:
    memory = MatchCache(["kind"], lambda _: False)
    for number in range(5000):
        raw = stored([(f"name{number}", "a"), ("kind", "b")])
        memory.decide(raw, 0, len(raw))
    assert len(memory._shapes) == 8
