"""The console as a daemon of commands: `mq console`, `mq standalone --console`."""

from pathlib import Path
from typing import TYPE_CHECKING

from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status

if TYPE_CHECKING:
    from mq.daemons.console.app import Console
    from mq.daemons.console.clusters import ClusterSource
    from mq.daemons.console.config import ConsoleSettings


def console_class() -> "type[Console]":
    """Return the daemon class. Raises CommandError if its packages are not installed."""
    try:
        from mq.daemons.console.app import Console
    except ImportError as error:
        raise CommandError(
            f"the console needs {error.name}",
            hint="pip install 'mq[console]'",
            status=Status.UNAVAILABLE,
        ) from None
    return Console


def of_pair(
    name_servers: str, folder: Path, port: int
) -> "tuple[ConsoleSettings, list[ClusterSource]]":
    """Return the settings of a console on loopback for one cluster, and that cluster."""
    from mq.client.options import ClientOptions
    from mq.daemons.console.clusters import ClusterSource
    from mq.daemons.console.config import ConsoleSettings

    settings = ConsoleSettings.load(None, {"listenPort": str(port), "dataPath": str(folder)})
    options = ClientOptions(timeout=settings.console.request_timeout_millis / 1000)
    return settings, [ClusterSource("standalone", name_servers, options)]
