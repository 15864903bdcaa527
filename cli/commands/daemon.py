"""The daemons: `mq namesrv`, `mq broker`, `mq standalone`, with the flags of Java's start scripts.

Sources: NamesrvStartup, BrokerStartup, ServerUtil.buildCommandlineOptions.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status

if TYPE_CHECKING:
    from mq.daemons.config import Settings

COMMANDS = {
    "daemon": (
        "namesrv",
        "broker",
        "standalone",
    )
}

D = TypeVar("D")

ConfigFile = Annotated[
    str | None, typer.Option("-c", "--configFile", metavar="FILE", help="Java properties file.")
]
PrintAll = Annotated[
    bool, typer.Option("-p", "--printConfigItem", help="Print every setting and end.")
]
PrintImportant = Annotated[
    bool, typer.Option("-m", "--printImportantConfig", help="Print the important ones and end.")
]
NameServers = Annotated[
    str | None,
    typer.Option("-n", "--namesrvAddr", metavar="HOST:PORT[;…]", help="Name servers."),
]
ConfigItem = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a property; may be repeated."),
]


def _overrides(items: list[str] | None) -> dict[str, str]:
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


def _path(config_file: str | None) -> Path | None:
    return Path(config_file) if config_file else None


@contextmanager
def _configuring(*, printing: bool) -> Iterator[None]:
    """Turn what is wrong with the settings into one line; log warnings as the daemon will.

    Where the settings are only printed there is no log, and the lines stay clean.
    """
    import logging

    from mq.daemons.config import ConfigError
    from mq.daemons.service import configure_log

    try:
        if printing:
            logging.disable(logging.WARNING)
        else:
            variables = os.environ
            configure_log(
                variables.get("MQ_LOG_FORMAT", "text"), variables.get("MQ_LOG_LEVEL", "INFO")
            )
        yield
    except ConfigError as error:
        raise CommandError(str(error), status=Status.CONFIG) from error
    finally:
        if printing:
            logging.disable(logging.NOTSET)


def _printed(
    environment: Environment, settings: "Settings", everything: bool, important: bool
) -> bool:
    """Print settings if asked to. -p and -m end the daemon before it starts, as in Java."""
    if not (everything or important):
        return False
    for line in settings.lines(important=not everything):
        environment.stdout.write(f"{line}\n")
    return True


def _told(settings: "Settings", daemon: D) -> D:
    """A daemon that is about to start, its settings written to the log first."""
    settings.log_all()
    return daemon


def namesrv(
    environment: Environment,
    config_file: ConfigFile = None,
    name_servers: NameServers = None,
    print_all: PrintAll = False,
    print_important: PrintImportant = False,
    config_item: ConfigItem = None,
) -> int:
    """Run a name server.

    It runs until SIGTERM or Ctrl-C. -n is taken, and means nothing, as in Java.
    """
    from mq.daemons.namesrv.config import NamesrvSettings

    with _configuring(printing=print_all or print_important):
        settings = NamesrvSettings.load(_path(config_file), _overrides(config_item))
    if _printed(environment, settings, print_all, print_important):
        return Status.DONE
    from mq.daemons.namesrv.app import NameServer
    from mq.daemons.service import run

    return run(lambda: _told(settings, NameServer(settings)))


def broker(
    environment: Environment,
    config_file: ConfigFile = None,
    name_servers: NameServers = None,
    print_all: PrintAll = False,
    print_important: PrintImportant = False,
    config_item: ConfigItem = None,
) -> int:
    """Run a broker.

    It runs until SIGTERM or Ctrl-C. Of -c, -n and --set the later overrides the earlier.
    """
    from mq.daemons.broker.config import BrokerSettings

    overrides = {"namesrvAddr": name_servers} if name_servers else {}
    with _configuring(printing=print_all or print_important):
        overrides |= _overrides(config_item)
        settings = BrokerSettings.load(_path(config_file), overrides)
    if _printed(environment, settings, print_all, print_important):
        return Status.DONE
    from mq.daemons.broker.app import Broker
    from mq.daemons.service import run

    return run(lambda: _told(settings, Broker(settings)))


def standalone(
    environment: Environment,
    config_file: ConfigFile = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="DIR", help="Where to keep messages; else temporary."),
    ] = None,
    name_server_port: Annotated[
        int, typer.Option("--namesrv-port", metavar="PORT", help="Of the name server; 0: any.")
    ] = 9876,
    broker_port: Annotated[
        int, typer.Option("--broker-port", metavar="PORT", help="Of the broker; 0: any.")
    ] = 10911,
    config_item: ConfigItem = None,
) -> int:
    """Run a name server and a broker in one process.

    For trying things out and for tests: both on loopback, until SIGTERM or Ctrl-C, with a store
    that is gone afterwards unless --store names one. -c and --set are the broker's settings.
    """
    from mq.daemons.config import read_file
    from mq.daemons.service import run
    from mq.daemons.standalone import Standalone

    with _configuring(printing=False):
        properties = read_file(Path(config_file)) if config_file else {}
        properties |= _overrides(config_item)
    return run(
        lambda: Standalone(
            Path(store) if store else None,
            name_server_port=name_server_port,
            broker_port=broker_port,
            properties=properties,
        )
    )
