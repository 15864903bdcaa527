"""JSON as fastjson 1.2 reads and writes it, which deviates from the standard.

fastjson writes integer keys of a map without quotes, `{0:12,1:9}`, and a map keyed by an object as
`{{"brokerName":"b","queueId":0,"topic":"t"}:5}`. If an object occurs twice, the second occurrence
may be `{"$ref":"$.path.to.the.first"}`.
"""

import re
from collections.abc import Iterator
from typing import Any

import orjson

from mq.protocol.fastjson_tolerant import MAX_DEPTH as MAX_DEPTH
from mq.protocol.fastjson_tolerant import MAX_TOLERATED as MAX_TOLERATED
from mq.protocol.fastjson_tolerant import MalformedJson as MalformedJson
from mq.protocol.fastjson_tolerant import ObjectKey as ObjectKey
from mq.protocol.fastjson_tolerant import loads_tolerant

# References are rare (fastjson writes one per object that occurs twice). Without these two limits a
# short document could expand to a huge one.
MAX_REFERENCES = 1000
MAX_REFERENCED_SIZE = 64
_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\[["']([^"']*)["']\]""")


def resolve_references(root: Any) -> Any:
    """Replace references by copies. One to a missing or large object becomes None."""
    left = MAX_REFERENCES
    pending = [root]
    while pending:
        node = pending.pop()
        if not isinstance(node, (dict, list)):
            continue
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            path = value.get("$ref") if isinstance(value, dict) and len(value) == 1 else None
            if isinstance(path, str):
                left -= 1
                if left < 0:
                    raise MalformedJson(f"more than {MAX_REFERENCES} references")
                node[key] = _copy_of_small(_follow(root, path))
            else:
                pending.append(value)
    return root


def _follow(root: Any, path: str) -> Any:
    if not path.startswith("$"):
        return None  # "@" and "..": the object itself or an enclosing one, which would be a cycle
    node = root
    for name, index, quoted in _STEP.findall(path[1:]):
        if isinstance(node, dict):
            node = node.get(name or quoted)
        elif isinstance(node, list) and index and int(index[:9]) < len(node):
            node = node[int(index[:9])]
        else:
            return None
    return node


def _copy_of_small(value: Any) -> Any:
    """Return a copy of an object of plain values and lists of plain values; None for anything
    else.
    """
    if not isinstance(value, dict) or len(value) > MAX_REFERENCED_SIZE:
        return None
    for item in value.values():
        if isinstance(item, dict) or (
            isinstance(item, list)
            and (len(item) > MAX_REFERENCED_SIZE or any(isinstance(i, (dict, list)) for i in item))
        ):
            return None
    return {key: list(v) if isinstance(v, list) else v for key, v in value.items()}


def loads(data: bytes | bytearray | memoryview) -> Any:
    """Parse JSON text in UTF-8.

    Keys of objects become text, quoted or not, except object keys, which become `ObjectKey`s.

    Raises:
        MalformedJson: the text cannot be read, or is nested deeper than MAX_DEPTH.
    """
    raw = bytes(data)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = loads_tolerant(raw)
    return resolve_references(value) if b'"$ref"' in raw else value


def dumps(value: Any, *, standard: bool = False) -> bytes:
    """Write compact JSON as fastjson does: integer keys without quotes, object keys as objects.

    Dicts may have keys of text, integers and ObjectKeys; keys keep their order. With `standard` the
    result is standard JSON, with every key in quotes (for peers that request it:
    GetRouteInfoRequestHeader.acceptStandardJsonOnly).

    Raises:
        TypeError: a value cannot be represented in JSON.
    """
    if type(value) is dict:
        members = [_key(k, standard) + b":" + dumps(v, standard=standard) for k, v in value.items()]
        return b"{" + b",".join(members) + b"}"
    if type(value) is list or type(value) is tuple:
        return b"[" + b",".join([dumps(item, standard=standard) for item in value]) + b"]"
    return orjson.dumps(value)


def dumps_pretty(value: Any, depth: int = 0) -> bytes:
    """Write JSON in fastjson's pretty format, which the broker uses for its state files.

    ``depth`` is the nesting level of the value in the text that the caller assembles. One tab per
    level, no space after a colon; integer keys have no line of their own (`MapSerializer.write`). A
    list has a line per item (`ListSerializer`), a tuple is written in one line, as Java writes
    arrays and sets (`CollectionCodec`).
    """
    return b"".join(_pretty(value, b"\n" + depth * b"\t"))


def _key(key: object, standard: bool) -> bytes:
    if type(key) is str:
        return orjson.dumps(key)
    if isinstance(key, ObjectKey):
        text = dumps(dict(key), standard=standard)
        return orjson.dumps(text.decode()) if standard else text
    if isinstance(key, int):
        return b'"%d"' % key if standard else b"%d" % key
    raise TypeError(f"a key of JSON is text, an integer or an ObjectKey, not {key!r}")


def _pretty(value: Any, newline: bytes) -> Iterator[bytes]:
    inner = newline + b"\t"
    if type(value) is dict and value:
        comma = b""
        yield b"{"
        for key, item in value.items():
            yield comma
            if type(key) is str:
                yield inner
            yield _key(key, False) + b":"
            yield from _pretty(item, inner)
            comma = b","
        yield newline + b"}"
    elif type(value) is list and value:
        comma = b"["
        for item in value:
            yield comma + inner
            yield from _pretty(item, inner)
            comma = b","
        yield newline + b"]"
    elif type(value) is tuple:
        comma = b""
        yield b"["
        for item in value:
            yield comma
            yield from _pretty(item, inner)
            comma = b","
        yield b"]"
    else:
        yield orjson.dumps(value)
