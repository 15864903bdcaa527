import contextlib
import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol import fastjson, fastjson_tolerant
from mq.protocol.fastjson import MalformedJson, ObjectKey, dumps, dumps_pretty, loads

QUEUE = ObjectKey((("brokerName", "b"), ("queueId", 0), ("topic", "t")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"a":[1,2.5,true,null,"x"]}', {"a": [1, 2.5, True, None, "x"]}),
        (b"{0:12,1:9}", {"0": 12, "1": 9}),
        (b'{"t@g":{0:25, -1 : 24}}', {"t@g": {"0": 25, "-1": 24}}),
        (b'{"text":"{0:1,\\"2:","n":{3:"{4:5"}}', {"text": '{0:1,"2:', "n": {"3": "{4:5"}}),
        (b'{{"brokerName":"b","queueId":0,"topic":"t"}:5}', {QUEUE: 5}),
        (b'{ {"brokerName":"b","queueId":0,"topic":"t"} : {1:[]} }', {QUEUE: {"1": []}}),
        (b"{'a':'it\\'s',b:1}", {"a": "it's", "b": 1}),
        (
            b'{{"a":1}:"\\u00e4\\n\\x41\\ud83d\\ude00\\ud83d"}',
            {ObjectKey((("a", 1),)): "ä\nA😀\ufffd"},
        ),
        (b'{{"a":1}:[1.5e3,-2,NaN]}', {ObjectKey((("a", 1),)): [1500.0, -2, None]}),
    ],
)
def test_what_fastjson_writes_is_read(text: bytes, expected: Any) -> None:
    assert loads(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a":1',
        b"{0:1",
        b"[1,]",
        b"{{}:}",
        b'"abc',
        b"nul",
        b"\xff",
        b"1" * 5000,
        b"{0:1}x",
    ],
)
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedJson, match=r"at character \d+: .* expected"):
        loads(text)


def test_deep_nesting_is_refused_before_it_exhausts_the_stack() -> None:
    with pytest.raises(MalformedJson, match="deeper than 64"):
        loads(b"{0:" * 5000)


def test_a_text_without_end_is_read_in_linear_time() -> None:
    with pytest.raises(MalformedJson):
        loads(b'{"' + b'\\"' * 500_000)


def test_references_become_copies() -> None:
    value = loads(b'{"a":[{"x":1,"l":[2]}],"b":{"$ref":"$.a[0]"},"c":{"$ref":"$[\\"a\\"][0]"}}')
    assert value["b"] == value["c"] == {"x": 1, "l": [2]}
    assert value["b"] is not value["a"][0]


@pytest.mark.parametrize("path", ["$", "$.a", "..", "@", "$.nothing.here", "$.a[99999999999999]"])
def test_references_to_nothing_small_become_null(path: str) -> None:
    assert loads(b'{"a":[[1]],"b":{"$ref":"%s"}}' % path.encode())["b"] is None


def test_too_many_references_are_refused() -> None:
    with pytest.raises(MalformedJson, match="more than 1000 references"):
        loads(b'{"a":{},"b":[' + b'{"$ref":"$.a"},' * 1001 + b"1]}")


def test_integer_keys_are_written_without_quotes() -> None:
    value = {"b": {0: "x", 1: [None, True]}, "q": {QUEUE: 5}}
    assert dumps(value) == (
        b'{"b":{0:"x",1:[null,true]},"q":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}'
    )


def test_standard_json_has_all_keys_in_quotes() -> None:
    text = dumps({"b": {0: "x"}, "q": {QUEUE: 5}}, standard=True)
    assert orjson.loads(text) == {
        "b": {"0": "x"},
        "q": {'{"brokerName":"b","queueId":0,"topic":"t"}': 5},
    }


def test_keys_of_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="a key of JSON"):
        dumps({1.5: 1})


def test_pretty_form_is_that_of_the_state_files() -> None:
    value = {"offsetTable": {"%RETRY%g1@g1": {0: 0}, "TopicTest@g1": {0: 25, 1: 24, 2: 25, 3: 26}}}
    assert dumps_pretty(value) == (
        b'{\n\t"offsetTable":{\n\t\t"%RETRY%g1@g1":{0:0\n\t\t},\n'
        b'\t\t"TopicTest@g1":{0:25,1:24,2:25,3:26\n\t\t}\n\t}\n}'
    )


def test_pretty_form_has_lists_on_lines_and_tuples_in_one() -> None:
    assert dumps_pretty({"l": [1, 2], "t": (1, 2), "e": [], "o": {}}) == (
        b'{\n\t"l":[\n\t\t1,\n\t\t2\n\t],\n\t"t":[1,2],\n\t"e":[],\n\t"o":{}\n}'
    )


keys = st.text() | st.integers(-(2**31), 2**31 - 1)
plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
values = st.recursive(plain, lambda v: st.lists(v) | st.dictionaries(keys, v), max_leaves=20)


