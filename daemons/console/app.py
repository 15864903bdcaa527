"""The console: its components, started in order and stopped in reverse.

lock      one console for each data directory
audit     the log of changes and their users
clusters  a session for each, and its collected data
frame     the pages
server    the port for browsers
"""

import logging
import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.middleware.gzip import GZipMiddleware

from mq.client.machine import files
from mq.daemons import exporters
from mq.daemons.config import ConfigError
from mq.daemons.console.audit import Audit
from mq.daemons.console.clusters import Cluster, ClusterSource
from mq.daemons.console.config import ConsoleSettings
from mq.daemons.console.pages import all_routes
from mq.daemons.console.route import AnyRoute
from mq.daemons.console.security.access import Access
from mq.daemons.console.security.shell import Shell
from mq.daemons.console.server import HttpServer
from mq.daemons.console.web import Frame
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.operation_config import OFF
from mq.daemons.service import CannotStart
from mq.daemons.state_file import make_private_folder
from mq.daemons.supervision import Tasks
from mq.daemons.tls_config import TlsMode

if TYPE_CHECKING:
    from mq.daemons.metrics import Metric

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mq.daemons.console.collector.collector import Collector
from mq.daemons.console.history.history import History
from mq.daemons.console.history.recording import ClusterHistory, Recorder
from mq.daemons.metrics import Kind, Metric, counter, gauge

if TYPE_CHECKING:
    from mq.daemons.console.audit import Audit
    from mq.daemons.console.clusters import Cluster
    from mq.daemons.console.security.shell import Shell
    from mq.daemons.console.streams import Streams

log = logging.getLogger(__name__)


def metrics_of(
    shell: "Shell", streams: "Streams", audit: "Audit", clusters: "Iterable[Cluster]"
) -> Iterator[Metric]:
    """Yield the metrics of a console's components."""
    yield counter("mq_console_requests_total", "Requests from browsers.", float(shell.requests))
    yield gauge("mq_console_requests_active", "Requests in progress.", float(shell.active))
    doc = "Requests refused because too many were in progress."
    yield counter("mq_console_requests_refused_total", doc, float(shell.turned_away))
    yield gauge("mq_console_streams", "Open live updates of pages.", float(streams.open))
    failures = float(audit.failures)
    yield counter(
        "mq_console_audit_failures_total", "Audit entries that could not be written.", failures
    )
    ages = [((one.name,), one.snapshot.at / 1000) for one in clusters]
    doc = "When a cluster last answered, in seconds since 1970; 0: never."
    yield Metric("mq_console_snapshot_timestamp_seconds", Kind.gauge, doc, ("cluster",), ages)


async def start_collecting(
    settings: ConsoleSettings, clusters: Sequence[Cluster], tasks: Tasks, parts: AsyncExitStack
) -> None:
    """Start a collector for each cluster, and the history of all. Raises CannotStart."""
    given = settings.collector
    path = Path(given.history_file or Path(settings.console.data_path) / "history.sqlite")
    history = await parts.enter_async_context(History(path, most_series=given.history_series_max))
    for cluster in clusters:
        cluster.refuse(given.limits.refused)
        collector = await parts.enter_async_context(
            Collector(
                cluster.source.name_servers,
                cluster.source.options,
                limits=given.limits,
                rate=given.requests_per_second_max,
                checkup_seconds=given.checkup_minutes * 60,
            )
        )
        cluster.collector = collector
        cluster.history = ClusterHistory(history, cluster.name)
        recorder = Recorder(cluster.name, collector, history)
        tasks.spawn(recorder.run, "console recorder")


