"""The daemons, with the flags of Java's start scripts.

Sources: NamesrvStartup, BrokerStartup, ControllerStartup, ServerUtil.buildCommandlineOptions.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.daemon_start import (
    ConfigFile,
    ConfigItem,
    NameServers,
    PrintAll,
    StartOptions,
    configuring,
    overrides_of,
    path_of,
    registering,
    started,
)
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.status import Status

if TYPE_CHECKING:
    from mq.daemons.broker.config import BrokerSettings

COMMANDS = {
    "daemon": (
        "namesrv",
        "broker",
        "controller",
        "filtersrv",
        "snode",
    )
}


def namesrv(
    environment: Environment,
    config_file: ConfigFile = None,
    name_servers: NameServers = None,
    *,
    start: StartOptions,
) -> int:
    """Run a name server.

    It runs until SIGTERM or Ctrl-C. -n is accepted and ignored, as in Java.

    Examples:
        mq namesrv                        run one on port 9876
        mq namesrv -c namesrv.conf        with settings of a file
        mq namesrv --set listenPort=9877  on another port
    """
    from mq.daemons.namesrv.config import NamesrvSettings

    settings = start.settings(environment, NamesrvSettings.load, config_file)
    if settings is None:
        return Status.DONE
    from mq.daemons.namesrv.app import NameServer

    return started(settings, NameServer)


def broker(
    environment: Environment,
    config_file: ConfigFile = None,
    name_servers: NameServers = None,
    *,
    start: StartOptions,
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
    path = path_of(config_file)
    with configuring(printing=start.printing, path=path):
        overrides = registering(name_servers) | overrides_of(start.config_item)
        brokers = _brokers(path, overrides, instances, instance)
    if start.printing:
        for name, settings in brokers.items():
            environment.stdout.write(f"[{name}]\n" if len(brokers) > 1 else "")
            start.print(environment, settings)
        return Status.DONE
    if instance is None and _ALONE not in brokers:
        return _several(list(brokers), instances, config_file, name_servers, start.config_item)
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
    *,
    start: StartOptions,
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

    settings = start.settings(environment, ControllerSettings.load, config_file)
    if settings is None:
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

    start = StartOptions(print_all, config_item=config_item)  # without -m
    registered = registering(name_servers)
    settings = start.settings(environment, FiltersrvSettings.load, config_file, registered)
    if settings is None:
        return Status.DONE
    from mq.daemons.filtersrv.app import FilterServer

    return started(settings, FilterServer)


def snode(
    environment: Environment,
    config_file: ConfigFile = None,
    name_servers: NameServers = None,
    *,
    start: StartOptions,
) -> int:
    """Run a snode, a proxy without a store between clients and brokers.
    It runs until SIGTERM or Ctrl-C. --set overrides -n, which overrides -c. Clients that know
    snodes find it through name servers; others use it as their name server.

    Examples:
        mq snode -n 127.0.0.1:9876  run one, with a name server here
        mq snode -c snode.conf -p   the settings of a file
    """
    from mq.daemons.snode.config import SnodeSettings

    registered = registering(name_servers)
    settings = start.settings(environment, SnodeSettings.load, config_file, registered)
    if settings is None:
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