def with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): with_text_keys(item) for key, item in value.items()}
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value


def has_twins(value: Any) -> bool:
    """Whether a dict has both 1 and "1" as keys, or what looks like a reference."""
    if isinstance(value, dict):
        texts = {str(key) for key in value}
        return len(texts) < len(value) or "$ref" in texts or any(map(has_twins, value.values()))
    return isinstance(value, list) and any(map(has_twins, value))


@given(values.filter(lambda value: not has_twins(value)))
def test_what_is_written_is_read_back(value: Any) -> None:
    expected = with_text_keys(value)
    assert loads(dumps(value)) == expected
    assert loads(dumps(value, standard=True)) == expected
    assert loads(dumps_pretty(value)) == expected


LONG = "x" * 9000  # so that the document is rewritten, not read character by character


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a':1,\"b\":'LONG'}", {"a": 1, "b": LONG}),
        ('{a:true,$b_1:NaN,"c":"LONG"}', {"a": True, "$b_1": None, "c": LONG}),
        ('{1 :2,-3:[4,5],"c":"LONG"}', {"1": 2, "-3": [4, 5], "c": LONG}),
        (
            '{"t":{{"b":"x,{y}","q":0}:5,{"b":"z","q":1} : {"n":[{"m":1},{"m":2}]}},"c":"LONG"}',
            {
                "t": {
                    ObjectKey((("b", "x,{y}"), ("q", 0))): 5,
                    ObjectKey((("b", "z"), ("q", 1))): {"n": [{"m": 1}, {"m": 2}]},
                },
                "c": LONG,
            },
        ),
        (
            "{'a\\'b':'\\x41\\ud800 \\ud83d\\ude00\t',\"c\":\"LONG\"}",
            {"a'b": "A\ufffd \U0001f600\t", "c": LONG},
        ),
        ('{a:"{1:2,\'x\':NaN}","c":"LONG"}', {"a": "{1:2,'x':NaN}", "c": LONG}),
    ],
)
def test_a_long_document_is_read_by_the_same_rules(text: str, value: object) -> None:
    text = text.replace("LONG", LONG)
    read = loads(text.encode())
    assert read == value
    assert fastjson_tolerant.Reader(text).read() == read


@pytest.mark.parametrize(
    "text",
    [
        "{'a':'LONG",
        '{a:"LONG',
        "{a:LONG}",
        '{{"a":{"b":1}}:1,"c":"LONG"}',
        "{a:1,,b:'LONG'}",
    ],
)
def test_a_long_document_that_is_broken_is_refused(text: str) -> None:
    with pytest.raises(MalformedJson):
        loads(text.replace("LONG", LONG).encode())


_SHORTER = 8


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda n: "{'k':1," + ",".join(f'"key-{i}":"value"' for i in range(n)) + "}", 24_000),
        (lambda n: "{'k':1," + ",".join(f"'key-{i}':'value'" for i in range(n)) + "}", 24_000),
        (lambda n: "{{'k':1}:1," + ",".join(f'{{"q":{i}}}:1' for i in range(n)) + "}", 16_000),
        (lambda n: "'" * n, 600_000),
        (lambda n: '{"' * n, 280_000),
        (lambda n: "{{'" * n, 200_000),
        (lambda n: ",{" * n, 280_000),
        (lambda n: ",{'a" * n, 120_000),
        (lambda n: ",{a,\\" * n, 120_000),
        (lambda n: ',{"\\' * n, 120_000),
        (lambda n: ",{a" * n + "}" * n, 160_000),
        (lambda n: "'\\" * n, 280_000),
        (lambda n: "{a " * n, 200_000),
        (lambda n: "{" + " " * n, 600_000),
        (lambda n: ("{" + " " * 1000) * n, 600),
        (lambda n: "{1" * n, 280_000),
        (lambda n: "{" + "1" * n, 600_000),
    ],
    ids=lambda case: case(8)[:16] if callable(case) else "",
)
def test_what_is_not_standard_takes_time_that_grows_with_its_length_only(
    make: Callable[[int], str], count: int
) -> None:
    """Eight times the text takes eight to eleven times as long, on any machine; if each part were
    checked again for each other, it would take 64 times as long.
    """
    shorter = min(_time_to_read(make(count // _SHORTER)) for _ in range(3))
    whole = make(count)
    # Once more where another process has taken the caches, or the core its speed.
    assert any(_time_to_read(whole) < 2.5 * _SHORTER * shorter for _ in range(3))


def _time_to_read(text: str) -> float:
    raw = text.encode()
    began = time.process_time()
    with contextlib.suppress(MalformedJson):
        loads(raw)
    return time.process_time() - began


def test_what_is_not_standard_and_very_long_is_refused() -> None:
    with pytest.raises(MalformedJson, match="8388608 are read"):
        loads(b"{'a':1" + b" " * fastjson.MAX_TOLERATED + b"}")
