import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.tags import TagExpression, java_hash, tags_code


def horner(text: str) -> int:
    """String.hashCode as its documentation defines it."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + units[i] * 256 + units[i + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_java_hash_of_known_texts(text: str, value: int) -> None:
    assert java_hash(text) == value


@pytest.mark.parametrize("length", [511, 512, 513, 1024, 1025, 3000])
@pytest.mark.parametrize("character", ["x", "ß", "消", "😀"])
def test_java_hash_of_long_texts(character: str, length: int) -> None:
    assert java_hash(character * length) == horner(character * length)


@given(st.text(st.characters(exclude_categories=())))
def test_java_hash_is_that_of_java(text: str) -> None:
    assert java_hash(text) == horner(text)


def test_tags_code_of_no_tag_is_zero() -> None:
    assert tags_code(None) == tags_code("") == 0
    assert tags_code("TagA") == 2598919


def test_expression_lists_tags_between_bars() -> None:
    wanted = TagExpression.parse(" TagA || TagB||TagA ||")
    assert wanted.tags == ("TagA", "TagB")
    assert wanted.codes == {2598919, 2598920}
    assert wanted.matches_code(2598919) and not wanted.matches_code(0)
    assert wanted.matches("TagB") and not wanted.matches("TagC") and not wanted.matches(None)


@pytest.mark.parametrize("text", [None, "", "*", " || "])
def test_expression_for_all_matches_everything(text: str | None) -> None:
    wanted = TagExpression.parse(text)
    assert not wanted.codes
    assert wanted.matches_code(0) and wanted.matches_code(-5) and wanted.matches(None)


def test_expression_of_separators_only_is_refused() -> None:
    with pytest.raises(ValueError, match="names no tag"):
        TagExpression.parse("||||")
