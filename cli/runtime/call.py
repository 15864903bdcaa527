"""One call of a command: its environment, its cluster, and the session with that cluster."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.status import Status
from mq.cli.show.output import Format
from mq.cli.show.view import View, parse

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from mq.client.admin import Admin
    from mq.client.credentials import AccessKey
    from mq.client.operations.changes import Changes
    from mq.client.producer.producer import Producer
    from mq.client.transport.blocking import BlockingSession
    from mq.client.transport.caller import Caller
    from mq.client.transport.session import Session

DEFAULT_NAME_SERVER = "127.0.0.1:9876"
DEFAULT_TIMEOUT = 5.0  # seconds


@dataclass
class Call:
    """The context of a command's call.

    `name_servers` are `host:port`; `name_servers_from` is their origin, for messages. `timeout` is
    in seconds, for each reply. `view` selects columns and rows, `watch` is the interval in seconds
    of a repeated command. With `dry_run` a session's changes are recorded and not sent; a command
    that writes files reports with `would` what it does not write.
    """

    environment: Environment
    name: str
    name_servers: list[str]
    name_servers_from: str
    output: Format
    timeout: float
    given_name_servers: str | None = None
    given_acl_file: str | None = None
    given_tls_config: str | None = None
    acl_file: str | None = None
    acl_file_chosen: bool = True  # False: the default file of Java's tools
    tls_config: str | None = None
    concurrent: bool = False
    view: View = field(default_factory=View)
    watch: float | None = None
    dry_run: bool = False
    yes: bool = False
    until_stopped: bool = False  # Ctrl-C is its normal end
    line: list[str] = field(default_factory=list)  # the words after mq
    # What failed before the command's own work. They are failures of its result, or are reported at
    # its end if it has no result.
    shortfalls: list[str] = field(default_factory=list)
    given_masters: str | None = None  # TubeMQ's, in commands that are `of_tube`
    web_port: int = 8080

    @asynccontextmanager
    async def session(self) -> AsyncIterator["Caller"]:
        """Open a session with the cluster; connections close at the end of the block."""
        options = {
            "timeout": self.timeout,
            "credentials": self.credentials(),
            "tls": self.tls(),
        }
        if self.concurrent:
            async with self._concurrent_session(options) as session:
                yield session
            return
        with self._blocking_session(options) as blocking:
            yield blocking

    def _concurrent_session(self, options: dict[str, Any]) -> "Session":
        if self.dry_run:
            from mq.client.operations.dry_run import dry_session

            return cast("Session", dry_session(self.changes, self.name_servers, **options))
        from mq.client.transport.session import Session

        return Session(self.name_servers, **options)

    def _blocking_session(self, options: dict[str, Any]) -> "BlockingSession":
        if self.dry_run:
            from mq.client.operations.dry_run import DryBlockingSession

            return DryBlockingSession(self.changes, self.name_servers, **options)
        from mq.client.transport.blocking import BlockingSession

        return BlockingSession(self.name_servers, **options)

    @asynccontextmanager
    async def producer(self, group: str, **options: Any) -> AsyncIterator["Producer"]:
        """Open a producer with its own session; only in a command marked `concurrently`.

        `options` are those of `mq.client.Producer`.
        """
        from mq.client.producer.producer import Producer

        async with self.session() as session:
            options = {"timeout": self.timeout, **options}
            async with Producer(cast("Session", session), group, **options) as producer:
                yield producer

    @cached_property
    def changes(self) -> "Changes":
        """The changes that this call would make: see `dry_run`."""
        from mq.client.operations.changes import Changes

        return Changes()

    def would(self, what: str, path: "str | Path", detail: str = "") -> None:
        """Record a change to a file that `dry_run` prevents: `would("write", path, …)`."""
        self.changes.local(str(path), what, detail)

    def credentials(self) -> "AccessKey | None":
        """Return the access key: --acl-file, else MQ_ACCESS_KEY with MQ_SECRET_KEY, else the file
        of
        MQ_ACL_FILE, of the context or of Java's tools.

        Raises CommandError for a file without an access key, and for half a key.
        """
        variables = self.environment.variables
        if not self.given_acl_file and (
            variables.get("MQ_ACCESS_KEY") or variables.get("MQ_SECRET_KEY")
        ):
            from mq.cli.runtime.secrets import key_of_variables

            return key_of_variables(variables)
        if self.acl_file is None:
            return None
        from mq.cli.runtime.secrets import credentials

        return credentials(self.acl_file, may_be_blank=not self.acl_file_chosen)

    def tls(self) -> "ssl.SSLContext | None":
        """Return the TLS context of connections. Raises CommandError for unusable files."""
        if self.tls_config is None:
            return None
        from mq.cli.runtime.secrets import tls_context

        return tls_context(self.tls_config)

    @asynccontextmanager
    async def admin(self) -> AsyncIterator["Admin"]:
        """Open the administrator's client with its own session."""
        from mq.client.admin import Admin

        async with self.session() as session:
            yield Admin(session)


