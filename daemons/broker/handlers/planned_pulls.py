"""Pulls that the native path takes from frames, once Python has served one like them.

A consumer asks for a queue again and again, and its headers say the same but for offsets and
opaque. What comes of the rest (group, queue, filter) is a plan, made when Python has served such a
pull with all its checks. The next headers that say the same are read by the native path alone. A
plan counts as long as nothing that it was made from has changed (docs/decisions/0047).

Who reads a queue from one offset to the next has the entries of the next pulls read ahead with
those of one: for a moment these get what has been prefetched.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mq.client.machine import clock
from mq.daemons.broker.filter.subscriptions import Expression
from mq.daemons.broker.handlers.native_pulls import NativePulls, PullAnswer
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.residency import NotInMemory, Residency
from mq.daemons.broker.tables.groups import Groups
from mq.daemons.broker.tables.offsets import ConsumerOffsets
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.protocol.bodies import SubscriptionGroupConfig
from mq.protocol.flags import PullSysFlag
from mq.protocol.frame import MAX_FRAME
from mq.protocol.native import failures, native
from mq.protocol.tags import TagExpression

# Fields that are the same in all pulls of a plan. Others are numbers that differ, or are not looked
# at where a pull is answered at once.
_SAME = (
    *("consumerGroup", "topic", "queueId", "maxMsgNums", "sysFlag", "subVersion"),
    *("subscription", "expressionType", "maxMsgBytes"),
)
# Between their texts, and for one that is not there: no text in UTF-8 has these bytes.
_BETWEEN, _ABSENT = b"\xff", b"\xfe"
# Beyond these all are forgotten, and made anew: peers can make up as many as they like.
_MOST_PLANS = 4096
_MOST_BYTES = 512 * 1024  # of their texts: expressions over tags take some twenty times as many
_LONGEST = 1024  # bytes of the texts of one
# Plans with something prefetched, some 10 KB each; beyond it that of all is forgotten.
_MOST_PREFETCHED = 1024
_NOT_AGAIN_FOR = 0.2  # seconds, where there was nothing to prefetch
# Seconds between two pulls of who has something prefetched. That counts for 0.2 s at most: who asks
# less often would get little of it, for which a hundred chunks may have been asked for.
_MOST_BETWEEN = 0.02

#: Sends an answer: what was found, for whom, of which queue, group and topic.
Send = Callable[[PullAnswer, Channel, ConsumeQueue, str, str], None]


@dataclass(slots=True, eq=False)
class PullPlan:
    """What pulls with the same header get: ``expression`` is None where it is looked up each time.

    The group's heartbeats may say something else the next time; and filters by properties, which
    take a lot of memory, are remembered where they are read, and no more of them than there.
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
    expected: range = range(0)  # where who reads one message after the other asks next
    asked_at: float = 0  # when that was found out, by the monotonic clock
    prefetched: object = None
    prefetches_at: float = 0  # of the monotonic clock, or later

    @property
    def takes_all(self) -> bool:
        """Whether no message is filtered out: what comes next can be prefetched."""
        return self.expression is not None and not self.expression.codes


class PlannedPulls:
    """Answers pulls by their plans. ``send`` sends an answer and counts it."""

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
        self._bytes = 0  # of their texts
        self._prefetched: set[PullPlan] = set()  # those that may have something prefetched
        self._read: Callable[..., Any] | None = None
        if native is not None:
            self._read = native.PullReader(_SAME, _BETWEEN, _ABSENT, MAX_FRAME).read
        #: The pull that Python is about to serve has been looked for in vain.
        self.is_missed = False

    def forget(self) -> None:
        """Something has changed that plans are made from."""
        self._plans.clear()
        self._bytes = 0
        self.forget_prefetched()

    def forget_prefetched(self) -> None:
        """A file of the log has been deleted: what is held of it would keep it on the disk."""
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
            return  # who is a member, and how they consume, has to be looked at each time
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
        """Answer the pulls that have plans, from a position on, up to the first that has none, or
        is for Python to answer; returns where that begins."""
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
            behind, plan, offset, committed, opaque, answer = found
            if answer is None:
                answer = self._answer(plan, offset, committed, opaque, now)
                if answer is None:
                    return position
            group, topic, queue = plan.group, plan.topic, plan.queue
            self._send(answer, channel, queue, group, topic)
            if plan.commits:
                self._offsets.commit(group, topic, queue.queue_id, committed, channel.remote)
            position = behind
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
        except (NotInMemory, Refused, OSError):  # who asks is told by Python
            return None
        if answer is not None and plan.takes_all:
            follows, begin = _follows(plan, offset, now), answer.next_offset
            plan.expected, plan.asked_at = range(begin, begin + 1), now
            has_more = queue.readable - begin >= 2 * plan.maximum
            if follows and has_more and now >= plan.prefetches_at:
                self._prefetch(plan, begin, now)
        return answer

    def _prefetch(self, plan: PullPlan, offset: int, now: float) -> None:
        """Have what comes behind an offset ready for the next pulls of a plan."""
        plan.prefetched = None
        try:
            found = self._path.prefetch(plan.queue, offset, plan.maximum, self._residency)
        except OSError:  # who asks for them is told
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
    """Whether this is a pull of who reads one message after the other, and without long breaks."""
    if offset not in plan.expected:
        return False
    pulls = 1 + (offset - plan.expected.start) // plan.maximum  # with those that got the prefetched
    return now - plan.asked_at <= pulls * _MOST_BETWEEN
