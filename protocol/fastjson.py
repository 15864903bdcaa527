"""JSON as fastjson 1.2 reads and writes it, which is not quite JSON.

fastjson writes integer keys of a map without quotes, `{0:12,1:9}`, and a map keyed by an object as
`{{"brokerName":"b","queueId":0,"topic":"t"}:5}`. Where one object occurs twice, the second time it
may write `{"$ref":"$.path.to.the.first"}`.
"""

import re
from collections.abc import Iterator
from typing import Any

import orjson

# Real documents are less than ten levels deep; a deeper one is meant to exhaust our stack.
MAX_DEPTH = 64
# Longer documents are read only if they are JSON by the standard. Ours and Java's largest with keys
# that are objects, offsets of tens of thousands of queues, have less.
MAX_TOLERATED = 8 * 1024 * 1024
# The reader that says where a document is broken takes 2 us for each character; longer documents
# are rewritten and read at once, in a tenth of that.
_READER_LIMIT = 8 * 1024
# References are rare (fastjson has one per object that occurs twice). Without these two limits a
# short document could stand for a huge one.
MAX_REFERENCES = 1000
MAX_REFERENCED_SIZE = 64


class MalformedJson(ValueError):
    """The text is not JSON, not even by fastjson's rules. Says where."""


class ObjectKey(tuple[tuple[str, Any], ...]):
    """A JSON object that is the key of a map: its (name, value) pairs, in their order."""

    __slots__ = ()


def loads(data: bytes | bytearray | memoryview) -> Any:
    """Parse JSON text in UTF-8.

    Keys of objects are always text, whether they were quoted or not, but for object keys, which are
    `ObjectKey`s.

    Raises:
        MalformedJson: the text cannot be read, or is nested deeper than MAX_DEPTH.
    """
    raw = bytes(data)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = _loads_tolerant(raw)
    return _resolve_references(value) if b'"$ref"' in raw else value


def dumps(value: Any, *, standard: bool = False) -> bytes:
    """Write compact JSON as fastjson does: integer keys without quotes, object keys as objects.

    Dicts may have keys of text, integers and ObjectKeys; keys keep their order. With `standard` the
    result is JSON proper, and every key is in quotes (for peers that ask for it:
    GetRouteInfoRequestHeader.acceptStandardJsonOnly).

    Raises:
        TypeError: a value that JSON has no form for.
    """
    if type(value) is dict:
        members = [_key(k, standard) + b":" + dumps(v, standard=standard) for k, v in value.items()]
        return b"{" + b",".join(members) + b"}"
    if type(value) is list or type(value) is tuple:
        return b"[" + b",".join([dumps(item, standard=standard) for item in value]) + b"]"
    return orjson.dumps(value)