class Console(Lifecycle):
    """A console in this process: `async with Console(settings, sources) as console`.

    Raises OSError if it cannot listen, CannotStart if a requirement is missing.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        sources: Sequence[ClusterSource],
        *,
        routes: tuple[AnyRoute, ...] = (),
    ) -> None:
        """``routes`` are pages in addition to those of `pages`."""
        self.settings = settings
        self._routes = routes
        self.clusters = {source.name: Cluster(source) for source in sources}
        self.audit = Audit(settings.console.audit_path)
        self.access = Access(settings, self.audit)
        self.tasks: Tasks
        self.frame: Frame
        self.shell: Shell
        self.server: HttpServer
        self.metrics_port = OFF
        self._tls: ssl.SSLContext | None = None

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def _has_tls(self) -> bool:
        tls = self.settings.tls
        return tls.has_certificate and tls.mode is not TlsMode.disabled

    @property
    def url(self) -> str:
        """The address for browsers."""
        scheme = "https" if self._tls else "http"
        host = self.settings.console.bind_address
        host = f"[{host}]" if ":" in host else host
        return f"{scheme}://{host}:{self.port}{self.settings.console.path_prefix}/"

    async def _start(self, parts: AsyncExitStack) -> None:
        settings = self.settings
        self._check()
        self._lock(Path(settings.console.data_path), parts)
        parts.callback(self.audit.close)
        if self._has_tls:
            self._tls = settings.tls.server_context()
        self.tasks = await parts.enter_async_context(Tasks())
        for cluster in self.clusters.values():
            await cluster.open()
            parts.push_async_callback(cluster.close)
        await start_collecting(self.settings, list(self.clusters.values()), self.tasks, parts)
        self.frame = Frame(
            settings, self.clusters, self.access, self.audit, (*all_routes(), *self._routes)
        )
        inner = GZipMiddleware(self.frame.router, minimum_size=1000, compresslevel=5)
        self.shell = Shell(inner, settings)
        self.server = HttpServer(
            self.shell, settings.console.bind_address, settings.console.listen_port, self._tls
        )
        parts.push_async_callback(self.frame.streams.wait_ended)
        parts.push_async_callback(self.frame.engine.stop)
        await parts.enter_async_context(self.server)
        parts.callback(self.frame.streams.stop)  # before the server waits for their responses
        if exporters.are_wanted(settings.operation):
            self.metrics_port = await exporters.start_exporters(
                settings.operation, self.metrics, self.tasks, parts
            )

    def _check(self) -> None:
        """Raise CannotStart if the settings are incomplete."""
        if not self.clusters:
            raise CannotStart("no cluster to show: set namesrvAddr (-n) or contexts (--context)")
        config, tls = self.settings.console, self.settings.tls
        others = [h for h in config.allowed_hosts.split(";") if h.strip()]
        if not self.access.accounts.users:
            hint = f"create an account: mq console user add NAME (usersFile={config.users_path})"
            if not config.is_local:
                raise CannotStart(f"bindAddress={config.bind_address} needs accounts; {hint}")
            if others or config.trusted_proxies.strip():
                raise CannotStart(f"allowedHosts and trustedProxies need accounts; {hint}")
            log.warning("NO ACCOUNTS: every user of this machine is administrator; %s", hint)
        if not (config.is_local or self._has_tls or config.tls_at_proxy):
            raise CannotStart(
                f"bindAddress={config.bind_address} needs TLS: set tls.server.certPath and "
                "tls.server.keyPath, or tlsAtProxy if a proxy terminates TLS"
            )
        if tls.has_certificate and not self._has_tls:
            log.warning("tls.server.mode=disabled: the certificate is not used")

    def _lock(self, folder: Path, parts: AsyncExitStack) -> None:
        """Lock the data directory. Raises CannotStart if another console uses it."""
        make_private_folder(folder)
        descriptor = files.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        parts.callback(files.close, descriptor)
        try:
            files.lock(descriptor)
        except (BlockingIOError, PermissionError):
            raise CannotStart(f"dataPath={folder}: another console uses this directory") from None

    def ready_text(self) -> str:
        """Return the line for the log when the console is ready."""
        return f"console: {self.url} shows {', '.join(self.clusters)}"

    def status_text(self) -> str:
        return self.ready_text()

    def reload(self) -> None:
        """Reload the certificate and the accounts, and reopen the audit file."""
        self.audit.reopen()
        self.access.reload()
        self._reload_certificate()

    def _reload_certificate(self) -> None:
        """Reload the certificate for new connections; an invalid one is ignored."""
        tls = self.settings.tls
        if self._tls is None or tls.test_mode:
            return
        try:
            tls.server_context()  # checks that the files match
            self._tls.load_cert_chain(tls.cert_path, tls.key_path or None, lambda: tls.key_password)
        except (ConfigError, OSError) as error:
            log.error("cannot reload the TLS certificate: %s", error)
            return
        log.info("TLS certificate reloaded")

    def metrics(self) -> "Iterator[Metric]":
        """Return the metrics for monitoring."""

        return metrics_of(self.shell, self.frame.streams, self.audit, self.clusters.values())

    def state(self) -> Iterator[str]:
        """Yield the current state."""
        yield f"requests: {self.shell.active} in flight, {self.shell.requests} in total"
        yield f"streams: {self.frame.streams.open}"
        yield from self.tasks.state()
