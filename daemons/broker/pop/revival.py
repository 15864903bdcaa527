"""Reviving: what was popped and is not acknowledged in time comes again.

It goes to the retry topic of its group, together with an acknowledgement by the broker itself that
ends the check point: one write for both. A message that cannot be put there is set aside alone; the
others of its check point come again all the same, and each of them once, however often the write
has to be tried.
"""

import asyncio
import logging
from collections import Counter, deque
from functools import partial

from mq.client.machine import clock
from mq.daemons.broker.delivery.waiting import MOST_ATTEMPTS, RETRY_SECONDS, is_hopeless, is_stored
from mq.daemons.broker.delivery.writer import MessageWriter, add_what_fits
from mq.daemons.broker.pop.check_points import SERVICE, PopCheckPoints
from mq.daemons.broker.pop.receipt import normal_topic, retry_topic
from mq.daemons.broker.pop.records import PopCheckPoint
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.tables.groups import Groups
from mq.daemons.broker.tables.offsets import ConsumerOffsets
from mq.daemons.broker.tables.topics import Topics
from mq.daemons.time_slices import TURN_SECONDS
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

RETRY_QUEUES = 1  # PopAckConstants.retryQueueNum

_AT_ONCE = 256  # check points revived in one turn of the loop
# Of messages that come again in one turn, which lasts TURN_SECONDS; the last check point may be
# beyond them.
_MOST_BYTES = 4 * 1024 * 1024
_LONGEST_SLEEP = 1.0  # so that a clock that was set is noticed
# The oldest check point is written again when so many records, or so many milliseconds, lie behind
# it: a start need not read far back, and its log file may be deleted by age.
_MOST_BEHIND = 50_000
_OLDEST = 3600 * 1000
_MOST_RECONSUMED = (1 << 31) - 1  # what a record holds


