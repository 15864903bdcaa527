"""Pulls that the native path answers from frames, after Python has served a similar one.

A consumer pulls a queue again and again, and its headers differ only in offsets and opaque. The
result of the other fields (group, queue, filter) is a plan, made after Python has served such a
pull with all its checks. The native path alone reads the following headers that match the plan. A
plan is valid as long as nothing that it was made from has changed (docs/decisions/0047).

If a consumer reads a queue sequentially, the native path prefetches the entries of its next pulls
together with those of one pull; for a moment the next pulls are answered from the prefetched
entries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mq.client.machine import clock
from mq.daemons.broker.filters.properties import Expression
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.pull.native_pulls import NativePulls, PullAnswer
from mq.daemons.broker.store import ConsumeQueue, NotInMemory, Residency
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.protocol.bodies import SubscriptionGroupConfig
from mq.protocol.flags import PullSysFlag
from mq.protocol.frame import MAX_FRAME
from mq.protocol.native import failures, native
from mq.protocol.tags import TagExpression

# Fields that are the same in all pulls of a plan. The other fields are numbers that differ, or are
# irrelevant when a pull is answered at once.
_SAME = (
    *("consumerGroup", "topic", "queueId", "maxMsgNums", "sysFlag", "subVersion"),
    *("subscription", "expressionType", "maxMsgBytes"),
)
# Separates field texts, and marks a missing field: no text in UTF-8 contains these bytes.
_BETWEEN, _ABSENT = b"\xff", b"\xfe"
# Limit of plans; at the limit all are dropped and made again, because peers can make up any number.
_MOST_PLANS = 4096
# limit of their texts: compiled tag expressions take about twenty times as much
_MOST_BYTES = 512 * 1024
_LONGEST = 1024  # limit in bytes of one plan's texts
# Limit of plans with prefetched entries, about 10 KB each; at the limit all prefetched entries are
# dropped.
_MOST_PREFETCHED = 1024
_NOT_AGAIN_FOR = 0.2  # seconds until the next attempt if there was nothing to prefetch
# Longest interval in seconds between two pulls of a consumer with prefetched entries. These are
# valid for at most 0.2 s, so a slower consumer would gain little, and a prefetch may check the
# residency of a hundred chunks.
_MOST_BETWEEN = 0.02

# Sends a reply: the answer, the channel, the queue, the group and the topic.
Send = Callable[[PullAnswer, Channel, ConsumeQueue, str, str], None]


@dataclass(slots=True, eq=False)
class PullPlan:
    """The plan for pulls with the same header. ``expression`` is None if it is looked up each time.

    It is looked up if a heartbeat of the group may change it, and for filters by properties: they
    take much memory, and their own cache remembers and limits them.
    """

    group: str
    topic: str
    known: SubscriptionGroupConfig
    queue: ConsumeQueue
    maximum: int
    sys_flag: int
    commits: bool
    expression: TagExpression | None
    fields: Mapping[str, str]
    expected: range = range(0)  # the offsets at which a sequential reader asks next
    asked_at: float = 0  # monotonic time of the last update of ``expected``
    prefetched: object = None
    prefetches_at: float = 0  # monotonic time before which nothing is prefetched

    @property
    def takes_all(self) -> bool:
        """Whether no message is filtered out, so that the next ones can be prefetched."""
        return self.expression is not None and not self.expression.codes


class PlannedPulls:
    """Answers pulls by their plans. ``send`` sends a reply and counts it."""

    def __init__(
        self,
        path: NativePulls,
        groups: Groups,
        expression: Callable[[Mapping[str, str], int, str, str], Expression],
        offsets: ConsumerOffsets,
        residency: Residency,
        send: Send,
    ) -> None:
        self._path = path
        self._groups = groups
        self._expression = expression
        self._offsets = offsets
        self._residency = residency
        self._send = send
        self._plans: dict[bytes, PullPlan] = {}
        self._bytes = 0  # of the plans' texts
        self._prefetched: set[PullPlan] = set()  # plans that may have prefetched entries
        self._read: Callable[..., Any] | None = None
        if native is not None:
            self._read = native.PullReader(_SAME, _BETWEEN, _ABSENT, MAX_FRAME).read
        # Whether no plan was found for the pull that Python is about to serve.
        self.is_missed = False

    def forget(self) -> None:
        """Drop all plans: something that they were made from has changed."""
        self._plans.clear()
        self._bytes = 0
        self.forget_prefetched()

    def forget_prefetched(self) -> None:
        """Drop prefetched entries: a log file was deleted, and references to it would keep it on
        the disk.
        """
        for plan in self._prefetched:
            plan.prefetched = None
        self._prefetched.clear()

    def note(
        self,
        fields: Mapping[str, str],
        known: SubscriptionGroupConfig,
        queue: ConsumeQueue,
        expression: Expression,
        commits: bool,
    ) -> None:
        """Make the plan of a pull that has just been served natively."""
        self.is_missed = False
        sys_flag = int(fields["sysFlag"])
        by_header = bool(sys_flag & PullSysFlag.SUBSCRIPTION)
        if not by_header and not known.consume_broadcast_enable:
            return  # membership and message model are checked for each pull
        if not all(isinstance(fields.get(name, ""), str) for name in _SAME):
            return
        key = _BETWEEN.join(fields[name].encode() if name in fields else _ABSENT for name in _SAME)
        if len(key) > _LONGEST:
            return
        if len(self._plans) >= _MOST_PLANS or self._bytes > _MOST_BYTES:
            self.forget()
        if key not in self._plans:
            self._bytes += len(key)
        self._plans[key] = PullPlan(
            fields["consumerGroup"],
            fields["topic"],
            known,
            queue,
            int(fields["maxMsgNums"]),
            sys_flag,
            commits,
            expression if by_header and isinstance(expression, TagExpression) else None,
            {name: fields[name] for name in _SAME if name in fields},
        )

    def take(self, data: bytes, position: int, channel: Channel) -> int:
        """Answer the pulls that have plans, starting at a position. Stops at the first pull that
        has no plan or that Python must answer; returns its position.
        """
        read, self.is_missed = self._read, False
        if read is None or not self._path.is_taken:
            return position
        now, end = clock.monotonic(), len(data)
        while position < end and not channel.stalled:
            try:
                found = read(data, position, self._plans, self._groups.table, now)
            except failures:
                self._read = None
                self._path.end("the header of a pull")
                return position
            if found is None:
                self.is_missed = True
                return position
            following, plan, offset, committed, opaque, answer = found
            if answer is None:
                answer = self._answer(plan, offset, committed, opaque, now)
                if answer is None:
                    return position
            group, topic, queue = plan.group, plan.topic, plan.queue
            self._send(answer, channel, queue, group, topic)
            if plan.commits:
                self._offsets.commit(group, topic, queue.queue_id, committed, channel.remote)
            position = following
        return position

    def _answer(
        self, plan: PullPlan, offset: int, committed: int, opaque: int, now: float
    ) -> PullAnswer | None:
        queue = plan.queue
        if not queue.minimum <= offset < queue.readable or committed > queue.appended:
            return None
        try:
            expression: Expression | None = plan.expression
            if expression is None:
                expression = self._expression(plan.fields, plan.sys_flag, plan.group, plan.topic)
            answer = self._path.answer(
                *(queue, offset, plan.maximum, expression, self._residency, opaque)
            )
        except (NotInMemory, Refused, OSError):  # Python reports the error to the client
            return None
        if answer is not None and plan.takes_all:
            follows, begin = _follows(plan, offset, now), answer.next_offset
            plan.expected, plan.asked_at = range(begin, begin + 1), now
            has_more = queue.readable - begin >= 2 * plan.maximum
            if follows and has_more and now >= plan.prefetches_at:
                self._prefetch(plan, begin, now)
        return answer

    def _prefetch(self, plan: PullPlan, offset: int, now: float) -> None:
        """Prefetch the entries after an offset for the next pulls of a plan."""
        plan.prefetched = None
        try:
            found = self._path.prefetch(plan.queue, offset, plan.maximum, self._residency)
        except OSError:  # the pull of these messages reports the error
            found = None
        if found is None:
            plan.prefetches_at = now + _NOT_AGAIN_FOR
            return
        if len(self._prefetched) >= _MOST_PREFETCHED:
            self.forget_prefetched()
        plan.prefetched, count = found
        plan.expected = range(offset, offset + count + 1)
        self._prefetched.add(plan)


def _follows(plan: PullPlan, offset: int, now: float) -> bool:
    """Whether this pull belongs to a consumer that reads sequentially, without long pauses."""
    if offset not in plan.expected:
        return False
    # including those answered from prefetched entries
    pulls = 1 + (offset - plan.expected.start) // plan.maximum
    return now - plan.asked_at <= pulls * _MOST_BETWEEN
