"""`mq shell`: many commands in one process.

A line is a command as after `mq`, in the quoting of sh; `mq` before it is optional. There are no
pipes, variables or patterns. At a terminal there are history and completion; input from a pipe or a
file is run line by line.
"""

import io
import re
import shlex
import signal
from collections.abc import Iterator, Sequence
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

    from mq.cli.manual.declarations import Option

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
    current = _current(text)
    words = text.split()[: len(text.split()) - (1 if current else 0)]
    if words[:1] == ["mq"]:
        del words[0]
    for word, meaning in _all_candidates(words, current, environment):
        if word.lower().startswith(current.lower()):
            yield word, meaning


def _all_candidates(
    words: list[str], current: str, environment: Environment
) -> Iterator[tuple[str, str]]:
    after = global_options.after(words)
    if words and not after and _lacks_value(words):
        from mq.cli.manual.specs import global_specs

        kinds = (option.kind for option in global_specs() if words[-1] in option.flags)
        for value in _values(next(kinds, ""), words, current, environment):
            yield value, ""
        return
    if not after or after == ["help"]:
        for name in catalog.WRITTEN.values():
            yield name, catalog.summary(name)
        return
    found = catalog.find(after)
    if found is None:
        for name in catalog.subcommands(after[0]):
            yield name.partition(" ")[2], catalog.summary(name)
        return
    from mq.cli.manual.descriptions import describe

    options = describe(found[0], found[1]).options
    kind = ""
    for option in options:
        if option.metavar and words[-1] in option.flags:
            kind = option.kind
            break
    else:
        if current.startswith("-"):
            for option in options:
                for flag in option.flags:
                    yield flag, option.help
            return
        kind = _kind_of_word(options, after[found[2] :])
    for value in _values(kind, words, current, environment):
        yield value, ""


def _lacks_value(words: list[str]) -> bool:
    """Return whether the options before the command end with one that lacks its value."""
    try:
        global_options.split(words)
    except UsageError:
        return True
    return False


def _kind_of_word(options: "Sequence[Option]", words: list[str]) -> str:
    """Return the kind of the positional argument after `words`."""
    valued = {flag for option in options if option.metavar for flag in option.flags}
    given, count, is_value = set(), 0, False
    for word in words:
        if is_value:
            is_value = False
        elif word.startswith("-"):
            given.add(word.partition("=")[0])
            is_value = word in valued
        else:
            count += 1
    places = sorted((item for item in options if not item.flags), key=lambda item: item.subject)
    places += sorted((item for item in options if item.subject), key=lambda item: item.subject)
    free = [option for option in places if not given.intersection(option.flags)]
    if count >= len(free) and not (free and free[-1].repeated):
        return ""
    return free[min(count, len(free) - 1)].kind


def _values(kind: str, words: list[str], current: str, environment: Environment) -> list[str]:
    if kind.startswith("one:"):
        return kind[4:].split("|")
    if not kind or kind in ("files", "directories"):
        return []
    from mq.cli.completing import complete

    found = io.StringIO()
    complete(
        [kind, "mq", *environment.before, *words, current],
        environment.writing_to(found, io.StringIO()),
    )
    return found.getvalue().split()


def start(environment: Environment, *, stop: bool) -> int:
    """Run the shell: interactive at a terminal, else from a pipe."""
    if not environment.input_terminal:
        return run_script(environment, stop=stop)
    if stop:
        raise UsageError("--stop is for commands from a pipe or a file")
    return run_interactive(environment)
