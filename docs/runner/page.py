"""A document as its runner reads it: commands with their output, files, set-up.

The parts of a page and their meaning:

- A block of ```` ```console ````: each line `$ COMMAND` is run, and the lines after it are its
  output. A line `...` stands for omitted lines.
- A block of ```` ```python ```` that begins with `# [NUMBER]`: a cell of a notebook. The block of
  ```` ```text ```` after it is its output. All cells of a page run in one Python.
- Another block whose first line is `# NAME.EXT`: a file, which is written before anything is run.
- `<!-- cluster: broker-a broker-b -->`: the brokers that run, `broker-a` by default; without names
  nothing runs. `(broker-b)` is to be started by a command. `etcd` adds one, and `controller` a
  place for its settings, /etc/mq/controller.conf. Lines `name=value` after them, before the `-->`,
  are their settings.
- `<!-- setup` … `-->`: commands that readers need not see. `shop` (shop.py) is an application.
- `<!-- figures vary -->` or `<!-- order varies -->` before a block: figures or order of lines
  differ between runs.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_COMMENT = re.compile(r"<!-- *(.*?) *-->", re.DOTALL)
_CELL = re.compile(r"# \[\d+\]")
_FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)$")


class Step(NamedTuple):
    """A command of a page, or a cell. `line` is its line number, from 0; `shown` its documented
    output.

    For a cell `output` is the line where its output begins, or None if there is no block for it.
    """

    command: str
    shown: list[str]
    line: int
    figures_vary: bool
    order_varies: bool
    is_cell: bool = False
    output: int | None = None

    @property
    def first(self) -> int | None:
        """The line where the output begins, if there is one."""
        return self.output if self.is_cell else self.line + 1 + self.command.count("\n")


class Setup(NamedTuple):
    """Commands that are run and not shown."""

    script: str
    line: int


@dataclass
class Page:
    path: Path
    lines: list[str]
    parts: list[Step | Setup] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    brokers: list[str] = field(default_factory=lambda: ["broker-a"])
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> list[Step]:
        return [part for part in self.parts if isinstance(part, Step)]


def read(path: Path) -> Page:
    page = Page(path, path.read_text(encoding="utf-8").splitlines())
    at, said = 0, ""
    while at < len(page.lines):
        line = page.lines[at]
        if line.startswith("<!--"):
            end = _find(page, at, "-->")
            text = "\n".join(page.lines[at : end + 1])
            found = _COMMENT.match(text)
            said = found[1] if found else ""
            _comment(page, said, at)
            at = end
        elif line.startswith("```"):
            end = _find(page, at + 1, "```")
            _block(page, line[3:].strip(), at + 1, end, said)
            at, said = end, ""
        elif line:
            said = ""
        at += 1
    return page


def _find(page: Page, at: int, mark: str) -> int:
    for index in range(at, len(page.lines)):
        if mark in page.lines[index]:
            return index
    raise ValueError(f"{page.path}:{at}: there is no {mark} after this line")


def _comment(page: Page, said: str, line: int) -> None:
    word, _, rest = said.partition("\n")
    if word == "setup":
        page.parts.append(Setup(rest, line))
    elif word.startswith("cluster:"):
        page.brokers = word.removeprefix("cluster:").split()
        page.settings = dict(text.split("=", 1) for text in rest.splitlines())


def _block(page: Page, language: str, first: int, end: int, said: str) -> None:
    lines = page.lines[first:end]
    if language == "python" and lines and _CELL.fullmatch(lines[0]):
        figures, order = "figures" in said, "order" in said
        page.parts.append(Step("\n".join(lines), [], first, figures, order, is_cell=True))
        return
    before = page.parts[-1] if page.parts else None
    if language == "text" and isinstance(before, Step) and before.is_cell:
        page.parts[-1] = before._replace(shown=lines, output=first)
        return
    if language != "console":
        name = _FILE_NAME.match(lines[0]) if lines else None
        if name is not None:
            page.files[name[1]] = "\n".join(lines) + "\n"
        return
    at = 0
    while at < len(lines):
        if not lines[at].startswith("$ "):
            raise ValueError(f"{page.path}:{first + at + 1}: a block of commands begins with '$ '")
        begin = at
        while lines[at].endswith("\\"):
            at += 1
        command = "\n".join(lines[begin : at + 1]).removeprefix("$ ")
        at += 1
        output = at
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        figures = "figures" in said and command != "echo $?"  # a status never varies
        order = "order" in said
        page.parts.append(Step(command, lines[output:at], first + begin, figures, order))
