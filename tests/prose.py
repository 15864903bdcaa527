"""The prose of the tree, and the phrases and names in it that have plainer forms.

    python -m tests.prose [PATH ...]

prints each hit with its file, line and a plainer wording, then the hits per 1,000 words of each
folder. Phrases and limits are in tests/words.toml, banned names in docs/glossary.md.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.source_tree import ROOT

_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_RUST = re.compile(r'//[/!]?(.*)$|"((?:[^"\\]|\\.)*)"', re.MULTILINE)
_BANNED = re.compile(r"`([A-Za-z_]+)`")
# Comments for tools.
_DIRECTIVES = ("type:", "noqa", "fmt:", "pragma", "!")
# A string of fewer words is a name or a key.
_FEWEST_SPACES = 2


@dataclass(frozen=True)
class Phrase:
    """An entry of words.toml."""

    name: str
    find: re.Pattern[str]
    not_after: re.Pattern[str] | None
    plainer: str


@dataclass(frozen=True)
class Hit:
    """A phrase or banned name at a line of a file; ``text`` shows it in its context."""

    path: str
    line: int
    text: str
    plainer: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}  ({self.plainer})"


@dataclass(frozen=True)
class Count:
    """The hits and the number of words of one file."""

    path: str
    words: int
    hits: tuple[Hit, ...]

    @property
    def folder(self) -> str:
        """The first two folders of the path, or the file at the top of the tree."""
        parts = Path(self.path).parts
        return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


@cache
def phrases() -> tuple[Phrase, ...]:
    """The phrases of words.toml."""
    return tuple(
        Phrase(
            entry["name"],
            re.compile(
                entry["find"], re.MULTILINE | (re.IGNORECASE if entry.get("ignore_case") else 0)
            ),
            re.compile(entry["not_after"]) if "not_after" in entry else None,
            entry["plainer"],
        )
        for entry in _settings()["phrase"]
    )


def limits() -> tuple[float, float]:
    """Hits per 1,000 words: of the whole tree, and of a folder."""
    settings = _settings()
    return settings["total"], settings["folder"]


@cache
def banned_names() -> frozenset[str]:
    """The identifiers in the last column of the glossary."""
    rows = [
        line.rstrip(" |").rpartition("|")[2]
        for line in (ROOT / "docs/glossary.md").read_text().splitlines()
        if line.startswith("| ") and line.count("|") == 4
    ]
    return frozenset(name for row in rows for name in _BANNED.findall(row))


def counts(paths: list[str]) -> list[Count]:
    """The count of each file, in the order of ``paths``, which are relative to the root."""
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        return list(processes.map(_count, paths, chunksize=32))


def tracked_files() -> list[str]:
    """Paths of the Python, Rust and Markdown files of the tree, relative to its root."""
    command = ["git", "ls-files", "*.py", "*.md", "*.rs"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    # The checker's own phrases, and the words that the glossary replaces.
    own = {"docs/glossary.md", "tests/test_words.py"}
    return [
        name
        for name in names.split()
        if name not in own and (ROOT / name).is_file() and not (ROOT / name).is_symlink()
    ]


def per_thousand(found: list[Count]) -> float:
    """Hits per 1,000 words of some files; 0.0 if they have no words."""
    words = sum(count.words for count in found)
    return 1000 * sum(len(count.hits) for count in found) / words if words else 0.0


def by_folder(found: list[Count]) -> dict[str, list[Count]]:
    """The counts of each folder."""
    folders: dict[str, list[Count]] = {}
    for count in found:
        folders.setdefault(count.folder, []).append(count)
    return folders


def hits_of(path: str, text: str) -> list[Hit]:
    """The hits in a text; the suffix of ``path`` says how it is read."""
    return _read(path, text)[1]


@cache
def _settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "tests/words.toml").read_text())


def _count(path: str) -> Count:
    words, hits = _read(path, (ROOT / path).read_text(errors="replace"))
    return Count(path, words, tuple(hits))


def _read(path: str, text: str) -> tuple[int, list[Hit]]:
    """The number of words of a file with this text, and its hits."""
    hits: list[Hit] = []
    if path.endswith(".py"):
        pieces, names = _python(text)
        hits += [
            Hit(path, line, name, "a banned name: see docs/glossary.md")
            for line, name in names
            if name in banned_names()
        ]
    elif path.endswith(".md"):
        pieces = list(_markdown(text))
    else:
        pieces = [
            (text.count("\n", 0, match.start()) + 1, match[1] or match[2] or "")
            for match in _RUST.finditer(text)
        ]
    for line, piece in pieces:
        hits += _hits(path, line, piece)
    return sum(len(_WORD.findall(piece)) for _, piece in pieces), hits


def _hits(path: str, first_line: int, piece: str) -> Iterator[Hit]:
    flat = piece.replace("\n", " ")
    for phrase in phrases():
        for match in phrase.find.finditer(flat):
            if phrase.not_after and phrase.not_after.search(flat[: match.start()]):
                continue
            line = first_line + piece.count("\n", 0, match.start())
            shown = " ".join(flat[max(0, match.start() - 40) : match.end() + 40].split())
            yield Hit(path, line, shown, f"{phrase.name}: {phrase.plainer}")


def _python(text: str) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Comments, docstrings and strings of words, and the names that are defined."""
    pieces: list[tuple[int, str]] = []
    names: list[tuple[int, str]] = []
    in_strings: dict[int, list[tuple[int, int]]] = {}  # columns by line
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node.value.count(" ") >= _FEWEST_SPACES:
                pieces.append((node.lineno, node.value))
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.append((node.lineno, node.name))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.id))
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        ):
            last = node.end_lineno or node.lineno
            for line in range(node.lineno, last + 1):
                begin = node.col_offset if line == node.lineno else 0
                end = node.end_col_offset or 0 if line == last else sys.maxsize
                in_strings.setdefault(line, []).append((begin, end))
    pieces += _comments(text, in_strings)
    return pieces, names


def _comments(text: str, in_strings: dict[int, list[tuple[int, int]]]) -> Iterator[tuple[int, str]]:
    """Comments; those on lines that follow each other are one piece."""
    first, lines = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if "#" not in line:
            continue
        body = _comment(line, in_strings.get(number, []))
        if not body or body.startswith(_DIRECTIVES):
            continue
        if first + len(lines) != number:
            if lines:
                yield first, "\n".join(lines)
            first, lines = number, []
        lines.append(body)
    if lines:
        yield first, "\n".join(lines)


def _comment(line: str, strings: list[tuple[int, int]]) -> str:
    """The comment of a line, "" if it has none. ``strings`` are columns in bytes of UTF-8."""
    for match in re.finditer("#", line):
        column = len(line[: match.start()].encode())
        if not any(begin <= column < end for begin, end in strings):
            return line[match.start() :].lstrip("#: ")
    return ""


def _markdown(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside of fenced code, without `code`."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`", "", line)


def main(paths: list[str]) -> None:
    """Print the hits of the files at or below some paths, or of the tree."""
    found = counts(
        [
            name
            for name in tracked_files()
            if not paths or any(name == path or name.startswith(f"{path}/") for path in paths)
        ]
    )
    for count in found:
        for hit in count.hits:
            print(hit)
    for folder, of_folder in sorted(by_folder(found).items(), key=lambda x: per_thousand(x[1])):
        print(f"{per_thousand(of_folder):6.1f}  {folder}")
    print(f"{per_thousand(found):6.1f}  in all")


if __name__ == "__main__":
    main([path.rstrip("/") for path in sys.argv[1:]])
