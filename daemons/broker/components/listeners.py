"""The two ports of a broker: their requests, their limits of connections, and the limit of the time
that a send waits.
"""

from collections.abc import Iterable

from mq.daemons.broker.acl.access import AccessControl
from mq.daemons.broker.component import Component
from mq.daemons.broker.components.services import Services
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.dispatch.limits import RATE_SETTING, SendRates
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.memory import MemoryBudget
from mq.daemons.request_codes import handlers_of, merge
from mq.daemons.tls import ServerTls
from mq.protocol.codes import Dialect


def serve(
    settings: BrokerSettings,
    components: Iterable[Component],
    services: Services,
    main: Dispatcher,
    fast: Dispatcher,
) -> None:
    """Serve the requests of all components on both ports. The fast port (Java: listenPort - 2)
    serves requests that must not wait until pulls are served.
    """
    common = merge(*(component.handlers() for component in components))
    main.serve(
        merge(common, handlers_of(services.pulls), services.pop.handlers()),
        services.pulls.direct(),
    )
    fast.serve(common)
    main.serve_dialect(Dialect.SNODE, handlers_of(services.snode_handlers()))

    def serve_sends() -> None:
        """Serve sends on both ports, with the rate limit if one is set."""
        native = services.sends.native
        native.settle()  # later requests are not checked for their order after these
        handlers, direct = handlers_of(services.sends), services.sends.direct()
        bulk = native.bulk
        rate = settings.operation.client_send_rate
        if rate:
            limit = SendRates(rate, lambda code, cause: main.refusals.update([(code, cause)]))
            handlers, direct, bulk = limit.handlers(handlers), limit.direct(direct), None
        for dispatcher in (main, fast):
            dispatcher.serve(handlers, direct)
        defer = native.defer if bulk else None
        fast.serve_bulk(bulk, defer)
        main.serve_bulk(bulk and native.bulk_with(services.pulls.planned.take), defer)

    serve_sends()
    services.sends.native.on_end = serve_sends
    settings.on_change.append(lambda names: serve_sends() if RATE_SETTING in names else None)


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
