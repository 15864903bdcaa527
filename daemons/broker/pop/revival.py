"""Revival: redelivers popped messages that were not acknowledged in time.

A message is put into the retry topic of its group, together with an acknowledgement by the broker
itself, which ends the check point: one write for both. A message that cannot be put there goes to
the quarantine alone; the others of its check point are redelivered nevertheless, each once, however
often the write has to be retried.
"""

import asyncio
import logging
from collections import Counter, deque
from functools import partial

from mq.client.machine import clock
from mq.daemons.broker.delivery.waiting import MOST_ATTEMPTS, RETRY_SECONDS, is_hopeless, is_stored
from mq.daemons.broker.delivery.writer import MessageWriter, add_what_fits
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.pop.check_points import SERVICE, PopCheckPoints
from mq.daemons.broker.pop.records import PopCheckPoint
from mq.daemons.broker.store import StoreRefused
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.time_slices import TURN_SECONDS
from mq.protocol.message import StoredMessage
from mq.protocol.pop_receipt import normal_topic, retry_topic
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

RETRY_QUEUES = 1  # PopAckConstants.retryQueueNum

_AT_ONCE = 256  # check points revived in one turn of the event loop
# Bytes of messages redelivered in one turn, which lasts TURN_SECONDS; the last check point may
# exceed it.
_MAX_BYTES = 4 * 1024 * 1024
_LONGEST_SLEEP = 1.0  # s; limited so that a change of the clock is noticed
# The oldest check point is written again when this many records, or ms, come after it, so that a
# start need not read far back, and its log file may be deleted by age.
_MAX_RECORDS_AFTER = 50_000
_OLDEST = 3600 * 1000
_MAX_RECONSUMED = (1 << 31) - 1  # the largest value of a record


