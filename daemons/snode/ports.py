"""The ports of a snode: that of its clients, and those that each stand for one enode."""

from mq.daemons.connection_order import SNODE_TURNS
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.memory import MemoryBudget
from mq.daemons.snode.access import SnodeAccess
from mq.daemons.snode.config import SnodeSettings
from mq.daemons.tls import ServerTls


class Ports:
    """`main` is the port of clients, `stand_ins` are by enode name. Not bound yet."""

    def __init__(
        self, settings: SnodeSettings, access: SnodeAccess | None, tls: ServerTls | None
    ) -> None:
        self._settings = settings
        self._access = access
        self._tls = tls
        self._memory = MemoryBudget(
            lambda: settings.operation.connection_memory_max_bytes,
            lambda: settings.operation.client_memory_max_bytes,
        )
        self.main = self._listener(settings.server.listen_port)
        named = settings.snode.stand_ins()
        self.stand_ins = {name: self._listener(port) for name, port in named.items()}

    def all(self) -> dict[str, Listener]:
        """All ports, by name."""
        return {"main": self.main, **self.stand_ins}

    def _listener(self, port: int) -> Listener:
        settings, server = self._settings, self._settings.server
        slow = settings.operation.slow_request_millis / 1000
        return Listener(
            Dispatcher({}, guard=self._access, slow_seconds=slow, turns=SNODE_TURNS),
            settings.listen_host,
            port,
            idle_seconds=server.server_channel_max_idle_time_seconds,
            backlog=server.server_socket_backlog,
            tls=self._tls,
            max_connections=lambda: settings.operation.max_connections,
            buffers=server.buffers(),
            memory=self._memory,
        )
