"""Runs `mq` in process."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mq.cli.main import run
from mq.cli.runtime.env import Environment
from tests.cli import contract


@dataclass(frozen=True)
class Finished:
    """The results of a run of `mq`: its exit status, stdout and stderr."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        import json

        return json.loads(self.out)


def without_starts(err: str) -> list[str]:
    """Return the lines of standard error, except those about a broker that has just started."""
    return [line for line in err.splitlines() if ": it started " not in line]


class Mq:
    """Runs commands with a configuration directory and variables of their own."""

    def __init__(self, directory: Path, variables: Mapping[str, str] = {}) -> None:
        self.variables = {
            "MQ_CONFIG_DIR": str(directory),
            "HOME": str(directory),
            "MQ_TIMEOUT": "30",  # a busy machine: a Java peer may take longer than a user waits
            **variables,
        }

    def having(self, variables: Mapping[str, str]) -> "Mq":
        """The same with more variables."""
        return Mq(Path(self.variables["MQ_CONFIG_DIR"]), {**self.variables, **variables})

    def __call__(
        self,
        *arguments: str,
        terminal: bool = False,
        columns: int = 80,
        typed: str | None = None,
        piped: str | None = None,
        **variables: str,
    ) -> Finished:
        """Run a command. `typed` is input at a terminal; `piped` is standard input from a pipe."""
        out, err = io.StringIO(), io.StringIO()
        environment = Environment(
            stdin=io.StringIO(piped if typed is None else typed),
            stdout=out,
            stderr=err,
            variables={**self.variables, **variables},
            terminal=terminal or typed is not None,
            error_terminal=typed is not None,
            input_terminal=typed is not None,
            columns=columns,
        )
        finished = Finished(run(list(arguments), environment), out.getvalue(), err.getvalue())
        contract.check(arguments, finished.out)
        return finished
