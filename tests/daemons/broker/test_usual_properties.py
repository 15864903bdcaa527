"""Properties parsed by a pattern: the same result as from the complete parser."""

from hypothesis import example, given
from hypothesis import strategies as st

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.index.index import key_hash
from mq.daemons.broker.store.log.records import keys_of
from mq.daemons.broker.usual_properties import (
    _MOST_NAMES,
    _MOST_TAGS,
    _OFTEN,
    Read,
    UsualProperties,
)
from mq.protocol.properties import BROKERS_OWN, MAX_LENGTH, PropertyKey, decode, encode
from mq.protocol.tags import tags_code

ADDED = "CLUSTER\x01C"
JAVA = "KEYS\x01k1 k2\x02UNIQ_KEY\x01ABC\x02WAIT\x01true\x02TAGS\x01TagA"
NAMES = st.sampled_from(
    [
        "KEYS",
        "TAGS",
        "UNIQ_KEY",
        "WAIT",
        "a",
        "é.*",
        "DELAY",
        "TRAN_MSG",
        "TIMER_DELAY_MS",
        "POP_CK",
    ]
)
VALUES = st.text("k 1é\x00\n", max_size=3) | st.sampled_from(["true", "false", "\x01", "\x02"])
SEGMENTS = st.lists(
    st.tuples(NAMES, st.sampled_from(["\x01", "\x01", "\x01", ""]), VALUES).map("".join),
    min_size=1,
    max_size=6,
)


def read_with_care(text: str, topic: str) -> Read:
    properties = decode(text)
    code = tags_code(properties.get(PropertyKey.TAGS))
    hashes = [key_hash(topic, key) for key in keys_of(properties)]
    promptly = properties.pop(PropertyKey.WAIT_STORE, "") == "false"
    raw = f"{encode(properties)}\x02{ADDED}".encode()
    return layout.SHORT.pack(len(raw)) + raw, code, hashes, promptly


def read_often(text: str, usual: UsualProperties | None = None) -> Read | None:
    usual = usual or UsualProperties(ADDED)
    for _ in range(_OFTEN):
        found = usual.read(text, "T")
    return found


@given(SEGMENTS, st.sampled_from(["", "\x02"]))
@example(JAVA.split("\x02"), "")
@example(JAVA.split("\x02"), "\x02")
@example(["WAIT\x01false"], "")
@example(["WAIT\x01false", "a\x011"], "")
@example(["a\x011", "WAIT\x01false"], "\x02")
@example(["a\x01WAIT", "WAIT\x01WAIT", "KEYS\x01WAIT"], "")
def test_the_pattern_gives_the_result_of_the_complete_parser(segments: list[str], end: str) -> None:
    text = "\x02".join(segments) + end
    found = read_often(text)
    if found is not None:
        assert found == read_with_care(text, "T")
        assert BROKERS_OWN.isdisjoint(decode(text))


def test_frequent_names_are_parsed_by_a_pattern_despite_others_in_between() -> None:
    usual = UsualProperties(ADDED)
    assert usual.read(JAVA, "T") is None
    read_often(JAVA, usual)
    read_often("a\x01b", usual)
    for text in (JAVA, "a\x01c", JAVA.replace("k1", "k3"), JAVA.replace("true", "false")):
        assert usual.read(text, "T") == read_with_care(text, "T")


def test_properties_with_effects_are_never_parsed_by_a_pattern() -> None:
    usual = UsualProperties(ADDED)
    read_often(JAVA, usual)
    for text in (
        "DELAY\x013",
        "TRAN_MSG\x01true",
        "TIMER_DELIVER_MS\x011",
        *(f"{name}\x01x" for name in BROKERS_OWN),
        "a\x01b\x02a\x01c",
        "a\x01b\x01c",
        "a",
        "a\x01",
        "\x01b",
        "a\x01b\x02\x02",
        "\x02a\x01b",
    ):
        assert read_often(text, usual) is None, text
        assert read_often(f"{JAVA}\x02{text}", usual) is None, text


def test_properties_too_long_for_a_record_are_left_to_the_complete_parser() -> None:
    usual = UsualProperties(ADDED)
    longest = MAX_LENGTH - len(f"\x02{ADDED}") - len("a\x01")
    found = read_often("a\x01" + longest * "v", usual)
    assert found is not None and len(found[0]) == 2 + MAX_LENGTH
    assert usual.read("a\x01" + (longest + 1) * "v", "T") is None


def test_names_and_tags_invented_by_peers_are_not_all_kept() -> None:
    usual = UsualProperties(ADDED)
    for number in range(3 * _MOST_NAMES):
        usual.read(f"n{number}\x01x", "T")
        read_often(f"m{number % (2 * _MOST_NAMES)}\x01x", usual)
    read_often("TAGS\x01A", usual)
    for number in range(3000):
        usual.read(f"TAGS\x01{number}", "T")
    assert len(usual._shapes) <= _MOST_NAMES
    assert len(usual._seen) <= _MOST_NAMES
    assert len(usual._codes) <= _MOST_TAGS