class Revival:
    """The work of reviving. ``revived`` counts messages."""

    def __init__(
        self,
        points: PopCheckPoints,
        writer: MessageWriter,
        offsets: ConsumerOffsets,
        topics: Topics,
        groups: Groups,
    ) -> None:
        self._points = points
        self._writer = writer
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._attempts: Counter[PopCheckPoint] = Counter()  # that the disk has failed
        self._pauses_until = 0.0  # of the monotonic clock: what was put has been refused since
        self._busy: deque[PopCheckPoint] = deque()  # due, and not to be revived now
        self._size = 0  # bytes of messages put in this turn
        self.revived = 0

    async def run(self) -> None:
        """Revive what is due until cancelled."""
        points = self._points
        looked = 0.0
        while True:
            points.changed.clear()
            pause = self._revive_due()
            if clock.monotonic() - looked > _LONGEST_SLEEP:
                looked = clock.monotonic()
                self._points.read_rest()
                self._points.forgetting.end_some()
                self._write_old_again()
            try:
                async with asyncio.timeout(pause):
                    await points.changed.wait()
            except TimeoutError:
                pass

    def _revive_due(self) -> float:
        """Revive some of what is due; returns the seconds until there is more to do."""
        pause = self._pauses_until - clock.monotonic()
        if pause > 0:
            return pause
        now = clock.milliseconds()
        goes_on = self._revive_some(now)
        first = self._points.next_due()
        if first is not None and first <= now:  # more than this turn had time for
            return 0.0 if goes_on else RETRY_SECONDS
        if self._busy:
            self._look_again_at_some()
            return RETRY_SECONDS
        return _LONGEST_SLEEP if first is None else min(_LONGEST_SLEEP, (first - now) / 1000)

    def _revive_some(self, now: int) -> bool:
        """Revive what one turn of the loop has time for; returns False if all that there was of it
        cannot be revived now. That waits behind all others, which it does not hold up."""
        began, is_any, busy = clock.perf_counter(), False, 0
        self._size = 0
        for _ in range(_AT_ONCE):
            point = self._points.pop_due(now)
            if point is None:
                break
            if point.acks_under_way or not self._try(point):
                self._busy.append(point)
                busy += 1
            else:
                is_any = True
            if self._size >= _MOST_BYTES or clock.perf_counter() - began > TURN_SECONDS:
                break
        return is_any or not busy

    def _look_again_at_some(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._busy))):
            self._points.push(self._busy.popleft())
        self._points.changed.clear()  # those just pushed are not to be looked at at once

    def _try(self, point: PopCheckPoint) -> bool:
        """Revive a check point, or set it aside; False if that is not possible now."""
        if not self._points.can_be_read(point):
            return False
        try:
            self._revive(point)
        except StoreRefused as refusal:
            if is_hopeless(refusal):
                return self._give_up(point, refusal)
            log.warning("popped messages wait: %s", refusal, extra={"failure": "revive"})
            return False
        except OSError as error:
            self._attempts[point] += 1
            if self._attempts[point] >= MOST_ATTEMPTS:
                return self._give_up(point, error)
            log.warning("popped messages wait: %s", error, extra={"failure": "revive"})
            return False
        except Exception as error:
            return self._give_up(point, error)
        self._attempts.pop(point, None)
        return True

    def _give_up(self, point: PopCheckPoint, error: BaseException) -> bool:
        self._attempts.pop(point, None)
        points = self._points
        points.aside.put(SERVICE, error, points.topic, point.revive_queue_id, point.revive_offset)
        points.drop(point)
        return True

    def _revive(self, point: PopCheckPoint) -> None:
        """Put what is not acknowledged into the retry topic. Raises StoreRefused and OSError."""
        topic = self._retry_topic(point)
        for offset in point.missing:
            if topic is not None and offset not in point.again:
                self._put_again(point, offset, topic)

        self._points.end(point, partial(self._try_later, point))

    def _try_later(self, point: PopCheckPoint) -> None:
        """What is pushed again may wake `run` at once, and be refused at once, again and again."""
        self._pauses_until = clock.monotonic() + RETRY_SECONDS
        self._points.push(point)

    def _retry_topic(self, point: PopCheckPoint) -> str | None:
        """Where to; None if the topic or the group is not there any more, or was deleted since and
        made anew. Raises OSError."""
        if point.is_forgotten:
            return None
        topic = normal_topic(point.topic, point.group)
        if self._topics.get(topic) is None or point.group not in self._groups.table:
            return None
        again = retry_topic(point.group, topic)
        self._topics.create_internal(again, RETRY_QUEUES)
        if self._offsets.query(point.group, again, 0) < 0:
            self._offsets.commit(point.group, again, 0, 0)
        return again

    def _put_again(self, point: PopCheckPoint, offset: int, topic: str) -> None:
        """Put one message. What is not in the log any more is gone for everyone; what cannot be put
        is set aside. Raises StoreRefused for a store that takes nothing now, and OSError."""
        try:
            old = self._writer.read_entry(point.topic, point.queue_id, offset)
            if old is None:
                log.warning("%s queue %d: message %d, which group %s popped, is gone", point.topic,
                            point.queue_id, offset, point.group)  # fmt: skip
                return
            self._put(point, old, topic)
        except OSError:
            raise
        except Exception as error:
            if isinstance(error, StoreRefused) and not is_hopeless(error):
                raise
            self._points.aside.put(SERVICE, error, point.topic, point.queue_id, offset)
            point.again.add(offset)

    def _put(self, point: PopCheckPoint, old: StoredMessage, topic: str) -> None:
        message = come_again(old, point, topic, self._points.host)
        offset = old.queue_offset

        def stored(refusal: StoreRefused | None) -> None:
            if is_stored(refusal):
                self.revived += 1
            else:
                point.again.discard(offset)

        self._writer.put(message, stored)
        point.again.add(offset)
        self._size += len(message.body)

    def _write_old_again(self) -> None:
        """Let no check point keep the revive offset far back."""
        now = clock.milliseconds()
        for point, behind in self._points.oldest():
            if point.acks_under_way or point.is_reviving:
                continue
            if point.is_forgotten:  # a start would move the group, made anew, behind it
                continue
            if behind > _MOST_BEHIND or now - point.stored_at > _OLDEST:
                try:
                    self._points.put_again(point)
                except StoreRefused as refusal:
                    if not is_hopeless(refusal):
                        return
                    self._give_up(point, refusal)


def come_again(
    old: StoredMessage, point: PopCheckPoint, topic: str, host: tuple[str, int]
) -> StoredMessage:
    """What a message of a check point is in a retry topic. ``host`` is this broker's address."""
    properties = dict(old.properties)
    if old.reconsume_times == 0 or PropertyKey.FIRST_POP_TIME not in properties:
        properties.pop(PropertyKey.FIRST_POP_TIME, None)
        add_what_fits(properties, {PropertyKey.FIRST_POP_TIME: str(point.pop_time)})
    return StoredMessage(
        topic,
        old.body,
        properties,
        queue_id=0,
        flag=old.flag,
        sys_flag=old.sys_flag,
        born_timestamp=old.born_timestamp,
        born_host=host,
        reconsume_times=min(old.reconsume_times + 1, _MOST_RECONSUMED),
    )