class Revival:
    """Revives check points that are due. ``revived`` counts messages."""

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
        self._attempts: Counter[PopCheckPoint] = Counter()  # failed attempts because of the disk
        self._pauses_until = 0.0  # monotonic clock; set when a record was refused after it was put
        self._busy: deque[PopCheckPoint] = deque()  # due, but not to be revived now
        self._size = 0  # bytes of messages put in this turn
        self.revived = 0

    async def run(self) -> None:
        """Revive check points that are due, until cancelled."""
        points = self._points
        last_check = 0.0
        while True:
            points.changed.clear()
            pause = self._revive_due()
            if clock.monotonic() - last_check > _LONGEST_SLEEP:
                last_check = clock.monotonic()
                self._points.read_rest()
                self._points.deleted_groups.end_some()
                self._rewrite_old()
            try:
                async with asyncio.timeout(pause):
                    await points.changed.wait()
            except TimeoutError:
                pass

    def _revive_due(self) -> float:
        """Revive some check points; returns the seconds until the next call."""
        pause = self._pauses_until - clock.monotonic()
        if pause > 0:
            return pause
        now = clock.milliseconds()
        made_progress = self._revive_some(now)
        first = self._points.next_due()
        if first is not None and first <= now:  # more than this turn had time for
            return 0.0 if made_progress else RETRY_SECONDS
        if self._busy:
            self._requeue_busy()
            return RETRY_SECONDS
        return _LONGEST_SLEEP if first is None else min(_LONGEST_SLEEP, (first - now) / 1000)

    def _revive_some(self, now: int) -> bool:
        """Revive check points during one turn of the event loop. Returns False if all check points
        of this turn cannot be revived now. These are requeued after all others, which they do
        not delay.
        """
        began, is_any, busy = clock.perf_counter(), False, 0
        self._size = 0
        for _ in range(_AT_ONCE):
            point = self._points.pop_due(now)
            if point is None:
                break
            if point.acks_in_flight or not self._try(point):
                self._busy.append(point)
                busy += 1
            else:
                is_any = True
            if self._size >= _MAX_BYTES or clock.perf_counter() - began > TURN_SECONDS:
                break
        return is_any or not busy

    def _requeue_busy(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._busy))):
            self._points.push(self._busy.popleft())
        self._points.changed.clear()  # those just pushed must not be tried at once

    def _try(self, point: PopCheckPoint) -> bool:
        """Revive a check point, or quarantine it; False if neither is possible now."""
        if not self._points.can_be_read(point):
            return False
        try:
            self._revive(point)
        except StoreRefused as refusal:
            if is_hopeless(refusal):
                return self._give_up(point, refusal)
            log.warning(
                "redelivery of popped messages is delayed: %s", refusal, extra={"failure": "revive"}
            )
            return False
        except OSError as error:
            self._attempts[point] += 1
            if self._attempts[point] >= MOST_ATTEMPTS:
                return self._give_up(point, error)
            log.warning(
                "redelivery of popped messages is delayed: %s", error, extra={"failure": "revive"}
            )
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
        """Put the unacknowledged messages into the retry topic. Raises StoreRefused and OSError."""
        topic = self._retry_topic(point)
        for offset in point.missing:
            if topic is not None and offset not in point.retried:
                self._redeliver(point, offset, topic)

        self._points.end(point, partial(self._try_later, point))

    def _try_later(self, point: PopCheckPoint) -> None:
        """Retry later: a check point that is pushed at once could wake `run` and be refused in a
        loop.
        """
        self._pauses_until = clock.monotonic() + RETRY_SECONDS
        self._points.push(point)

    def _retry_topic(self, point: PopCheckPoint) -> str | None:
        """The retry topic; None if the topic or the group does not exist any more, or was created
        again since. Raises OSError.
        """
        if point.is_group_deleted:
            return None
        topic = normal_topic(point.topic, point.group)
        if self._topics.get(topic) is None or point.group not in self._groups.table:
            return None
        retry = retry_topic(point.group, topic)
        self._topics.create_internal(retry, RETRY_QUEUES)
        if self._offsets.query(point.group, retry, 0) < 0:
            self._offsets.commit(point.group, retry, 0, 0)
        return retry

    def _redeliver(self, point: PopCheckPoint, offset: int, topic: str) -> None:
        """Redeliver one message. A message that is no longer in the log is skipped; one that cannot
        be put goes to the quarantine. Raises StoreRefused if the store refuses messages now, and
        OSError.
        """
        try:
            old = self._writer.read_entry(point.topic, point.queue_id, offset)
            if old is None:
                log.warning("%s queue %d: message %d, popped by group %s, has expired", point.topic,
                            point.queue_id, offset, point.group)  # fmt: skip
                return
            self._put(point, old, topic)
        except OSError:
            raise
        except Exception as error:
            if isinstance(error, StoreRefused) and not is_hopeless(error):
                raise
            self._points.aside.put(SERVICE, error, point.topic, point.queue_id, offset)
            point.retried.add(offset)

    def _put(self, point: PopCheckPoint, old: StoredMessage, topic: str) -> None:
        message = retry_message(old, point, topic, self._points.host)
        offset = old.queue_offset

        def stored(refusal: StoreRefused | None) -> None:
            if is_stored(refusal):
                self.revived += 1
            else:
                point.retried.discard(offset)

        self._writer.put(message, stored)
        point.retried.add(offset)
        self._size += len(message.body)

    def _rewrite_old(self) -> None:
        """Rewrite old check points, so that the revive offset does not stay far back."""
        now = clock.milliseconds()
        for point, records_after in self._points.oldest():
            if point.acks_in_flight or point.is_reviving:
                continue
            if (
                point.is_group_deleted
            ):  # a start would advance a new group of that name past messages
                continue
            if records_after > _MAX_RECORDS_AFTER or now - point.stored_at > _OLDEST:
                try:
                    self._points.put_again(point)
                except StoreRefused as refusal:
                    if not is_hopeless(refusal):
                        return
                    self._give_up(point, refusal)


def retry_message(
    old: StoredMessage, point: PopCheckPoint, topic: str, host: tuple[str, int]
) -> StoredMessage:
    """The message in the retry topic for a message of a check point. ``host`` is this broker's
    address.
    """
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
        reconsume_times=min(old.reconsume_times + 1, _MAX_RECONSUMED),
    )
