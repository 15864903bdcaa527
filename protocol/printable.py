"""Text from peers in a form that logs and terminals do not misinterpret.

A line feed would start a new line of a log, a terminal would execute an escape sequence, and a
directional mark would show the text in another order.
"""

# Marks of Unicode's bidirectional algorithm, and its line and paragraph separators.
MARKS = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))

_ESCAPES = {
    **{code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0), *MARKS)},
    **{ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"},
}


def escaped(text: str) -> str:
    """Return the text on one line: control characters and marks are escaped as in JSON."""
    return text if text.isprintable() else text.translate(_ESCAPES)
