"""The two ports of a broker: their limits of connections, and of the time that a send waits."""

from mq.daemons.broker.acl.access import AccessControl
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.memory import MemoryBudget
from mq.daemons.tls import ServerTls


def make_listeners(
    settings: BrokerSettings, access: AccessControl | None, tls: ServerTls | None
) -> tuple[Listener, Listener]:
    """The main listener and the fast one, both unbound. They share one memory budget."""
    memory = MemoryBudget(
        lambda: settings.operation.connection_memory_max_bytes,
        lambda: settings.operation.client_memory_max_bytes,
    )
    main = _make_listener(settings, settings.server.listen_port, access, tls, memory)
    return main, _make_listener(settings, settings.fast_port, access, tls, memory)


def _make_listener(
    settings: BrokerSettings,
    port: int,
    access: AccessControl | None,
    tls: ServerTls | None,
    memory: MemoryBudget,
) -> Listener:
    server = settings.server
    dispatcher = Dispatcher(
        {},
        guard=access,
        slow_seconds=settings.operation.slow_request_millis / 1000,
    )
    return Listener(
        dispatcher,
        settings.listen_host,
        port,
        idle_seconds=server.server_channel_max_idle_time_seconds,
        backlog=server.server_socket_backlog,
        tls=tls,
        max_connections=lambda: settings.operation.max_connections,
        longest_wait=lambda: _longest_wait(settings),
        busy_poll=lambda: settings.operation.busy_poll_micros / 1_000_000,
        buffers=server.buffers(),
        memory=memory,
    )


def _longest_wait(settings: BrokerSettings) -> float:
    """Limit in seconds of a send's wait before it is read; 0 for no limit."""
    config = settings.broker
    if not config.broker_fast_failure_enable:
        return 0.0
    return config.wait_time_mills_in_send_queue / 1000