def dumps_pretty(value: Any, depth: int = 0) -> bytes:
    """Write JSON as fastjson's pretty format, in which the broker keeps its state files.

    ``depth`` is the level at which the value stands in a text that the caller puts together.

    A tab per level, no space after a colon; integer keys have no line of their own
    (`MapSerializer.write`). A list has a line per item (`ListSerializer`), a tuple is written in
    one line, as Java writes arrays and sets (`CollectionCodec`).
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


# --- reading what orjson refuses ---

_BARE_INTEGER_KEY = re.compile(
    # Text, skipped whatever is in it. Without its end, too: else each quote of a text that never
    # ends would be tried as the start of one, in time that grows with the square of the length.
    rb'"[^"\\]*(?:\\.[^"\\]*)*"?'
    rb"|([{,]\s*)(-?\d+)(?=\s*:)",
    re.DOTALL,
)
_KEY_MARK = "\x00object key\x00"
# What `_loads_rewritten` looks at: texts, so that nothing is found in them, and what stands for a
# key or a value without quotes. No branch looks further than the next brace outside a text, and
# texts are passed as a whole: the time grows with the length only.
_NOT_STANDARD = re.compile(
    r""""[^"\\]*(?:\\.[^"\\]*)*"?"""
    r"""|'[^'\\]*(?:\\.[^'\\]*)*'?"""
    r"|(?P<before>[{,]\s*)(?P<key>"
    r"""\{[^{}"']*(?:(?:"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')[^{}"']*)*\}"""
    r"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[A-Za-z_$][\w$]*)(?=\s*:)"
    r"|(?P<word>[A-Za-z_$][\w$]*)",
    re.DOTALL,
)
_STANDARD_TEXT = re.compile(
    r'''"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"'''
)
_BLANKS = re.compile(r"[ \t\r\n]*")
_TEXT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"' r"|'[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_WORDS = {"true": True, "false": False, "null": None, "NaN": None}


def _loads_tolerant(raw: bytes) -> Any:
    if len(raw) > MAX_TOLERATED:
        raise MalformedJson(
            f"{len(raw)} bytes that are not JSON by the standard; {MAX_TOLERATED} are read"
        )
    quoted = _BARE_INTEGER_KEY.sub(_quote_key, raw)
    try:
        return orjson.loads(quoted)
    except orjson.JSONDecodeError:
        pass
    text = raw.decode("utf-8", "replace")
    return _Reader(text).read() if len(text) <= _READER_LIMIT else _loads_rewritten(text)


def _loads_rewritten(text: str) -> Any:
    """Rewrite what is not standard and have orjson read it: the way for what is long."""
    standard = _NOT_STANDARD.sub(_standardize, text)
    try:
        value = orjson.loads(standard)
    except orjson.JSONDecodeError as error:
        if "depth limit" in str(error):
            raise _too_deep() from None
        raise MalformedJson(f"neither JSON nor what fastjson writes: {error}") from None
    return _restore_keys(value)


def _standardize(match: re.Match[str]) -> str:
    whole = match[0]
    if whole[0] == '"':
        if len(whole) == 1 or whole[-1] != '"':
            raise MalformedJson(f"at character {match.start()}: the end of a text expected")
        # Control characters and fastjson's own escapes are what the standard forbids.
        return whole if _STANDARD_TEXT.fullmatch(whole) else _dumped(_unquoted(whole))
    if whole[0] == "'":
        if len(whole) == 1 or whole[-1] != "'":
            raise MalformedJson(f"at character {match.start()}: the end of a text expected")
        return _dumped(_unquoted(whole))
    if match["word"] is not None:
        return "null" if whole == "NaN" else whole
    before, key = match["before"], match["key"]
    if key[0] == "{":
        # The key becomes a text that holds it: `_restore_keys` finds it by its mark.
        plain = _Reader(key).read()
        if any(isinstance(value, (dict, list)) for value in plain.values()):
            raise MalformedJson(f"at character {match.start()}: an object of plain values as key")
        return before + _dumped(_KEY_MARK + orjson.dumps(plain).decode())
    return before + _dumped(key)


def _too_deep() -> MalformedJson:
    return MalformedJson(f"JSON nested deeper than {MAX_DEPTH} levels")


def _dumped(text: str) -> str:
    return orjson.dumps(text).decode()


def _unquoted(quoted: str) -> str:
    text = _ESCAPE.sub(_unescape, quoted[1:-1])
    # Two escapes may make one character; half of one stands for nothing.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _restore_keys(root: Any) -> Any:
    pending: list[tuple[Any, int]] = [(root, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise _too_deep()
        values = node
        if isinstance(node, dict):
            values = node.values()
            if any(key.startswith(_KEY_MARK) for key in node):
                members = list(node.items())
                node.clear()
                for key, value in members:
                    node[_restored(key)] = value
        for value in values:
            if isinstance(value, (dict, list)):
                pending.append((value, depth + 1))
    return root


def _restored(key: str) -> str | ObjectKey:
    if not key.startswith(_KEY_MARK):
        return key
    try:
        return ObjectKey(orjson.loads(key[len(_KEY_MARK) :]).items())
    except (orjson.JSONDecodeError, AttributeError):
        return key  # somebody's own text that begins so


def _quote_key(match: re.Match[bytes]) -> bytes:
    return match[0] if match[2] is None else b'%b"%b"' % (match[1], match[2])


class _Reader:
    """A reader by recursive descent: slow, for documents with object keys, and for broken ones."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0

    def read(self) -> Any:
        value = self._value()
        self._skip_blanks()
        if self.position != len(self.text):
            raise self._malformed("the end of the text")
        return value

    def _value(self) -> Any:
        start = self._peek()
        if start == "{":
            return self._object()
        if start == "[":
            return self._array()
        if start in "\"'" and start:
            return self._text()
        if match := _NUMBER.match(self.text, self.position):
            self.position = match.end()
            return self._number(match)
        if (match := _NAME.match(self.text, self.position)) and match[0] in _WORDS:
            self.position = match.end()
            return _WORDS[match[0]]
        raise self._malformed("a value")

    def _number(self, match: re.Match[str]) -> int | float:
        try:
            return float(match[0]) if match[1] or match[2] else int(match[0])
        except ValueError:  # more digits than int() takes
            raise self._malformed("a shorter number") from None

    def _object(self) -> dict[Any, Any]:
        members = {}
        self._open()
        if self._peek() != "}":
            while True:
                key = self._member_key()
                self._expect(":")
                members[key] = self._value()
                if self._peek() != ",":
                    break
                self.position += 1
        self._close("}")
        return members

    def _member_key(self) -> str | ObjectKey:
        start = self._peek()
        if start == "{":
            pairs = self._object().items()
            if any(isinstance(part, (dict, list)) for pair in pairs for part in pair):
                raise self._malformed("an object of plain values as key")
            return ObjectKey(pairs)
        if start in "\"'" and start:
            return self._text()
        match = _NUMBER.match(self.text, self.position) or _NAME.match(self.text, self.position)
        if match is None:
            raise self._malformed("a key")
        self.position = match.end()
        return match[0]

    def _array(self) -> list[Any]:
        items: list[Any] = []
        self._open()
        if self._peek() != "]":
            while True:
                items.append(self._value())
                if self._peek() != ",":
                    break
                self.position += 1
        self._close("]")
        return items

    def _text(self) -> str:
        match = _TEXT.match(self.text, self.position)
        if match is None:
            raise self._malformed("the end of a text")
        self.position = match.end()
        return _unquoted(match[0]) if "\\" in match[0] else match[0][1:-1]

    def _open(self) -> None:
        self.position += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _too_deep()

    def _close(self, bracket: str) -> None:
        self._expect(bracket)
        self.depth -= 1

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise self._malformed(repr(character))
        self.position += 1

    def _peek(self) -> str:
        self._skip_blanks()
        return self.text[self.position : self.position + 1]

    def _skip_blanks(self) -> None:
        match = _BLANKS.match(self.text, self.position)
        assert match is not None  # it matches nothing, too
        self.position = match.end()

    def _malformed(self, wanted: str) -> MalformedJson:
        found = self.text[self.position : self.position + 20]
        return MalformedJson(f"at character {self.position}: {wanted} expected, {found!r} found")


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, escape)


# --- references ---

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\[["']([^"']*)["']\]""")


def _resolve_references(root: Any) -> Any:
    """Put copies where references stand. One that leads nowhere, or to something large, is None."""
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
        return None  # "@" and "..": the object itself or one around it, which would be a cycle
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
    """A copy of an object of plain values and lists of plain values; None for anything else."""
    if not isinstance(value, dict) or len(value) > MAX_REFERENCED_SIZE:
        return None
    for item in value.values():
        if isinstance(item, dict) or (
            isinstance(item, list)
            and (len(item) > MAX_REFERENCED_SIZE or any(isinstance(i, (dict, list)) for i in item))
        ):
            return None
    return {key: list(v) if isinstance(v, list) else v for key, v in value.items()}
