"""`mq shell`: many commands in one process.

A line is a command as after `mq`, in the quoting of sh; `mq` before it is optional. There are no
pipes, variables or patterns. At a terminal there are history and completion; input from a pipe or a
file is run line by line.
"""

import io
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mq.cli import catalog
from mq.cli.main import run
from mq.cli.runtime import global_options
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.interruption import number_of, signals
from mq.cli.runtime.status import Status

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completion
    from prompt_toolkit.document import Document

_END = ("exit", "quit")
_GONE = (Status.TERMINATED, Status.HUNG_UP)  # a command with this status ends the shell, too
_SIGNALLED = (Status.INTERRUPTED, *_GONE)
_SECRET = re.compile(r"secret|passw|token|credential", re.IGNORECASE)


def run_line(line: str, environment: Environment) -> int | None:
    """Run one line and return its status; None for a line that ends the shell."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        environment.stderr.write(f"mq shell: {error}\n")
        return Status.USAGE
    if words[:1] == ["mq"]:
        del words[0]
    if not words:
        return Status.DONE
    if words[0] in _END:
        return None
    found = catalog.find(global_options.after(words))
    if found is not None and (found[0] == "daemon" or found[1] == "shell"):
        environment.stderr.write(f"mq shell: {found[1]} cannot run inside mq shell\n")
        return Status.USAGE
    return run(words, environment)


def run_script(environment: Environment, *, stop: bool) -> int:
    """Run the lines of stdin.

    With `stop` the first failure ends it, with its status. Else all lines are run, and the status
    is PARTLY if any failed. Each failure is reported on stderr with its line number.
    """
    # The rest of stdin is commands, which no command may read.
    inner = environment.with_input(io.StringIO())
    failed = False
    for number, line in enumerate(environment.stdin, 1):
        status = run_line(line, inner)
        if status is None:
            break
        if status != Status.DONE:
            failed = True
            environment.stderr.write(f"mq shell: line {number} ended with status {status}\n")
            if stop or status in _SIGNALLED:
                return status
    return Status.PARTLY if failed else Status.DONE


def run_interactive(environment: Environment) -> int:
    """Read lines from a terminal until exit or Ctrl-D; the status is that of the last command."""
    session = _session(environment)
    status = int(Status.DONE)
    while True:
        try:
            with signals():
                line = session.prompt(f"mq [{status}]> " if status else "mq> ")
        except KeyboardInterrupt as error:
            if number_of(error) is not signal.SIGINT:
                raise
            continue  # Ctrl-C discards the line, as in every shell
        except EOFError:
            return status
        ended = run_line(line, environment)
        environment.stdout.flush()
        if ended is None:
            return status
        status = int(ended)
        if status in _GONE:
            return status


def _session(environment: Environment) -> "PromptSession[str]":
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, ThreadedCompleter
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class History(FileHistory):
        """A history file without lines that start with a blank or may contain a secret."""

        def store_string(self, string: str) -> None:
            if not string.startswith(" ") and not may_hold_secret(string):
                super().store_string(string)

    class Names(Completer):
        def get_completions(self, document: "Document", event: object) -> "Iterator[Completion]":
            from prompt_toolkit.completion import Completion

            text = document.text_before_cursor
            for word, meaning in candidates(text, environment):
                yield Completion(word, -len(_current(text)), display_meta=meaning)

    path = _history_file(environment)
    return PromptSession(
        history=InMemoryHistory() if path is None else History(str(path)),
        completer=ThreadedCompleter(Names()),
        complete_while_typing=False,
        enable_history_search=True,
    )


def _history_file(environment: Environment) -> Path | None:
    """Return the private history file; None if it cannot be written."""
    path = environment.cache_directory / "history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
    except OSError:
        return None
    return path


def may_hold_secret(line: str) -> bool:
    """Return whether a line is about accounts or contains a secret, and must not be kept."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    found = catalog.find(global_options.after([word for word in words if word != "mq"]))
    name = found[1].lower() if found else ""
    return bool(_SECRET.search(line)) or "user" in name or "acl" in name


def _current(text: str) -> str:
    """Return the incomplete word."""
    return "" if not text or text[-1].isspace() else text.split()[-1]


def candidates(text: str, environment: Environment) -> Iterator[tuple[str, str]]:
    """Yield the completions of a line's last word, with descriptions."""
    from mq.cli.completion import candidates as completion

    current = _current(text)
    words = text.split()[: len(text.split()) - (1 if current else 0)]
    if words[:1] == ["mq"]:
        del words[0]
    try:
        found = completion.candidates([*environment.before, *words, current], environment)
    except Exception:  # of the cluster: the prompt continues without names
        return
    rows = found.rows
    if found.kind == "commands" and global_options.after(words) in ([], ["help"]):
        rows = [(name, catalog.summary(name)) for name in catalog.WRITTEN.values()]
    for word, meaning in rows:
        name = word.removesuffix("=") if found.kind == "options" else found.prefix + word
        if name.lower().startswith(current.lower()):
            yield name, meaning


def start(environment: Environment, *, stop: bool) -> int:
    """Run the shell: interactive at a terminal, else from a pipe."""
    if not environment.input_terminal:
        return run_script(environment, stop=stop)
    if stop:
        raise UsageError("--stop is for commands from a pipe or a file")
    return run_interactive(environment)
