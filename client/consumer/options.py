"""Options of consumers, in addition to those of every client."""

from dataclasses import dataclass
from pathlib import Path

from mq.client.consumer.push.listener import BatchListener, Listener
from mq.client.consumer.push.ordered import UNLIMITED
from mq.client.machine import clock
from mq.client.offsets.local_offsets import DEFAULT_DIRECTORY
from mq.client.offsets.offset_store import Offsets
from mq.client.options import ClientKeywords
from mq.client.pull.process_queue import FlowLimits
from mq.client.pull.subscription import TAG
from mq.client.reader.rebalance import Strategy, allocate_averagely
from mq.client.reader.settings import AssignmentListener
from mq.protocol.bodies import ConsumeFromWhere

MAX_RECONSUME_TIMES = 16  # after that the broker moves a message to the dead letter topic
_START_SECONDS = 1800  # half an hour (DefaultMQPushConsumer.consumeTimestamp)


@dataclass(frozen=True, kw_only=True)
class MemberOptions:
    """Options of every member of a group.

    Attributes:
        strategy: assigns queues to members; it must be the same for all members.
        on_assigned: called as `(topic, all, mine)` with queues, after each rebalance that changed
            which queues of a topic are assigned to this member.
        offsets: a custom store for offsets (see `mq.client.Offsets`) instead of the brokers or the
            file.
        limits: bounds the messages that are pulled and not consumed yet.
        expression_type: of the subscriptions, "TAG" or "SQL92".
        consume_from: where to start in queues for which the group has no committed offset.
        start_time: for CONSUME_FROM_TIMESTAMP, in ms since 1970; half an hour ago by default.
    """

    strategy: Strategy = allocate_averagely
    on_assigned: AssignmentListener | None = None
    offsets: Offsets | None = None
    limits: FlowLimits | None = None
    expression_type: str = TAG
    consume_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    start_time: int | None = None

    @property
    def begin(self) -> int:
        """`start_time`, or half an hour ago if it is not set."""
        if self.start_time is not None:
            return self.start_time
        return int((clock.time() - _START_SECONDS) * 1000)


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions(MemberOptions):
    """Options of a `Consumer`.

    Attributes:
        listener: receives each message: an `async def`, or a plain function, which is called in a
            thread. See `push.listener` for what it may raise.
        batch_listener: receives lists of up to `batch` messages of one queue instead.
        batch: messages per call of a `batch_listener`.
        concurrency: the number of concurrent calls.
        ordered: consume the messages of each queue one after the other; needs a listener.
        suspension: with `ordered`, seconds until a failed message is delivered again.
        broadcasting: every member gets every message; offsets are kept in a file.
        offset_directory: the directory of that file.
        max_reconsume_times: a message that failed more often becomes a dead letter; 16 by default,
            unlimited with `ordered`.
        consume_timeout: seconds after which an unfinished message of a listener is sent back.
        pull_batch: messages per pull.
        trace: True traces consumption in the trace topic, a string in the topic of that name.
    """

    listener: Listener | None = None
    batch_listener: BatchListener | None = None
    batch: int = 1
    concurrency: int = 20
    ordered: bool = False
    suspension: float = 1.0
    broadcasting: bool = False
    offset_directory: str | Path = DEFAULT_DIRECTORY
    max_reconsume_times: int | None = None
    consume_timeout: float = 900.0
    pull_batch: int = 32
    trace: bool | str = False

    @property
    def tries(self) -> int:
        """`max_reconsume_times`, or its default."""
        if self.max_reconsume_times is not None:
            return self.max_reconsume_times
        return UNLIMITED if self.ordered else MAX_RECONSUME_TIMES

    @property
    def flow_limits(self) -> FlowLimits:
        """`limits`, or the default: an ordered queue has no limit on the offset span."""
        return self.limits or FlowLimits(span=None if self.ordered else FlowLimits.span)


@dataclass(frozen=True, kw_only=True)
class PollOptions(MemberOptions):
    """Options of a `LitePullConsumer`.

    Attributes:
        auto_commit: commit polled messages periodically and at the end; otherwise only `commit`
            does.
        pull_batch: messages per pull.
    """

    auto_commit: bool = True
    pull_batch: int = 10


class MemberKeywords(ClientKeywords, total=False):
    """The fields of `MemberOptions` and `ClientOptions` as keywords."""

    strategy: Strategy
    on_assigned: AssignmentListener | None
    offsets: Offsets | None
    limits: FlowLimits | None
    expression_type: str
    consume_from: ConsumeFromWhere
    start_time: int | None


class ConsumeKeywords(MemberKeywords, total=False):
    """The fields of `ConsumeOptions` and `ClientOptions` as keywords."""

    listener: Listener | None
    batch_listener: BatchListener | None
    batch: int
    concurrency: int
    ordered: bool
    suspension: float
    broadcasting: bool
    offset_directory: str | Path
    max_reconsume_times: int | None
    consume_timeout: float
    pull_batch: int
    trace: bool | str


class PollKeywords(MemberKeywords, total=False):
    """The fields of `PollOptions` and `ClientOptions` as keywords."""

    auto_commit: bool
    pull_batch: int
