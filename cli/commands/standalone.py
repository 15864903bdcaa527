"""`mq standalone`: a cluster on one machine for trials, in one process or one per daemon."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.daemon_start import ConfigFile, ConfigItem, configuring, overrides_of, path_of
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.option_groups import option_group
from mq.cli.runtime.status import Status

if TYPE_CHECKING:
    from mq.daemons.console.app import Console
    from mq.daemons.console.clusters import ClusterSource
    from mq.daemons.console.config import ConsoleSettings
    from mq.daemons.standalone import Standalone

COMMANDS = {"daemon": ("standalone",)}

# The prefix of snode files in a configuration directory.
_SNODE = "snode"


@option_group
class PairPorts:
    """Ports of the name server and the broker."""

    name_server_port: Annotated[
        int,
        typer.Option(
            "--namesrv-port", metavar="PORT", help="Port of the name server; 0: any free one."
        ),
    ] = 9876
    broker_port: Annotated[
        int,
        typer.Option("--broker-port", metavar="PORT", help="Port of the broker; 0: any free one."),
    ] = 10911


@option_group
class ConsoleOptions:
    """Options of the console that runs with the pair."""

    console: Annotated[
        bool, typer.Option("--console", help="Run the console too, at http://127.0.0.1:8082/.")
    ] = False
    console_port: Annotated[
        int,
        typer.Option(
            "--console-port", metavar="PORT", help="Port of the console; 0: any free one."
        ),
    ] = 8082

    def maker(self) -> "Callable[[Standalone], Console] | None":
        """Return the factory of the console. Raises CommandError if it is not installed."""
        from mq.cli.commands.console import console_class

        if not self.console:
            return None
        made = console_class()
        return lambda pair: made(
            *_of_pair(pair.name_server_address, pair.folder / "console", self.console_port)
        )


def _of_pair(
    name_servers: str, folder: Path, port: int
) -> "tuple[ConsoleSettings, list[ClusterSource]]":
    """Return the settings of a console on loopback for one cluster, and that cluster."""
    from mq.client.options import ClientOptions
    from mq.daemons.console.clusters import ClusterSource
    from mq.daemons.console.config import ConsoleSettings

    settings = ConsoleSettings.load(None, {"listenPort": str(port), "dataPath": str(folder)})
    options = ClientOptions(timeout=settings.console.request_timeout_millis / 1000)
    return settings, [ClusterSource("standalone", name_servers, options)]


def _cluster(folder: Path) -> int:
    """Run a daemon for each settings file in a directory until a signal stops them."""
    from mq.cli.machine.cluster_layout import CONTROLLER, NAME_SERVER
    from mq.daemons.instances.command import this_mq
    from mq.daemons.instances.supervisor import Instances
    from mq.daemons.service import run

    commands, first = {}, []
    for path in sorted(folder.glob("*.conf")):
        kinds = (NAME_SERVER, CONTROLLER, _SNODE)
        word = next((kind for kind in kinds if path.name.startswith(kind)), "broker")
        if word in (NAME_SERVER, CONTROLLER):
            first.append(path.stem)
        commands[path.stem] = [*this_mq(), word, "-c", str(path)]
    if not commands:
        raise CommandError(
            f"{folder} has no *.conf", hint=f"mq cluster init {folder}", status=Status.NOT_FOUND
        )
    with configuring(printing=False):
        return run(lambda: Instances("daemons", commands, first=first))


def standalone(
    environment: Environment,
    config_file: ConfigFile = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="DIR", help="Directory for messages. Default: a temporary one."
        ),
    ] = None,
    *,
    ports: PairPorts,
    config_item: ConfigItem = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="DIR",
            help="Run the cluster that `mq cluster init` wrote to this directory.",
        ),
    ] = None,
    companion: ConsoleOptions,
) -> int:
    """Run a name server and a broker in one process, or a whole cluster.

    For trials and tests: both listen on loopback and run until SIGTERM or Ctrl-C. The store is
    deleted at the end unless --store names a directory. -c and --set are broker settings. With
    --cluster each settings file in DIR is a daemon in its own process, and messages are kept.
    --console also runs the console, whose data are in the store.

    Examples:
        mq standalone                            on ports 9876 and 10911, with a temporary store
        mq standalone --store ./store --console  keep messages; with the console
        mq standalone --cluster demo             the cluster of `mq cluster init demo`
    """
    from mq.daemons.config import read_file
    from mq.daemons.service import run
    from mq.daemons.standalone import Standalone

    if cluster is not None:
        if config_file or store or config_item or companion.console:
            raise UsageError(
                "--cluster excludes -c, --set, --store and --console: the settings are in DIR"
            )
        return _cluster(Path(cluster))
    path = path_of(config_file)
    with configuring(printing=False, path=path):
        properties = read_file(path) if path else {}
        properties |= overrides_of(config_item)
    return run(
        lambda: Standalone(
            Path(store) if store else None,
            name_server_port=ports.name_server_port,
            broker_port=ports.broker_port,
            properties=properties,
            companion=companion.maker(),
        )
    )
