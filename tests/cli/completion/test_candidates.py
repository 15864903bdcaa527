"""The candidates for a line, from the table of options."""

import io

import pytest

from mq.cli.completion.candidates import candidates
from mq.cli.runtime.env import Environment


@pytest.mark.parametrize(
    ("line", "kind", "prefix", "some"),
    [
        ("topicRoute --acl-file=/et", "files", "--acl-file=", ()),
        ("store verify ", "directories", "", ()),
        ("clusterList -oj", "values", "-o", ("json",)),
        ("topicRoute --timeout ", "", "", ()),
        ("topicRoute --list --li", "options", "", ("--columns=",)),
        ("topicRoute T ", "options", "", ("--list",)),
        ("topicRoute T U", "", "", ()),
        ("spark submit cou", "names", "", ("count",)),
    ],
)
def test_a_line_has_candidates(line: str, kind: str, prefix: str, some: tuple[str, ...]) -> None:
    stream = io.StringIO()
    environment = Environment(stdin=stream, stdout=stream, stderr=stream, variables={})
    found = candidates(line.split(" "), environment)
    assert (found.kind, found.prefix) == (kind, prefix)
    assert {*some} <= {text for text, _ in found.rows}


def test_an_option_that_is_given_is_not_a_candidate() -> None:
    stream = io.StringIO()
    environment = Environment(stdin=stream, stdout=stream, stderr=stream, variables={})
    found = candidates(["topicRoute", "-l", "-"], environment)
    assert not {"-l", "--list"} & {text for text, _ in found.rows}
