"""The client for programs without asyncio: the same classes, with blocking calls.

    from mq.client.sync import Consumer, Producer

    with Producer("127.0.0.1:9876", "shop") as producer:
        producer.send(Message("Orders", b"a lamp"))

An event loop runs in a background thread; options, results and errors are those of `mq.client`.
Programs with an event loop use `mq.client` directly.
"""

from mq.client.sync.admin import Admin
from mq.client.sync.consumer import Consumer, LitePullConsumer
from mq.client.sync.producer import Producer, TransactionProducer
from mq.client.sync.session import Session

__all__ = [
    "Admin",
    "Consumer",
    "LitePullConsumer",
    "Producer",
    "Session",
    "TransactionProducer",
]
