"""The comparison of two outputs of a command, in which times, ids and rates may differ."""

import re
from collections.abc import Iterator

LEFT_OUT = "..."

# Output of one run that a later command may use as input: it is replaced in commands.
_COPIED = (
    ("ID", re.compile(r"\b[0-9A-F]{32,56}\b")),
    ("TIME", re.compile(r"\b\d{4}-\d\d-\d\d[T# ]\d\d:\d\d(?::\d\d(?:[.,:]\d+)?)?Z?")),
    ("MILLISECONDS", re.compile(r"\b1[6-9]\d{11}\b")),
    ("FILE", re.compile(r"\b20\d{15}\b")),  # of the index, named by its creation time
)
_CANONICAL_PORTS = "2379|9876|9878|9557|10911|10921|10931"
_MOVING = (
    ("UUID", re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")),
    *_COPIED,
    ("CLIENT", re.compile(r"\b\d+(?:\.\d+){3}@[\w#@.-]+")),
    ("127.0.0.1:PORT", re.compile(rf"\b127\.0\.0\.1:(?!(?:{_CANONICAL_PORTS})\b)\d+")),
    ("DAY", re.compile(r"\b20\d\d-\d\d-\d\d\b|\b\d\d:\d\d:\d\d\b")),
    ("FOLDER", re.compile(r"/tmp/mq-standalone-\w+")),
    ("LINE", re.compile(r"[─━=-]{3,}")),
    ("TOOK", re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|µs)\b")),
    ("FIGURE", re.compile(r"(?<![\w.])-?\d+\.\d+(?!\.?\w)")),
)
# Printed for a broker that has just started; on a busy machine more time passes until the command.
_BY_SPEED = re.compile(r": it started \d+ s ago, ").search
_DIGITS = re.compile(r"\d+")


def shape(line: str, figures_vary: bool = False) -> str:
    """Return a line without the parts that vary between runs, and with single blanks."""
    for name, pattern in _MOVING:
        line = pattern.sub(name, line)
    if figures_vary:
        line = _DIGITS.sub("0", line)
    return " ".join(line.split())


def is_by_speed(line: str) -> bool:
    """Whether a line is printed only on a fast machine, so that no page can show it."""
    return _BY_SPEED(line) is not None


def copied(line: str) -> Iterator[str]:
    """Yield the ids and times in a line, kind by kind."""
    for _, pattern in _COPIED:
        yield from pattern.findall(line)


def matched(
    shown: list[str], printed: list[str], *, figures_vary: bool, order_varies: bool
) -> list[tuple[str, str]] | None:
    """Return the lines shown, each with the matching printed one; None if they differ.

    Blank lines are ignored. A line `...` matches any number of printed lines.
    """
    shown = [line for line in shown if line.strip()]
    printed = [line for line in printed if line.strip()]
    if order_varies:
        shown = sorted(shown, key=lambda line: (line != LEFT_OUT, shape(line, figures_vary)))
        printed = sorted(printed, key=lambda line: shape(line, figures_vary))
        if shown and shown[0] == LEFT_OUT:
            shown = [part for line in shown[1:] for part in (LEFT_OUT, line)] + [LEFT_OUT]
    return _match(shown, printed, figures_vary)


def _match(
    shown: list[str], printed: list[str], figures_vary: bool
) -> list[tuple[str, str]] | None:
    pairs = []
    at = 0
    skipping = False
    for line in shown:
        if line == LEFT_OUT:
            skipping = True
            continue
        wanted = shape(line, figures_vary)
        while skipping and at < len(printed) and shape(printed[at], figures_vary) != wanted:
            at += 1
        if at == len(printed) or shape(printed[at], figures_vary) != wanted:
            return None
        pairs.append((line, printed[at]))
        at += 1
        skipping = False
    return pairs if skipping or at == len(printed) else None
