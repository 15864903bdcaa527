"""A TubeMQ client: producers and consumers on an event loop.

The names that programs need are exported here; each is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq.client.tube.balance_consumer import TubeBalanceConsumer as TubeBalanceConsumer
    from mq.client.tube.consumer import TubeConsumer as TubeConsumer
    from mq.client.tube.credentials import TubeCredentials as TubeCredentials
    from mq.client.tube.errors import TubeError as TubeError
    from mq.client.tube.message import TubeBatch as TubeBatch
    from mq.client.tube.message import TubeMessage as TubeMessage
    from mq.client.tube.options import ConsumeFrom as ConsumeFrom
    from mq.client.tube.options import SessionBinding as SessionBinding
    from mq.client.tube.options import TubeConsumerOptions as TubeConsumerOptions
    from mq.client.tube.producer import TubeProducer as TubeProducer
    from mq.client.tube.producer_options import TubeProducerOptions as TubeProducerOptions
    from mq.client.tube.service import TubeService as TubeService
    from mq.client.tube.service_config import ServiceConfig as ServiceConfig

_MODULE_OF = {
    "SessionBinding": "options",
    "ConsumeFrom": "options",
    "ServiceConfig": "service_config",
    "TubeBalanceConsumer": "balance_consumer",
    "TubeBatch": "message",
    "TubeConsumer": "consumer",
    "TubeConsumerOptions": "options",
    "TubeCredentials": "credentials",
    "TubeError": "errors",
    "TubeMessage": "message",
    "TubeProducer": "producer",
    "TubeProducerOptions": "producer_options",
    "TubeService": "service",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"mq.client.tube.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
