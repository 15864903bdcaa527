"""The daemons, with the flags of Java's start scripts.

Sources: NamesrvStartup, BrokerStartup, ControllerStartup, ServerUtil.buildCommandlineOptions.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.status import Status

if TYPE_CHECKING:
    from mq.daemons.broker.config import BrokerSettings
    from mq.daemons.config import Settings
    from mq.daemons.service import Daemon

COMMANDS = {
    "daemon": (
        "namesrv",
        "broker",
        "controller",
        "filtersrv",
        "snode",
    )
}

D = TypeVar("D")
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
PrintImportant = Annotated[
    bool,
    typer.Option("-m", "--printImportantConfig", help="Print the important settings and exit."),
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
            variables = os.environ
            configure_log(
                variables.get("MQ_LOG_FORMAT", "text"), variables.get("MQ_LOG_LEVEL", "INFO")
            )
        yield
        warn_of_remarks(path)
    except ConfigError as error:
        raise CommandError(explained(error, path), status=Status.CONFIG) from error
    finally:
        if printing:
            logging.disable(logging.NOTSET)


def printed(
    environment: Environment, settings: "Settings", everything: bool, important: bool
) -> bool:
    """Print the settings if requested. As in Java, -p and -m exit before the daemon starts."""
    if not (everything or important):
        return False
    for line in settings.lines(important=not everything):
        environment.stdout.write(f"{line}\n")
    return True


def started(settings: S, make: "Callable[[S], Daemon]") -> int:
    """Log the settings, run their daemon until a signal stops it, and return the exit status."""
    from mq.daemons.service import run

    def daemon() -> "Daemon":
        settings.log_all()
        return make(settings)

    return run(daemon)


def namesrv(
    environment: Environment,
    config_file: ConfigFile = None,
    name_servers: NameServers = None,
    print_all: PrintAll = False,
    print_important: PrintImportant = False,
    config_item: ConfigItem = None,
) -> int:
    """Run a name server.

    It runs until SIGTERM or Ctrl-C. -n is accepted and ignored, as in Java.

    Examples:
        mq namesrv                        run one on port 9876
        mq namesrv -c namesrv.conf        with settings of a file
        mq namesrv --set listenPort=9877  on another port
    """
    from mq.daemons.namesrv.config import NamesrvSettings

    with configuring(printing=print_all or print_important, path=path_of(config_file)):
        settings = NamesrvSettings.load(path_of(config_file), overrides_of(config_item))
    if printed(environment, settings, print_all, print_important):
        return Status.DONE
    from mq.daemons.namesrv.app import NameServer

    return started(settings, NameServer)


def broker(
    environment: Environment,
    config_file: ConfigFile = None,
    name_servers: NameServers = None,
    print_all: PrintAll = False,
    print_important: PrintImportant = False,
    config_item: ConfigItem = None,
    instances: Annotated[
        int | None,
        typer.Option(
            "--instances", metavar="N", help="Run N brokers, each in a process of its own."
        ),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option("--instance", metavar="NAME", help="Of several brokers, run only this one."),
    ] = None,
) -> int:
    """Run a broker, or several in one supervised group.
    It runs until SIGTERM or Ctrl-C. --set overrides -n, which overrides -c. If FILE has sections,
    [NAME] each, or --instances is given, every section is a broker: it inherits the lines above all
    sections, and has its own name, ports and folders. A broker that exits is restarted alone.

    Examples:
        mq broker -n 127.0.0.1:9876  run one, with a name server here
        mq broker -c broker.conf     with settings of a file
        mq broker -c broker.conf --set flushDiskType=SYNC_FLUSH -p
                                     the settings, with one overridden
    """
    overrides = {"namesrvAddr": name_servers} if name_servers else {}
    with configuring(printing=print_all or print_important, path=path_of(config_file)):
        overrides |= overrides_of(config_item)
        brokers = _brokers(path_of(config_file), overrides, instances, instance)
    if print_all or print_important:
        for name, settings in brokers.items():
            environment.stdout.write(f"[{name}]\n" if len(brokers) > 1 else "")
            printed(environment, settings, print_all, print_important)
        return Status.DONE
    if instance is None and _ALONE not in brokers:
        return _several(list(brokers), instances, config_file, name_servers, config_item)
    (settings,) = brokers.values()
    if settings.broker.enable_controller_mode:
        from mq.daemons.broker.controlled_broker import ControlledBroker

        return started(settings, ControlledBroker)
    from mq.daemons.broker.app import Broker

    return started(settings, Broker)


_ALONE = ""  # the name of a single broker that no plan names


def _brokers(
    path: Path | None, overrides: dict[str, str], count: int | None, only: str | None
) -> "dict[str, BrokerSettings]":
    """Return the brokers to run, by name: all of a file, one of them, or a single one.

    Raises UsageError if none is named `only`.
    """
    from mq.daemons.broker.config import BrokerSettings
    from mq.daemons.instances.plan import check_apart, plan

    planned = {one.name: one for one in plan(path, overrides, count)}
    if only is not None:
        if only not in planned:
            names = ", ".join(planned) or "none: the file is for one broker"
            raise UsageError(f"--instance {only}: no such broker; known: {names}")
        planned = {only: planned[only]}
    if not planned:
        return {_ALONE: BrokerSettings.load(path, overrides)}
    brokers = {name: one.settings(path) for name, one in planned.items()}
    check_apart(brokers)
    return brokers


def controller(
    environment: Environment,
    config_file: ConfigFile = None,
    print_all: PrintAll = False,
    print_important: PrintImportant = False,
    config_item: ConfigItem = None,
) -> int:
    """Run a controller, which elects the masters of broker sets.

    It runs until SIGTERM or Ctrl-C. etcd (etcdEndpoints) keeps its state and elects the leader of
    several controllers. Brokers with enableControllerMode=true, also those of Java, find it by
    controllerAddr.

    Examples:
        mq controller -c controller.conf  with settings of a file
        mq controller --set etcdEndpoints=http://10.0.0.1:2379 -m
                                          the important settings
    """
    from mq.daemons.controller.config import ControllerSettings

    with configuring(printing=print_all or print_important, path=path_of(config_file)):
        settings = ControllerSettings.load(path_of(config_file), overrides_of(config_item))
    if printed(environment, settings, print_all, print_important):
        return Status.DONE
    from mq.daemons.controller.app import Controller

    return started(settings, Controller)


def filtersrv(
    environment: Environment,
    config_file: ConfigFile = None,
    name_servers: NameServers = None,
    print_all: PrintAll = False,
    config_item: ConfigItem = None,
) -> int:
    """Run a filter server, which filters messages for a broker with Java classes.
    It runs until SIGTERM or Ctrl-C, on a free port that it reports to its broker. A broker with
    filterServerNums starts this many itself. FILE may be the broker's own. Consumers that subscribe
    by a class receive the messages that it accepts. Classes come from files (filterClassFolder) or,
    with clientUploadFilterClassEnable=true, from consumers; each runs in a sandboxed process that
    may only compute, or not at all.

    Examples:
        mq filtersrv -n 127.0.0.1:9876  run one, with a name server here
        mq filtersrv -c broker.conf -p  the settings of a file
    """
    from mq.daemons.filtersrv.config import FiltersrvSettings

    overrides = {"namesrvAddr": name_servers} if name_servers else {}
    with configuring(printing=print_all, path=path_of(config_file)):
        overrides |= overrides_of(config_item)
        settings = FiltersrvSettings.load(path_of(config_file), overrides)
    if printed(environment, settings, print_all, False):
        return Status.DONE
    from mq.daemons.filtersrv.app import FilterServer

    return started(settings, FilterServer)


def snode(
    environment: Environment,
    config_file: ConfigFile = None,
    name_servers: NameServers = None,
    print_all: PrintAll = False,
    print_important: PrintImportant = False,
    config_item: ConfigItem = None,
) -> int:
    """Run a snode, a proxy without a store between clients and brokers.
    It runs until SIGTERM or Ctrl-C. --set overrides -n, which overrides -c. Clients that know
    snodes find it through name servers; others use it as their name server.

    Examples:
        mq snode -n 127.0.0.1:9876  run one, with a name server here
        mq snode -c snode.conf -p   the settings of a file
    """
    from mq.daemons.snode.config import SnodeSettings

    overrides = {"namesrvAddr": name_servers} if name_servers else {}
    with configuring(printing=print_all or print_important, path=path_of(config_file)):
        settings = SnodeSettings.load(path_of(config_file), overrides | overrides_of(config_item))
    if printed(environment, settings, print_all, print_important):
        return Status.DONE
    from mq.daemons.snode.app import Snode

    return started(settings, Snode)


def _several(
    names: list[str],
    count: int | None,
    config_file: str | None,
    name_servers: str | None,
    config_item: list[str] | None,
) -> int:
    """Run brokers in separate processes until a signal stops them."""
    from mq.daemons.instances.command import this_mq
    from mq.daemons.instances.supervisor import Instances
    from mq.daemons.service import run

    words = ["broker"]
    for option, value in (("-c", config_file), ("-n", name_servers)):
        words += [option, value] if value else []
    for item in config_item or ():
        words += ["--set", item]
    if count is not None:
        words += ["--instances", str(count)]
    commands = {name: [*this_mq(), *words, "--instance", name] for name in names}
    return run(lambda: Instances("brokers", commands))
