"""Options of consumers, besides those of every client."""

from dataclasses import dataclass
from pathlib import Path

from mq.client.local_offsets import DEFAULT_DIRECTORY
from mq.client.machine import clock
from mq.client.offsets import Offsets
from mq.client.options import ClientKeywords
from mq.client.process_queue import FlowLimits
from mq.client.push.listener import BatchListener, Listener
from mq.client.push.ordered import UNLIMITED
from mq.client.reader_settings import AssignmentListener
from mq.client.rebalance import Strategy, allocate_averagely
from mq.client.subscription import TAG
from mq.protocol.bodies import ConsumeFromWhere

MAX_RECONSUME_TIMES = 16  # then the broker puts a message among the dead letters
_START_SECONDS = 1800  # DefaultMQPushConsumer.consumeTimestamp: half an hour ago


@dataclass(frozen=True, kw_only=True)
class MemberOptions:
    """Options of every member of a group.

    Attributes:
        strategy: how queues are shared out; all members must have the same.
        on_assigned: called as `(topic, all, mine)` with queues, each time that a rebalance has
            changed which queues of a topic are this member's.
        offsets: a store of one's own for offsets (see `mq.client.Offsets`) instead of the brokers'
            or the file's.
        limits: what is held unfinished at most.
        expression_type: of the subscriptions, "TAG" or "SQL92".
        consume_from: where to begin in queues that the group has never committed an offset of.
        start_time: goes with CONSUME_FROM_TIMESTAMP, in ms since 1970; half an hour ago by default.
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
        """`start_time`, or its default as of now."""
        if self.start_time is not None:
            return self.start_time
        return int((clock.time() - _START_SECONDS) * 1000)


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions(MemberOptions):
    """Options of a `Consumer`.

    Attributes:
        listener: gets each message: `async def`, or a plain function, which is then called in a
            thread; see `push.listener` for what it may raise.
        batch_listener: gets lists of up to `batch` messages of one queue instead.
        batch: messages per call, with a `batch_listener`.
        concurrency: calls at a time.
        ordered: the messages of a queue come one after the other; it needs a listener.
        suspension: seconds until a message that has failed comes again, with `ordered`.
        broadcasting: every member gets every message; offsets are in a file.
        offset_directory: where that file is.
        max_reconsume_times: a message that has failed more often is a dead letter: 16 by default,
            no limit with `ordered`.
        consume_timeout: what a listener has had for so many seconds is sent back.
        pull_batch: messages per pull.
        trace: what is consumed is traced, in the trace topic or in that of the name given.
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
        """`limits`, or their defaults: an ordered queue has no span that could get too long."""
        return self.limits or FlowLimits(span=None if self.ordered else FlowLimits.span)


@dataclass(frozen=True, kw_only=True)
class PollOptions(MemberOptions):
    """Options of a `LitePullConsumer`.

    Attributes:
        auto_commit: whether what was polled is committed again and again, and at the end; else by
            `commit` only.
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
