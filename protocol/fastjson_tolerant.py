"""Tolerant reader of JSON that fastjson writes and orjson refuses, such as keys without quotes."""

import re
from typing import Any

import orjson

# Real documents are less than ten levels deep; a deeper one is an attempt to exhaust the stack.
MAX_DEPTH = 64
# Longer documents are read only if they are standard JSON. The largest real ones with object keys,
# offsets of tens of thousands of queues, are smaller.
MAX_TOLERATED = 8 * 1024 * 1024
# The reader that reports the position of an error takes 2 us per character; longer documents are
# rewritten and parsed in one step, in a tenth of that time.
_READER_LIMIT = 8 * 1024


class MalformedJson(ValueError):
    """The text is not JSON, not even by fastjson's rules. Has the position."""


class ObjectKey(tuple[tuple[str, Any], ...]):
    """A JSON object that is the key of a map: its (name, value) pairs, in order."""

    __slots__ = ()


_BARE_INTEGER_KEY = re.compile(
    # Skips string literals. Also unterminated ones: otherwise each quote of an unterminated text
    # would be tried as a start, in time quadratic in the length.
    rb'"[^"\\]*(?:\\.[^"\\]*)*"?'
    rb"|([{,]\s*)(-?\d+)(?=\s*:)",
    re.DOTALL,
)
_KEY_MARK = "\x00object key\x00"
# Tokens for `_loads_rewritten`: string literals, so that nothing is found in them, and keys and
# values without quotes. No branch looks past the next brace outside a literal, and literals are
# skipped as a whole: the time is linear in the length.
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


def loads_tolerant(raw: bytes) -> Any:
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
    return Reader(text).read() if len(text) <= _READER_LIMIT else _loads_rewritten(text)


def _loads_rewritten(text: str) -> Any:
    """Rewrite non-standard parts and let orjson parse the result; for long documents."""
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
        # The standard forbids control characters and fastjson's own escapes.
        return whole if _STANDARD_TEXT.fullmatch(whole) else _dumped(_unquoted(whole))
    if whole[0] == "'":
        if len(whole) == 1 or whole[-1] != "'":
            raise MalformedJson(f"at character {match.start()}: the end of a text expected")
        return _dumped(_unquoted(whole))
    if match["word"] is not None:
        return "null" if whole == "NaN" else whole
    before, key = match["before"], match["key"]
    if key[0] == "{":
        # The key becomes a marked text: `_restore_keys` recognizes it by its mark.
        plain = Reader(key).read()
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
    # Two escapes may form one character; half of a pair is replaced.
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
        return key  # a regular text that begins with the mark


def _quote_key(match: re.Match[bytes]) -> bytes:
    return match[0] if match[2] is None else b'%b"%b"' % (match[1], match[2])


class Reader:
    """A recursive descent reader: slow, for documents with object keys, and for broken ones."""

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
        except ValueError:  # more digits than int() accepts
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
        assert match is not None  # it also matches the empty text
        self.position = match.end()

    def _malformed(self, wanted: str) -> MalformedJson:
        found = self.text[self.position : self.position + 20]
        return MalformedJson(f"at character {self.position}: {wanted} expected, {found!r} found")


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, escape)
