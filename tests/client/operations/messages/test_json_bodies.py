import json
from typing import Any

import pytest

from mq.client.operations.messages.json_bodies import MOST_JSON, dumps, exact, value_of


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a":1}', {"a": 1}),
        (b' { "a" : [1.50, 1E5, -0.0] }\n', {"a": [1.5, 1e5, -0.0]}),
        (b"12345678901234567890123", 12345678901234567890123),
        (b'{"n":[18446744073709551616]}', {"n": [1 << 64]}),
        (b"[" * 200 + b"]" * 200, json.loads("[" * 200 + "]" * 200)),
    ],
)
def test_a_value_is_what_the_body_says(body: bytes, value: Any) -> None:
    found = value_of(body)
    assert found == value
    assert json.loads(dumps(found)) == value


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        b"",
        b"NaN",
        b"[-Infinity]",
        b"1e400",
        b"[0.1000000000000000055511151231257827]",
        b"[1e-99999999999999999999999]",
        b"[-0]",
        b'{"a":1,"a":2}',
        b'[{"a":{"b":1,"b":1}}]',
        rb'"\ud800"',
        b'"\xff"',
        b"9" * 5000,
        b"[" * 300 + b"]" * 300,
        b"[" * 5000 + b"]" * 5000,
        b'"%b"' % bytes(MOST_JSON).replace(b"\0", b"a"),
    ],
    ids=lambda body: body[:20].decode(errors="replace"),
)
def test_what_would_be_another_one_after_it_was_written_is_no_value(body: bytes) -> None:
    with pytest.raises(ValueError):
        value_of(body)


def test_text_that_python_cannot_follow_is_refused_as_any_other() -> None:
    with pytest.raises(ValueError, match="too deep"):
        exact("[" * 100_000 + "]" * 100_000)
