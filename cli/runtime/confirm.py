"""Asks for confirmation before data is destroyed, if a user can answer.

It asks only if stdin, stdout and stderr are all terminals: a script that worked with mqadmin is
never asked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mq.cli.runtime.call import Call
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.option_groups import spread
from mq.cli.runtime.status import Status


def confirm(call: Call, question: str, own: dict[str, Any]) -> None:
    """Ask whether to do what `question` says. Raises CommandError unless the answer is yes."""
    environment = call.environment
    if not environment.interactive:
        return
    what = question.format_map({name: _shown(value) for name, value in spread(own).items()})
    with line_of_its_own(environment):
        environment.stderr.write(f"{what[:1].upper()}{what[1:]}? [y/N] ")
        environment.stderr.flush()
        answer = environment.stdin.readline().strip().lower()
    if answer not in ("y", "yes"):
        raise CommandError(
            "nothing was done",
            hint="without confirmation: --yes; to see the changes only: --dry-run",
            status=Status.INTERRUPTED,
        )


@contextmanager
def line_of_its_own(environment: Environment) -> Iterator[None]:
    """If a signal ends a question, start a new line, so that its message is below the question."""
    try:
        yield
    except KeyboardInterrupt:
        environment.stderr.write("\n")
        raise


def _shown(value: Any) -> str:
    """Return a value for the question; one with control characters is quoted."""
    if value is None:
        return "all"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    text = str(getattr(value, "value", value))
    return text if text.isprintable() and text else repr(text)
