"""The port of a name server or a controller: TLS and access control of changes."""

from mq.daemons.acl.writers import WriteAccess, access_of, reload_access
from mq.daemons.acl.writers_config import GuardedSettings
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.memory import MemoryBudget
from mq.daemons.supervision import Tasks
from mq.daemons.tls import ServerTls, server_tls
from mq.protocol.requests import Role


class GuardedPort:
    """The configured port. ``listener`` is entered when its dispatcher has handlers.

    ``home`` is the folder of relative ACL files. Raises ConfigError if these, or certificates, are
    invalid.
    """

    def __init__(self, settings: GuardedSettings, role: Role, home: str | None) -> None:
        self._settings = settings
        self.access: WriteAccess | None = access_of(settings, role, home)
        self._tls: ServerTls | None = server_tls(settings.tls)
        server, operation = settings.server, settings.operation
        self.listener = Listener(
            Dispatcher({}, guard=self.access, slow_seconds=operation.slow_request_millis / 1000),
            settings.listen_host(),
            server.listen_port,
            idle_seconds=server.server_channel_max_idle_time_seconds,
            backlog=server.server_socket_backlog,
            buffers=server.buffers(),
            tls=self._tls,
            max_connections=lambda: settings.operation.max_connections,
            memory=MemoryBudget(
                lambda: settings.operation.connection_memory_max_bytes,
                lambda: settings.operation.client_memory_max_bytes,
            ),
        )

    @property
    def address(self) -> str:
        """host:port at which this machine reaches it."""
        host = self.listener.host
        return f"{'127.0.0.1' if host in ('', '0.0.0.0', '::') else host}:{self.listener.port}"

    def watch(self, tasks: Tasks) -> None:
        """Reload certificates and accounts when their files change."""
        if self._tls is not None:
            tasks.spawn(self._tls.watch, "certificates")
        if self.access is not None and self.access.signers is not None:
            tasks.spawn(self.access.signers.watch, "ACL files")

    def reload(self) -> None:
        """Read certificates, accounts and writeAllowList again; requests change settings."""
        if self._tls is not None:
            self._tls.reload()
        reload_access(self._settings, self.access)
