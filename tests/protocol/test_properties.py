import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol import properties
from mq.protocol.properties import RESERVED, PropertyKey


def test_a_map_is_written_without_a_separator_at_its_end() -> None:
    assert properties.encode({"a": "1", "KEYS": "k1 k2"}) == "a\x011\x02KEYS\x01k1 k2"
    assert properties.encode({}) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a\x011", {"a": "1"}),
        ("a\x011\x02", {"a": "1"}),  # 5.x keeps the last separator
        ("\x02\x02a\x011\x02\x02", {"a": "1"}),
        ("a\x011\x02a\x012", {"a": "2"}),
        ("a\x01", {}),
        ("\x01b", {}),
        ("no separator\x02a\x011", {"a": "1"}),
        ("a\x01b\x01c", {"a": "b\x01c"}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert properties.decode(text) == expected


plain_text = st.text(st.characters(exclude_characters="\x01\x02"), min_size=1)


@given(st.dictionaries(plain_text, plain_text))
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    assert properties.decode(properties.encode(values)) == values


def test_reserved_names_are_those_of_java() -> None:
    assert {"KEYS", "TAGS", "UNIQ_KEY", "DELAY", "TIMER_DELAY_MS"} <= RESERVED
    assert PropertyKey.INNER_MULTI_DISPATCH not in RESERVED
    assert PropertyKey.CHECK_IMMUNITY_TIME not in RESERVED
    assert len(RESERVED) == 50
