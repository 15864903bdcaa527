"""The start of a daemon by a command: options, settings, log, and the exit status.

`mq.daemons.service.run` then runs the daemon: event loop, signals, service manager, exit status.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.option_groups import option_group
from mq.cli.runtime.status import Status

if TYPE_CHECKING:
    from mq.daemons.config import Settings
    from mq.daemons.service import Daemon

S = TypeVar("S", bound="Settings")

ConfigFile = Annotated[
    str | None,
    typer.Option(
        "-c", "--configFile", metavar="FILE", help="Settings file, in the form of Java properties."
    ),
]
PrintAll = Annotated[
    bool, typer.Option("-p", "--printConfigItem", help="Print every setting and exit.")
]
NameServers = Annotated[
    str | None,
    typer.Option(
        "-n", "--namesrvAddr", metavar="HOST:PORT[;…]", help="Name servers to register with."
    ),
]
ConfigItem = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the file."),
]


def overrides_of(items: list[str] | None) -> dict[str, str]:
    found = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not (equals and key.strip()):
            raise CommandError(
                f"--set {item!r} is not KEY=VALUE",
                hint="--set listenPort=9876",
                status=Status.USAGE,
            )
        found[key.strip()] = value.strip()
    return found


def path_of(config_file: str | None) -> Path | None:
    return Path(config_file) if config_file else None


@contextmanager
def configuring(*, printing: bool, path: Path | None = None) -> Iterator[None]:
    """Report an error in the settings in one line; log warnings as the daemon will.

    `path` is the configuration file. With `printing` nothing is logged.
    """
    import logging

    from mq.daemons.config import ConfigError, explained, warn_of_remarks
    from mq.daemons.log_output import configure_log

    try:
        if printing:
            logging.disable(logging.WARNING)
        else:
            configure_log()
        yield
        warn_of_remarks(path)
    except ConfigError as error:
        raise CommandError(explained(error, path), status=Status.CONFIG) from error
    finally:
        if printing:
            logging.disable(logging.NOTSET)


@option_group
class StartOptions:
    """Options that override the settings of the file, or print the settings."""

    print_all: PrintAll = False
    print_important: Annotated[
        bool,
        typer.Option("-m", "--printImportantConfig", help="Print the important settings and exit."),
    ] = False
    config_item: ConfigItem = None

    @property
    def printing(self) -> bool:
        """Whether to print the settings. As in Java, the daemon is not started then."""
        return self.print_all or self.print_important

    def settings(
        self,
        environment: Environment,
        load: Callable[[Path | None, Mapping[str, str]], S],
        config_file: str | None,
        overrides: Mapping[str, str] | None = None,
    ) -> S | None:
        """Return the settings of a file; `overrides` replace its lines, and --set replaces both.

        Print them and return None if they are to be printed. Raises CommandError for an invalid
        setting.
        """
        path = path_of(config_file)
        with configuring(printing=self.printing, path=path):
            found = load(path, {**(overrides or {}), **overrides_of(self.config_item)})
        if not self.printing:
            return found
        self.print(environment, found)
        return None

    def print(self, environment: Environment, settings: "Settings") -> None:
        """Print the settings, or the important ones."""
        for line in settings.lines(important=not self.print_all):
            environment.stdout.write(f"{line}\n")


def registering(name_servers: str | None) -> dict[str, str]:
    """Return the setting of -n."""
    return {"namesrvAddr": name_servers} if name_servers else {}


def started(settings: S, make: "Callable[[S], Daemon]") -> int:
    """Log the settings, run their daemon until a signal stops it, and return the exit status."""
    from mq.daemons.service import run

    def daemon() -> "Daemon":
        settings.log_all()
        return make(settings)

    return run(daemon)
