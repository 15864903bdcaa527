"""The asyncio client: sessions, admin calls, producers and consumers.

`mq.client.sync` offers the same for programs without an event loop. The names that most programs
need, messages included, are exported here; each is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq.client.admin import Admin as Admin
    from mq.client.consumer.consumer import Consumer as Consumer
    from mq.client.consumer.lite_pull_consumer import LitePullConsumer as LitePullConsumer
    from mq.client.consumer.options import ConsumeOptions as ConsumeOptions
    from mq.client.consumer.options import PollOptions as PollOptions
    from mq.client.consumer.push.listener import RetryLater as RetryLater
    from mq.client.consumer.push.listener import SuspendQueue as SuspendQueue
    from mq.client.consumer.push_consumer import PushConsumer as PushConsumer
    from mq.client.credentials import AccessKey as AccessKey
    from mq.client.credentials import read_access_key as read_access_key
    from mq.client.errors import BrokerError as BrokerError
    from mq.client.errors import ClientError as ClientError
    from mq.client.errors import ConnectError as ConnectError
    from mq.client.errors import MQError as MQError
    from mq.client.errors import RequestTimeout as RequestTimeout
    from mq.client.errors import RouteNotFound as RouteNotFound
    from mq.client.hooks import ConsumeContext as ConsumeContext
    from mq.client.hooks import ConsumeHook as ConsumeHook
    from mq.client.hooks import ConsumeOutcome as ConsumeOutcome
    from mq.client.hooks import HookRefused as HookRefused
    from mq.client.hooks import RpcHook as RpcHook
    from mq.client.hooks import SendContext as SendContext
    from mq.client.hooks import SendHook as SendHook
    from mq.client.offsets.offset_store import Offsets as Offsets
    from mq.client.options import ClientOptions as ClientOptions
    from mq.client.options import Intervals as Intervals
    from mq.client.options import Serialization as Serialization
    from mq.client.producer.log_handler import MessageLogHandler as MessageLogHandler
    from mq.client.producer.options import ProducerOptions as ProducerOptions
    from mq.client.producer.producer import Producer as Producer
    from mq.client.producer.transactions import TransactionCheck as TransactionCheck
    from mq.client.producer.transactions import TransactionProducer as TransactionProducer
    from mq.client.producer.transactions import TransactionResult as TransactionResult
    from mq.client.producer.transactions import TransactionState as TransactionState
    from mq.client.pull.filter_classes import ClassFilter as ClassFilter
    from mq.client.pull.process_queue import FlowLimits as FlowLimits
    from mq.client.pull.pull_consumer import PullConsumer as PullConsumer
    from mq.client.pull.subscription import Sql92 as Sql92
    from mq.client.routing.latency import FaultTolerance as FaultTolerance
    from mq.client.send_result import SendResult as SendResult
    from mq.client.send_result import SendStatus as SendStatus
    from mq.client.snode.session import SnodeSession as SnodeSession
    from mq.client.transport.blocking import BlockingSession as BlockingSession
    from mq.client.transport.session import Session as Session
    from mq.client.transport.tls import client_context as client_context
    from mq.protocol.bodies import ConsumeFromWhere as ConsumeFromWhere
    from mq.protocol.bodies import MessageQueue as MessageQueue
    from mq.protocol.message import Message as Message
    from mq.protocol.message import StoredMessage as StoredMessage

_MODULE_OF = {
    "AccessKey": "mq.client.credentials",
    "Admin": "mq.client.admin",
    "BlockingSession": "mq.client.transport.blocking",
    "BrokerError": "mq.client.errors",
    "ClassFilter": "mq.client.pull.filter_classes",
    "ClientError": "mq.client.errors",
    "ClientOptions": "mq.client.options",
    "ConnectError": "mq.client.errors",
    "ConsumeContext": "mq.client.hooks",
    "ConsumeFromWhere": "mq.protocol.bodies",
    "ConsumeHook": "mq.client.hooks",
    "ConsumeOptions": "mq.client.consumer.options",
    "ConsumeOutcome": "mq.client.hooks",
    "Consumer": "mq.client.consumer.consumer",
    "FaultTolerance": "mq.client.routing.latency",
    "FlowLimits": "mq.client.pull.process_queue",
    "HookRefused": "mq.client.hooks",
    "Intervals": "mq.client.options",
    "LitePullConsumer": "mq.client.consumer.lite_pull_consumer",
    "MQError": "mq.client.errors",
    "Message": "mq.protocol.message",
    "MessageLogHandler": "mq.client.producer.log_handler",
    "MessageQueue": "mq.protocol.bodies",
    "Offsets": "mq.client.offsets.offset_store",
    "PollOptions": "mq.client.consumer.options",
    "Producer": "mq.client.producer.producer",
    "ProducerOptions": "mq.client.producer.options",
    "PullConsumer": "mq.client.pull.pull_consumer",
    "PushConsumer": "mq.client.consumer.push_consumer",
    "RequestTimeout": "mq.client.errors",
    "RetryLater": "mq.client.consumer.push.listener",
    "RouteNotFound": "mq.client.errors",
    "RpcHook": "mq.client.hooks",
    "SendContext": "mq.client.hooks",
    "SendHook": "mq.client.hooks",
    "SendResult": "mq.client.send_result",
    "SendStatus": "mq.client.send_result",
    "Serialization": "mq.client.options",
    "Session": "mq.client.transport.session",
    "SnodeSession": "mq.client.snode.session",
    "Sql92": "mq.client.pull.subscription",
    "StoredMessage": "mq.protocol.message",
    "SuspendQueue": "mq.client.consumer.push.listener",
    "TransactionCheck": "mq.client.producer.transactions",
    "TransactionProducer": "mq.client.producer.transactions",
    "TransactionResult": "mq.client.producer.transactions",
    "TransactionState": "mq.client.producer.transactions",
    "client_context": "mq.client.transport.tls",
    "read_access_key": "mq.client.credentials",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
