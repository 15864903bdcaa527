"""Options of producers, in addition to those of every client."""

from dataclasses import dataclass

from mq.client.options import ClientKeywords
from mq.client.producer.outgoing import MAX_BODY
from mq.client.routing.latency import FaultTolerance
from mq.protocol.compression import MAX_DECOMPRESSED

# For messages that were stored before: brokers refuse bodies over their maxMessageSize, and no
# reader decompresses more.
ANY_BODY = MAX_DECOMPRESSED
JAVA_TOLERANCE = FaultTolerance()
COMPRESS_OVER = 4096  # bytes of body; larger bodies are compressed, as in Java's producers


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """Options of producers, including transactional ones.

    Attributes:
        timeout: seconds for a `send` with all attempts. An attempt that is not answered within its
            share of them continues while the next attempt starts at another broker.
        retries: the number of attempts after the first.
        retry_not_stored: retry at another broker after a status other than SEND_OK
            (retryAnotherBrokerWhenNotStoreOK), after which both may have the message.
        compress_over: bytes of body from which it is compressed.
        max_body: the largest accepted body, in bytes.
        faults: avoid failed or slow brokers for a while (sendLatencyFaultEnable); None uses all
            brokers in turn.
        vip_channel: send to the port that brokers reserve for producers, two below their main port.
        trace: True traces sends in the trace topic, a string in the topic of that name.
    """

    timeout: float = 3.0
    retries: int = 2
    retry_not_stored: bool = False
    compress_over: int = COMPRESS_OVER
    max_body: int = MAX_BODY
    faults: FaultTolerance | None = JAVA_TOLERANCE
    vip_channel: bool = False
    trace: bool | str = False


class ProducerKeywords(ClientKeywords, total=False):
    """The fields of `ProducerOptions` and `ClientOptions` as keywords.

    `timeout` is the timeout of a send; that of requests can be set only with
    `ClientOptions.timeout`.
    """

    retries: int
    retry_not_stored: bool
    compress_over: int
    max_body: int
    faults: FaultTolerance | None
    vip_channel: bool
    trace: bool | str