def resolve(environment: Environment, name: str, values: dict[str, Any]) -> Call:
    """Build the call from the shared options, environment variables and the context.

    The order of precedence is: option, explicit context, NAMESRV_ADDR, current context,
    127.0.0.1:9876. Raises CommandError for an invalid setting.
    """
    context = _context(environment, values)
    address, origin = _name_servers(environment, values, context)
    acl_file, acl_file_chosen = _acl_file(environment, values, context)
    return Call(
        environment=environment,
        name=name,
        name_servers=_split(address, origin),
        name_servers_from=origin,
        output=_format(environment, values.get("output")),
        timeout=_timeout(environment, values.get("timeout")),
        given_name_servers=values.get("namesrv_addr"),
        given_acl_file=values.get("acl_file"),
        given_tls_config=values.get("tls_config"),
        acl_file=acl_file,
        acl_file_chosen=acl_file_chosen,
        tls_config=_chosen(
            environment, values, context, ("tls_config", "MQ_TLS_CONFIG", "tlsFile")
        ),
        view=_view(values),
        watch=_period(values.get("watch")),
        dry_run=bool(values.get("dry_run")),
        yes=bool(values.get("yes")),
        given_masters=values.get("masters"),
        web_port=values.get("web_port", 8080),
    )


def _context(environment: Environment, values: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return name and settings of the context to use; without one the name is empty.

    With -n, or NAMESRV_ADDR and no chosen context, the current context is ignored: its secrets
    belong to its own cluster.
    """
    variables = environment.variables
    chosen = values.get("context") or variables.get("MQ_CONTEXT")
    if not chosen and (
        values.get("namesrv_addr") is not None or variables.get("NAMESRV_ADDR", "").strip()
    ):
        return "", {}
    from mq.cli.runtime.context import Contexts

    contexts = Contexts.load(environment.config_directory)
    chosen = chosen or contexts.current
    return (chosen, contexts.get(chosen)) if chosen else ("", {})


def _name_servers(
    environment: Environment, values: dict[str, Any], context: tuple[str, dict[str, str]]
) -> tuple[str, str]:
    given = values.get("namesrv_addr")
    if given is not None:
        return given, "-n"
    name, settings = context
    if name:
        return settings.get("namesrvAddr", ""), f"context {name}"
    variable = environment.variables.get("NAMESRV_ADDR", "").strip()
    return (variable, "NAMESRV_ADDR") if variable else (DEFAULT_NAME_SERVER, "the default")


def _chosen(
    environment: Environment,
    values: dict[str, Any],
    context: tuple[str, dict[str, str]],
    names: tuple[str, str, str],
) -> str | None:
    """Return the option, else the variable, else the context's value."""
    option, variable, setting = names
    return values.get(option) or environment.variables.get(variable) or context[1].get(setting)


def _acl_file(
    environment: Environment, values: dict[str, Any], context: tuple[str, dict[str, str]]
) -> tuple[str | None, bool]:
    """Return the file with the access key, and whether the user chose it."""
    chosen = _chosen(environment, values, context, ("acl_file", "MQ_ACL_FILE", "aclFile"))
    home = environment.variables.get("ROCKETMQ_HOME")
    if chosen or not home:
        return chosen, True
    # The file that Java's mqadmin uses (MQAdminStartup.main0).
    tools = os.path.join(home, "conf", "tools.yml")
    return (tools if os.path.exists(tools) else None), False


def _split(address: str, origin: str) -> list[str]:
    if address.startswith(("http://", "https://")):
        address, origin = _listed(address), address
    servers = [part.strip() for part in address.replace(",", ";").split(";") if part.strip()]
    for server in servers:
        host, colon, port = server.rpartition(":")
        if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
            raise UsageError(
                f"{server!r} is not an address (from {origin})",
                hint="HOST:PORT, separated by semicolons: 10.0.0.1:9876;10.0.0.2:9876",
            )
    if not servers:
        raise UsageError(f"no name server (from {origin})", hint="give one: -n HOST:9876")
    return servers


def _listed(url: str) -> str:
    """Return the list of an address server. Raises CommandError if it cannot be fetched."""
    from mq.client.routing.address_server import fetch_text

    try:
        return fetch_text(url)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise CommandError(
            f"no name servers from {url}: {reason}",
            hint="check the address server, or give a name server: -n HOST:9876",
            status=Status.UNAVAILABLE,
        ) from None


def _format(environment: Environment, given: Format | None) -> Format:
    if given is not None:
        return given
    variable = environment.variables.get("MQ_OUTPUT", "").strip().lower()
    if not variable:
        return Format.TABLE if environment.terminal else Format.PLAIN
    try:
        return Format(variable)
    except ValueError:
        known = ", ".join(item.value for item in Format)
        raise CommandError(
            f"MQ_OUTPUT is {variable!r}; known formats: {known}", status=Status.CONFIG
        ) from None


def _timeout(environment: Environment, given: float | None) -> float:
    if given is None:
        variable = environment.variables.get("MQ_TIMEOUT", "").strip()
        try:
            given = float(variable) if variable else DEFAULT_TIMEOUT
        except ValueError:
            raise CommandError(
                f"MQ_TIMEOUT is {variable!r}, not a number of seconds", status=Status.CONFIG
            ) from None
    if not 0 < given < 86_400:
        raise UsageError(f"a timeout of {given:g} s: must be 0 to 86400")
    return given


def _view(values: dict[str, Any]) -> View:
    view = parse(
        values.get("columns"),
        values.get("sort"),
        no_header=bool(values.get("no_header")),
        utc=bool(values.get("utc")),
    )
    format, body = values.get("format"), values.get("body")
    if format is not None:
        from mq.cli.show.record_format import BodyFormat, RecordFormat

        if view.chosen or values.get("output") is not None:
            raise UsageError(
                "--format defines the whole layout: leave out the other layout options"
            )
        return replace(view, format=RecordFormat(format, body or BodyFormat.AUTO))
    return view if body is None else replace(view, body=body)


def _period(given: float | None) -> float | None:
    if given is not None and not 0.1 <= given <= 86_400:
        raise UsageError(f"--watch {given:g}: must be 0.1 to 86400 seconds")
    return given
