"""The asyncio client: sessions, admin calls, producers and consumers; `mq.client.sync` has the same
for programs without a loop.

What most programs need can be imported from here; it is loaded when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq.client.admin import Admin as Admin
    from mq.client.blocking import BlockingSession as BlockingSession
    from mq.client.consume_options import ConsumeOptions as ConsumeOptions
    from mq.client.consume_options import PollOptions as PollOptions
    from mq.client.consumer import Consumer as Consumer
    from mq.client.credentials import AccessKey as AccessKey
    from mq.client.credentials import read_access_key as read_access_key
    from mq.client.errors import BrokerError as BrokerError
    from mq.client.errors import MQError as MQError
    from mq.client.filter_classes import ClassFilter as ClassFilter
    from mq.client.hooks import ConsumeContext as ConsumeContext
    from mq.client.hooks import ConsumeHook as ConsumeHook
    from mq.client.hooks import HookRefused as HookRefused
    from mq.client.hooks import RpcHook as RpcHook
    from mq.client.hooks import SendContext as SendContext
    from mq.client.hooks import SendHook as SendHook
    from mq.client.intervals import Intervals as Intervals
    from mq.client.latency import FaultTolerance as FaultTolerance
    from mq.client.lite_pull_consumer import LitePullConsumer as LitePullConsumer
    from mq.client.log_handler import MessageLogHandler as MessageLogHandler
    from mq.client.offsets import Offsets as Offsets
    from mq.client.options import ClientOptions as ClientOptions
    from mq.client.options import Serialization as Serialization
    from mq.client.process_queue import FlowLimits as FlowLimits
    from mq.client.producer import Producer as Producer
    from mq.client.producer_options import ProducerOptions as ProducerOptions
    from mq.client.pull_consumer import PullConsumer as PullConsumer
    from mq.client.push.listener import RetryLater as RetryLater
    from mq.client.push.listener import SuspendQueue as SuspendQueue
    from mq.client.push_consumer import PushConsumer as PushConsumer
    from mq.client.send_result import SendResult as SendResult
    from mq.client.send_result import SendStatus as SendStatus
    from mq.client.session import Session as Session
    from mq.client.snode.session import SnodeSession as SnodeSession
    from mq.client.subscription import Sql92 as Sql92
    from mq.client.tls import client_context as client_context
    from mq.client.trace.entries import ConsumeOutcome as ConsumeOutcome
    from mq.client.transactions import TransactionCheck as TransactionCheck
    from mq.client.transactions import TransactionProducer as TransactionProducer
    from mq.client.transactions import TransactionResult as TransactionResult
    from mq.client.transactions import TransactionState as TransactionState

_MODULE_OF = {
    "AccessKey": "credentials",
    "Admin": "admin",
    "BlockingSession": "blocking",
    "BrokerError": "errors",
    "ClassFilter": "filter_classes",
    "ClientOptions": "options",
    "ConsumeContext": "hooks",
    "ConsumeHook": "hooks",
    "ConsumeOptions": "consume_options",
    "ConsumeOutcome": "trace.entries",
    "Consumer": "consumer",
    "FaultTolerance": "latency",
    "FlowLimits": "process_queue",
    "HookRefused": "hooks",
    "Intervals": "intervals",
    "LitePullConsumer": "lite_pull_consumer",
    "MQError": "errors",
    "MessageLogHandler": "log_handler",
    "Offsets": "offsets",
    "PollOptions": "consume_options",
    "Producer": "producer",
    "ProducerOptions": "producer_options",
    "PullConsumer": "pull_consumer",
    "PushConsumer": "push_consumer",
    "RetryLater": "push.listener",
    "RpcHook": "hooks",
    "SendContext": "hooks",
    "SendHook": "hooks",
    "SendResult": "send_result",
    "SendStatus": "send_result",
    "Serialization": "options",
    "Session": "session",
    "SnodeSession": "snode.session",
    "Sql92": "subscription",
    "SuspendQueue": "push.listener",
    "TransactionCheck": "transactions",
    "TransactionProducer": "transactions",
    "TransactionResult": "transactions",
    "TransactionState": "transactions",
    "client_context": "tls",
    "read_access_key": "credentials",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"mq.client.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
