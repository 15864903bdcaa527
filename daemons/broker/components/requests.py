"""Request table: the handler of each request of a broker, and the ports that serve it."""

from collections.abc import Iterable

from mq.daemons.broker.component import Component
from mq.daemons.broker.components.services import Services
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.dispatch.limits import RATE_SETTING, SendRates
from mq.daemons.dispatch import Dispatcher
from mq.daemons.request_codes import handlers_of, merge
from mq.protocol.codes import Dialect


def serve(
    settings: BrokerSettings,
    components: Iterable[Component],
    services: Services,
    main: Dispatcher,
    fast: Dispatcher,
) -> None:
    """Serve the requests of all components on both ports. The fast port (Java: listenPort - 2)
    serves requests that must not wait behind pulls.
    """
    common = merge(*(component.handlers() for component in components))
    main.serve(
        merge(common, handlers_of(services.pulls), services.pop.handlers()),
        services.pulls.direct(),
    )
    fast.serve(common)
    main.serve_dialect(Dialect.SNODE, handlers_of(services.snode_handlers()))

    def serve_sends() -> None:
        """Serve sends on both ports, behind a rate limit if there is one."""
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
