"""The wording of docstrings, comments, strings and documents, and the names of things."""

import pytest

from tests import prose


@pytest.fixture(scope="module")
def counts() -> list[prose.Count]:
    return prose.counts(prose.tracked_files())


def test_the_tree_is_worded_plainly(counts: list[prose.Count]) -> None:
    limit, _ = prose.limits()
    assert prose.per_thousand(counts) <= limit, _hits(counts)


def test_each_folder_is_worded_plainly(counts: list[prose.Count]) -> None:
    _, limit = prose.limits()
    for folder, found in prose.by_folder(counts).items():
        assert prose.per_thousand(found) <= limit, f"{folder}: more than {limit}{_hits(found)}"


def test_no_name_is_one_that_the_glossary_replaces(counts: list[prose.Count]) -> None:
    banned = [str(hit) for count in counts for hit in count.hits if "banned" in hit.plainer]
    assert not banned, "\n".join(banned)


def test_a_hit_has_its_line_and_a_plainer_wording() -> None:
    (hit,) = prose.hits_of("docs/x.md", "One line.\nIt is no queue.\n")
    assert str(hit) == "docs/x.md:2: It is no queue.  (is no: is not a, has no)"


@pytest.mark.parametrize(
    "text",
    ["A user who reads.", "It is behind a load balancer.", "`what was told`", "It is no longer."],
)
def test_good_english_is_no_hit(text: str) -> None:
    assert not prose.hits_of("docs/x.md", text)


def test_code_is_read_in_docstrings_comments_and_strings() -> None:
    text = 'X = 1  # told\n\n\ndef f():\n    """Who asks it."""\n    return "in vain it goes on"\n'
    lines = [hit.line for hit in prose.hits_of("a.py", text)]
    assert sorted(lines) == [1, 5, 6, 6]


def _hits(found: list[prose.Count]) -> str:
    lines = [str(hit) for count in found for hit in count.hits]
    return "\n" + "\n".join(lines[:200])
