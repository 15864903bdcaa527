"""Escapes text for terminals: names and bodies are untrusted.

A control character becomes its picture, one of the second set the replacement character. Pipes get
every byte unchanged.
"""

from typing import TextIO

from mq.protocol.printable import MARKS

_PICTURES: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **{code: f"\\u{code:04x}" for code in MARKS},
}
# For a cell of a table, whose row must be one line.
_IN_CELLS = {
    **{code: _PICTURES[code] for code in (*MARKS, 0x0D)},
    **{0x0A: 0x240A, 0x09: 0x2409},
}


def visible(text: str) -> str:
    """Return the text with pictures for control characters except line ends and tabs."""
    return text if text.isprintable() else text.translate(_PICTURES)


def on_one_line(text: str) -> str:
    """Return the text with pictures for line feeds and tabs, for a cell of a table."""
    return text if text.isprintable() else text.translate(_IN_CELLS)


def log_visibly() -> None:
    """Escape warnings of loggers without a configuration, which go to standard error."""
    import logging

    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return visible(super().format(record))

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Formatter())


class Visible:
    """A terminal as a stream that escapes text."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def write(self, text: str) -> None:
        self._terminal.write(visible(text))
