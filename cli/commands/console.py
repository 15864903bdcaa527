"""The command that runs the console daemon."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.daemon_start import ConfigFile, StartOptions, started
from mq.cli.runtime.context import Contexts
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.status import Status

if TYPE_CHECKING:
    from mq.daemons.console.app import Console
    from mq.daemons.console.clusters import ClusterSource
    from mq.daemons.console.config import ConsoleSettings

COMMANDS = {"daemon": ("console",)}


def console(
    environment: Environment,
    config_file: ConfigFile = None,
    name_servers: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namesrvAddr",
            metavar="HOST:PORT[;…]",
            help="Name servers of a cluster to show.",
        ),
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option("--context", metavar="NAME", help="Context to show."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="Address to listen on. Default: 127.0.0.1:8082."
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Allow no changes to any user.")
    ] = False,
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix", metavar="PATH", help="URL path under which a proxy serves the console."
        ),
    ] = None,
    *,
    start: StartOptions,
) -> int:
    """Run the console, a web interface for administrators of clusters.

    It runs until SIGTERM or Ctrl-C. --set overrides the other options, which override -c. Each
    context is a cluster; so is the one of -n. On addresses other than loopback it needs accounts
    (mq console user add) and TLS.

    Examples:
        mq console -n 127.0.0.1:9876          at http://127.0.0.1:8082/
        mq console --context dev --read-only  of a context; no changes allowed
    """
    from mq.daemons.console.config import ConsoleSettings

    overrides = _overrides(name_servers, context, listen, read_only, prefix)
    settings = start.settings(environment, ConsoleSettings.load, config_file, overrides)
    if settings is None:
        return Status.DONE
    clusters = sources(environment, settings)
    made = console_class()
    return started(settings, lambda its: made(its, clusters))


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


def _overrides(
    name_servers: str | None,
    context: list[str] | None,
    listen: str | None,
    read_only: bool,
    prefix: str | None,
) -> dict[str, str]:
    found = {}
    if name_servers:
        found["namesrvAddr"] = name_servers
    if context:
        found["contexts"] = ";".join(context)
    if listen:
        host, colon, port = listen.rpartition(":")
        if not (colon and host and port.isdigit()):
            raise UsageError(f"--listen {listen}: expected HOST:PORT, such as 127.0.0.1:8082")
        found |= {"bindAddress": host.removeprefix("[").removesuffix("]"), "listenPort": port}
    if read_only:
        found["readOnly"] = "true"
    if prefix is not None:
        found["pathPrefix"] = prefix.rstrip("/")
    return found


def sources(environment: Environment, settings: "ConsoleSettings") -> "list[ClusterSource]":
    """Return the clusters that the settings name. Raises CommandError."""
    from mq.cli.runtime.secrets import check_private, credentials, tls_context
    from mq.client.options import ClientOptions
    from mq.client.routing.address_server import is_url
    from mq.client.transport.caller import parse_name_servers
    from mq.daemons.console.clusters import ClusterSource

    config = settings.console
    shut = {name.strip() for name in config.read_only_clusters.split(";")}
    options = ClientOptions(timeout=config.request_timeout_millis / 1000)

    def source(name: str, where: str, acl: str = "", tls: str = "") -> ClusterSource:
        chosen = options
        if not is_url(where):
            parse_name_servers(where)
        if acl:
            check_private(Path(acl))
            chosen = replace(chosen, credentials=credentials(acl))
        if tls:
            chosen = replace(chosen, tls=tls_context(tls))
        return ClusterSource(name, where, chosen, config.read_only or name in shut)

    found = []
    if config.namesrv_addr:
        found.append(source("default", config.namesrv_addr, config.access_key_file))
    names = [name.strip() for name in config.contexts.split(";") if name.strip()]
    if names:
        if config.contexts_file:
            contexts = Contexts.of_file(Path(config.contexts_file))
        else:
            contexts = Contexts.load(environment.config_directory)
        for name in names:
            values = contexts.get(name)
            where = values.get("namesrvAddr", "")
            found.append(source(name, where, values.get("aclFile", ""), values.get("tlsFile", "")))
    if not found:
        where = environment.variables.get("NAMESRV_ADDR", "")
        if not where:
            raise UsageError(
                "no cluster to show", hint="mq console -n HOST:9876, or --context NAME"
            )
        found.append(source("default", where))
    known = [one.name for one in found]
    for name in sorted(shut - {"", *known}):  # a misspelled name would leave a cluster writable
        raise UsageError(f"readOnlyClusters: no cluster {name!r} ({', '.join(known)})")
    for name in {name for name in known if known.count(name) > 1}:
        raise UsageError(f"two clusters are named {name!r}")
    return found
