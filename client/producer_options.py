"""Options of producers, besides those of every client."""

from dataclasses import dataclass

from mq.client.latency import FaultTolerance
from mq.client.options import ClientKeywords
from mq.client.outgoing import MAX_BODY
from mq.protocol.compression import MAX_DECOMPRESSED

# For what was stored already: brokers refuse what is over their maxMessageSize, and no reader
# decompresses more.
ANY_BODY = MAX_DECOMPRESSED
JAVA_TOLERANCE = FaultTolerance()
COMPRESS_OVER = 4096  # bytes of body; from here on it is sent compressed, as Java's producers do


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """Options of producers, plain ones and those of transactions.

    Attributes:
        timeout: seconds for a `send` with all its tries. A try that has no answer after its share
            of them continues, and the next try begins at another broker.
        retries: how many tries there are besides the first.
        retry_not_stored: whether a status other than SEND_OK has a message tried at another broker
            (retryAnotherBrokerWhenNotStoreOK), after which both may have it.
        compress_over: bytes of body from which on it is sent compressed.
        max_body: bytes of body; more are refused.
        faults: brokers that have failed or been slow are avoided for a while
            (sendLatencyFaultEnable); None uses them all in turn.
        vip_channel: messages go to the port that brokers keep for senders, two below their own.
        trace: what is sent is traced, in the trace topic or in that of the name given.
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

    `timeout` is that of a send; the one of requests is `ClientOptions.timeout` in an object only.
    """

    retries: int
    retry_not_stored: bool
    compress_over: int
    max_body: int
    faults: FaultTolerance | None
    vip_channel: bool
    trace: bool | str
