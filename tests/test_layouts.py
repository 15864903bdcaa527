"""A layout is defined once: records, field keys of a header, options."""

import re
from pathlib import Path

import pytest

from tests.source_tree import ALLOWED, ROOT, sources

LAID_OUT = {
    # mq.protocol.headers.send.Letter
    "a field of a send by its bare key": re.compile(r"(?:\.get\(|fields\[)\"[a-p]\"[\]),]"),
    # mq.protocol.record.AT
    "a position in a record as a bare number": re.compile(r"\bpositions \+ \d|buffer, at \+ \d"),
    # mq.protocol.host.pack_address and unpack_address
    "the port of a packed address": re.compile(r"\[-4:\]"),
    # mq.protocol.frame.header_start
    "the start of a header": re.compile(re.escape('{"code":')),
    # mq.cli.parameters
    "an option that is declared there": re.compile(
        r"Option\(\s*\"-[tgbc]\",\s*\"--(?:topic|group|brokerAddr|clusterName)\",\s*metavar="
        r"\"(?:TOPIC|GROUP|HOST:PORT|CLUSTER)\",\s*help=\""
    ),
}
WHERE = {"protocol/frame.py"}


def texts() -> dict[str, str]:
    found = {
        str(source.relative_to(ROOT)): source.read_text("utf-8")
        for part in ALLOWED
        for source in sources(part)
    }
    assert WHERE < found.keys()
    return found


@pytest.mark.parametrize("what", LAID_OUT)
def test_a_layout_is_not_repeated_elsewhere(what: str) -> None:
    pattern = LAID_OUT[what]
    again = {
        Path(name): text.count("\n", 0, found.start()) + 1
        for name, text in texts().items()
        if name not in WHERE
        for found in pattern.finditer(text)
    }
    assert again == {}


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a field of a send by its bare key", 'fields.get("b", "")'),
        ("a field of a send by its bare key", 'fields["e"]'),
        ("a position in a record as a bare number", "records.positions + 48"),
        ("the port of a packed address", 'int.from_bytes(raw[-4:], "big")'),
        ("the start of a header", "b'{\"code\":%d,'"),
        (
            "an option that is declared there",
            'typer.Option(\n"-c", "--clusterName", metavar="CLUSTER", help="Only there.")',
        ),
    ],
)
def test_a_repeated_layout_is_found(what: str, text: str) -> None:
    assert LAID_OUT[what].search(text)
