"""Text from peers in a form that neither a log nor a terminal takes for something else.

A line feed begins a new line of a log, an escape sequence is obeyed by a terminal, and a mark for
the direction of writing shows a text in another order than it has.
"""

# Marks of Unicode's bidirectional algorithm, and its separators of lines and paragraphs.
MARKS = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))

_ESCAPES = {
    **{code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0), *MARKS)},
    **{ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"},
}


def escaped(text: str) -> str:
    """The text on one line: control characters and marks are escaped as in JSON."""
    return text if text.isprintable() else text.translate(_ESCAPES)
