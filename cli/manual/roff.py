"""The man page language (mdoc), as far as our pages need it."""

import re
from collections.abc import Iterable
from textwrap import wrap

# Arguments that mdoc treats as punctuation or a macro when they stand alone.
_SPECIAL = re.compile(r"^(?:[.,:;()\[\]?!|]|[A-Z][a-z]|[A-Z][a-z][a-z]?)$")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(])")


def text(words: str) -> str:
    """Return running text as lines of roff; each sentence starts a line, as roff requires."""
    sentences = _SENTENCE.split(" ".join(words.split()))
    return "\n".join(line for sentence in sentences for line in _wrapped(escape(sentence)))


def _wrapped(escaped: str) -> list[str]:
    lines = wrap(escaped, 78, break_long_words=False, break_on_hyphens=False)
    return [_safe(line) for line in lines]


def _safe(line: str) -> str:
    """Return a line that roff does not treat as a command."""
    return f"\\&{line}" if line.startswith((".", "'")) else line


def escape(words: str) -> str:
    """Return text without special meaning for roff."""
    escaped = words.replace("\\", r"\e").replace("-", r"\-").replace("`", r"\(ga")
    escaped = escaped.replace("^", r"\(ha").replace("~", r"\(ti").replace('"', r"\(dq")
    return "".join(letter if letter.isascii() else rf"\[u{ord(letter):04X}]" for letter in escaped)


def argument(word: str) -> str:
    """Return one argument of a macro."""
    escaped = escape(word)
    if _SPECIAL.match(word) or word.startswith("%"):
        escaped = rf"\&{escaped}"
    return f'"{escaped}"' if not escaped or " " in escaped else escaped


def page(name: str, section: int, date: str, summary: str, body: Iterable[str]) -> str:
    """Return a whole page. `date` is in mdoc's form: November 21, 2026."""
    head = [
        '.\\" Written by `mq manual` from the declarations of the commands: make manual.',
        f".Dd {date}",
        f".Dt {name.upper()} {section}",
        ".Os",
        ".Sh NAME",
        f".Nm {name}",
        f".Nd {escape(summary)}",
    ]
    return "\n".join([*head, *body]) + "\n"


def section(title: str, body: Iterable[str]) -> list[str]:
    """Return a section with its heading."""
    return [f".Sh {title}", *body]


def subsection(title: str, body: Iterable[str]) -> list[str]:
    """Return a subsection with its heading."""
    return [f".Ss {escape(title)}", *body]


def paragraphs(texts: Iterable[str]) -> list[str]:
    """Return paragraphs, separated by space."""
    lines: list[str] = []
    for number, words in enumerate(texts):
        lines += [".Pp"] if number else []
        lines.append(text(words))
    return lines


def items(entries: Iterable[tuple[str, Iterable[str]]], *, compact: bool = True) -> list[str]:
    """Return a list of terms, each a macro line, with their explanations."""
    lines = [f".Bl -tag -width Ds{' -compact' if compact else ''}"]
    for term, body in entries:
        lines += [f".It {term}", *body]
    return [*lines, ".El"]


def literal(lines: Iterable[str]) -> list[str]:
    """Return literal lines: commands and their output."""
    return [".Bd -literal -offset indent", *(_safe(escape(line)) for line in lines), ".Ed"]


def flags(names: Iterable[str], metavar: str) -> str:
    """Return an option as a term of a list: `-t`, `--topic` `TOPIC`."""
    parts = [f"Fl {argument(name[1:])}" for name in names]
    shown = " , ".join(parts)
    return f"{shown} Ar {argument(metavar)}" if metavar else shown
