"""Runs a page: each command in order, and compares its output with the page."""

import difflib
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from docs.runner.cluster import Cluster
from docs.runner.comparison import LEFT_OUT, copied, is_by_speed, matched, shape
from docs.runner.forker import Forker
from docs.runner.notebook import Notebook, SparkSetup
from docs.runner.page import Page, Setup, Step

_STEP_SECONDS = 40
HOW_TO_REWRITE = "is it right as it is now? `make docs` writes it into the page"


@dataclass
class Played:
    """A command that was run. `same`: its output matches the page."""

    step: Step
    printed: list[str]
    same: bool


class Play:
    """A run of a page. `problems` describe the differences from the page."""

    def __init__(
        self, page: Page, folder: Path, forker: Forker, spark: SparkSetup | None = None
    ) -> None:
        self.problems: list[str] = []
        self.played: list[Played] = []
        self._page = page
        self._copied: dict[str, str] = {}  # from an id or a time of the page to that of this run
        self._status = 0
        with (
            Cluster(folder, page.brokers, page.settings, forker) as self._cluster,
            Notebook(folder, self._cluster.environment, spark or SparkSetup()) as self._notebook,
        ):
            self._write_files()
            if page.path.parent.name == "examples":  # it shows the programs in its folder
                (self._cluster.home / "examples").symlink_to(page.path.parent.resolve())
            following = [*page.steps[1:], None]
            for part in page.parts:
                if isinstance(part, Setup):
                    self._set_up(part)
                else:
                    self._step(part, following.pop(0))

    def rewritten(self) -> str:
        """Return the page with all output of this run, so that its ids and times are consistent.

        Correct output with omitted lines is kept, with the ids of this run.
        """
        lines = [self._of_this_run(line) for line in self._page.lines]
        for played in reversed(self.played):
            shown = played.step.shown
            first = played.step.first
            if first is None:
                continue
            if not played.same or LEFT_OUT not in shown:
                lines[first : first + len(shown)] = played.printed
        return "\n".join(lines) + "\n"

    def _of_this_run(self, line: str) -> str:
        return self._cluster.to_show(_replaced(line, self._copied))

    def _write_files(self) -> None:
        for name, text in self._page.files.items():
            path = Path(self._cluster.to_run(name))
            path = path if path.is_absolute() else self._cluster.home / path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._cluster.to_run(text), encoding="utf-8")

    def _set_up(self, setup: Setup) -> None:
        lines = setup.script.splitlines()
        for is_unit, some in groupby(lines, lambda line: line.startswith("systemctl ")):
            text = "\n".join(some)
            parts = [f"\n{line}" for line in text.splitlines()] if is_unit else [f"set -e\n{text}"]
            for part in parts:
                status, printed = self._run(part)
                if status:
                    self._problem(setup.line, f"the set-up ends with status {status}: {printed}")
                    return

    def _step(self, step: Step, following: Step | None) -> None:
        if step.is_cell:
            status, printed = self._run_cell(step.command)
        else:
            # `$ echo $?` shows the status of the previous command.
            status, printed = self._run(f"(exit {self._status})\n{step.command}")
        pairs = matched(
            step.shown, printed, figures_vary=step.figures_vary, order_varies=step.order_varies
        )
        for shown, real in pairs or ():
            self._copied.update(zip(copied(shown), copied(real), strict=False))
        self.played.append(Played(step, printed, pairs is not None))
        if status and not (following is not None and "$?" in following.command):
            self._problem(
                step.line,
                f"`{step.command}` ends with status {status}, which the page does not show",
            )
        if pairs is None:
            self._problem(step.line, "\n".join(self._difference(step, printed)))
        self._status = status

    def _difference(self, step: Step, printed: list[str]) -> Iterator[str]:
        name = step.command.partition("\n")[0] if step.is_cell else step.command
        yield f"`{name}` prints something else ({HOW_TO_REWRITE}):"
        shown, real = (
            [shape(line, step.figures_vary) for line in lines if line.strip()]
            for lines in (step.shown, printed)
        )
        for line in list(difflib.unified_diff(shown, real, "shown", "printed", lineterm=""))[2:]:
            yield "    " + line

    def _run(self, command: str) -> tuple[int, list[str]]:
        """Run a command in bash; returns its status and its lines, as the page would show them."""
        command = _replaced(command, self._copied)
        words = shlex.split(command.rpartition("\n")[2]) if "\n" in command else []
        if words[:2] == ["mq", "standalone"]:
            lines = self._cluster.standalone(*words[2:])
            self._write_files()  # again, with these ports
            return 0, self._cluster.to_show("\n".join(lines)).splitlines()
        if words[:1] == ["systemctl"]:
            self._cluster.systemctl(*words[1:])
            return 0, []
        try:
            ended = self._bash(command)
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode(errors="replace")
            return 124, [*said.splitlines(), f"(it has not ended after {_STEP_SECONDS} s)"]
        shown = self._cluster.to_show(ended.stdout).splitlines()
        return ended.returncode, [line.rstrip() for line in shown if not is_by_speed(line)]

    def _run_cell(self, code: str) -> tuple[int, list[str]]:
        status, text = self._notebook.run(self._cluster.to_run(_replaced(code, self._copied)))
        return status, [line.rstrip() for line in self._cluster.to_show(text).splitlines()]

    def _bash(self, command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-c", self._cluster.to_run(command)],
            cwd=self._cluster.home,
            env=self._cluster.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_STEP_SECONDS,
        )

    def _problem(self, line: int, text: str) -> None:
        self.problems.append(f"{self._page.path.name}:{line + 1}: {text}")


def _replaced(text: str, by: dict[str, str]) -> str:
    for old, new in by.items():
        text = text.replace(old, new)
    return text
