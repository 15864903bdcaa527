"""The text format of java.util.Properties, as read by `Properties.load`.

A logical line is a natural line and its continuations (an odd number of backslashes at its end).
`#` or `!` as the first character makes a comment, which is never continued. A key ends at the first
`=`, `:` or white space that does not follow a backslash.

An extension: a file may have sections, each of which starts with a line `[name]`.
"""

import re
from collections.abc import Iterator, Mapping

_LINE_END = re.compile(r"\r\n|\n|\r")
_SECTION = re.compile(r"\[([^\[\]]+)\][ \t\f]*")
_BLANK = " \t\f"
# Limit of a request that changes settings: all settings together are a tenth of it.
MOST_BYTES = 256 * 1024
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    r"""Keys and values; of a repeated key the last value.

    Raises:
        ValueError: a `\u` is not followed by four hexadecimal digits, or is half of a character
          without the other half, which no file and no reply can hold.
    """
    properties = {}
    for number, _, line in _logical_lines(text):
        key, value = _split(line)
        try:
            properties[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise ValueError(f"line {number + 1}: {error}") from None
    return properties


def read_sections(text: str) -> dict[str, dict[str, str]]:
    """Keys and values by section; those before the first section have the section name "".

    Raises:
        ValueError: as in `read_properties`, or a section occurs twice.
    """
    sections: dict[str, dict[str, str]] = {}
    for name, lines in _by_section(text):
        if name in sections:
            raise ValueError(f"section [{name}] occurs twice")
        sections[name] = read_properties("\n" * lines[0] + _joined(text, lines))
    return sections


def lines_of(text: str) -> Iterator[tuple[int, str, str]]:
    """The line number, from 1, the key and the value of each pair, including repeated keys.

    A line `[name]` starts a section and is skipped. Raises ValueError as in `read_properties`.
    """
    for number, _, line in _logical_lines(text):
        if _SECTION.fullmatch(line) is None:
            key, value = _split(line)
            yield number + 1, _unescape(key), _unescape(value)


def read_update(body: bytes | memoryview) -> dict[str, str]:
    """The properties in the body of a request. Raises ValueError, also above MOST_BYTES, because
    parsing some millions takes seconds.
    """
    if len(body) > MOST_BYTES:
        raise ValueError(f"settings of {len(body)} bytes, over {MOST_BYTES}")
    return read_properties(bytes(body).decode())


def write_properties(properties: Mapping[str, str]) -> str:
    """One `key=value` line each, escaped so that `read_properties` returns the same mapping."""
    return "".join(f"{_escape_key(k)}={_escape(v)}\n" for k, v in properties.items())


def rewrite_section(text: str, name: str, changes: Mapping[str, str]) -> str:
    """`text` with some values set in a section, which is added if it is missing."""
    lines = _LINE_END.split(text)
    for found, (first, last) in _by_section(text):
        if found == name:
            inside = lines[first:last]
            blank = len(inside)
            while blank and not inside[blank - 1].strip():
                blank -= 1
            *written, _ = rewrite_properties("\n".join(inside[:blank]), changes).split("\n")
            return "\n".join([*lines[:first], *written, *inside[blank:], *lines[last:]])
    head = text if not text or text.endswith("\n") else text + "\n"
    return f"{head}\n[{name}]\n{rewrite_properties('', changes)}"


def _by_section(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The name of each section, its first line and the line after its last one, from 0."""
    name, begin = "", 0
    for first, last, line in _logical_lines(text):
        head = _SECTION.fullmatch(line)
        if head is not None:
            yield name, (begin, first)
            name, begin = head[1].strip(), last + 1
    yield name, (begin, len(_LINE_END.split(text)))


def _joined(text: str, lines: tuple[int, int]) -> str:
    return "\n".join(_LINE_END.split(text)[slice(*lines)])


def rewrite_properties(text: str, changes: Mapping[str, str]) -> str:
    """`text` with some values set; comments, order and other lines do not change."""
    lines = _LINE_END.split(text)
    if lines and lines[-1] == "":
        lines.pop()
    missing = dict(changes)
    edits = []
    for first, last, line in _logical_lines(text):
        key = _unescape(_split(line)[0])
        if key in changes:
            edits.append((first, last, f"{_escape_key(key)}={_escape(changes[key])}"))
            missing.pop(key, None)
    for first, last, line in reversed(edits):
        lines[first : last + 1] = [line]
    if missing and lines and _is_continued(lines[-1]):
        lines.append("")  # otherwise the first of them would become part of that value
    lines += [f"{_escape_key(k)}={_escape(v)}" for k, v in missing.items()]
    return "".join(line + "\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """First and last line number from 0, and the joined text, without comments and blank lines."""
    lines = _LINE_END.split(text)
    number = 0
    while number < len(lines):
        first = number
        line = lines[number].lstrip(_BLANK)
        number += 1
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            line = line[:-1]
            if number == len(lines):
                break
            line += lines[number].lstrip(_BLANK)
            number += 1
        yield first, number - 1, line


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        if char != "\\" or position + 1 == len(text):
            out.append(char)
            position += 1
            continue
        escaped = text[position + 1]
        position += 2
        if escaped == "u":
            digits = text[position : position + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise ValueError(rf"\u{digits} is not a Unicode escape")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    # Java's `\u` escapes are UTF-16: two may form one character.
    joined = "".join(out).encode("utf-16", "surrogatepass")
    try:
        return joined.decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError(r"a \u escape is half of a character") from None


def _escape(value: str) -> str:
    value = _escape_controls(value)
    return "\\" + value if value[:1] == " " else value


def _escape_key(key: str) -> str:
    return re.sub(r"([=: #!])", r"\\\1", _escape_controls(key))


def _escape_controls(text: str) -> str:
    text = text.replace("\\", "\\\\")
    for letter, char in _ESCAPES.items():
        text = text.replace(char, "\\" + letter)
    return text
