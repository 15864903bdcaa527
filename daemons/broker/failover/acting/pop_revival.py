"""Popped messages at an acting master.

The revive topic stays as the master left it: an acknowledgement counts in memory, and messages not
acknowledged in time go to the retry topic of their group at another broker. When no message of a
check point is missing any more, the offset of the revive group advances past it, and the returning
master gets that offset. So acknowledged messages of a check point with others that were not
acknowledged may be redelivered, if this broker ends or the master returns before those have been
revived. New pops are refused, because their check points would have to be written (Java has other
brokers do that).
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from functools import partial

from mq.client.machine import clock
from mq.daemons.broker.delivery.waiting import RETRY_SECONDS, StoreResults, is_stored
from mq.daemons.broker.delivery.writer import MessageWriter
from mq.daemons.broker.pop.check_points import SERVICE, PopCheckPoints
from mq.daemons.broker.pop.records import Key, PopCheckPoint
from mq.daemons.broker.pop.revival import retry_message
from mq.daemons.broker.store import OnStored, StoreRefused
from mq.daemons.supervision import Work
from mq.protocol.codes import ResponseCode
from mq.protocol.pop_receipt import normal_topic, retry_topic

log = logging.getLogger(__name__)

_AT_ONCE = 64  # check points that cannot be revived, between two pauses
_LONGEST_SLEEP = 1.0  # s; limited so that a change of the clock is noticed


class ActingCheckPoints(PopCheckPoints):
    """The check points in the log of the master, to which nothing is written."""

    def put(self, point: PopCheckPoint, on_stored: OnStored) -> None:
        raise StoreRefused(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "this slave is acting master and does not serve pops",
        )

    def acknowledge(
        self, key: Key, offsets: Sequence[int], revive_queue_id: int, due: int, on_stored: OnStored
    ) -> None:
        """Count that messages were consumed. Raises StoreRefused for an unknown check point."""
        point = self.find(key)
        # is_reviving may have been set since the caller's check
        if point is None or point.is_reviving:
            raise StoreRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this slave does not have that check point"
            )
        self.count_as_consumed(point, offsets)
        on_stored(None)

    def count_as_consumed(self, point: PopCheckPoint, offsets: Sequence[int]) -> None:
        """Mark messages of a check point as acknowledged."""
        for offset in offsets:
            self._take_ack(point.key, [offset], point.due)
        if not point.missing:
            self.drop(point)


class ActingRevival:
    """Sends messages that are not acknowledged in time to the retry topic at another broker. A
    duty.

    Also for a topic or a group that this slave does not know, because it may not have copied them
    yet.
    """

    def __init__(self, points: ActingCheckPoints, writer: MessageWriter) -> None:
        self._points = points
        self._writer = writer

    def begin(self) -> Iterable[tuple[Work, str]]:
        try:
            self._points.start()
        except BaseException:
            self._points.stop()
            raise
        yield self._run, "popped messages"

    async def finish(self) -> None:
        return

    async def end(self) -> None:
        self._points.stop()

    async def _run(self) -> None:
        left: list[PopCheckPoint] = []  # check points with messages that could not be sent
        try:
            while True:
                await self._revive_due(left)
        finally:
            for point in left:
                self._points.push(point)

    async def _revive_due(self, left: list[PopCheckPoint]) -> None:
        """Revive the next check point, or wait for one. Those in ``left`` are requeued after all
        others, which they do not delay.
        """
        points = self._points
        points.changed.clear()
        point = points.pop_due(clock.milliseconds())
        if point is not None:
            left.append(point)
            point.is_reviving = True  # later acknowledgements are refused
            try:
                is_done = await self._revive(point)
            finally:
                point.is_reviving = False
            if is_done:
                left.pop()
            else:
                await asyncio.sleep(0 if len(left) % _AT_ONCE else RETRY_SECONDS)
            return
        if left:
            while left:
                points.push(left.pop())
            await asyncio.sleep(RETRY_SECONDS)
            return
        first = points.next_due()
        pause = _LONGEST_SLEEP if first is None else (first - clock.milliseconds()) / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(pause, 0), _LONGEST_SLEEP)):
                await points.changed.wait()

    async def _revive(self, point: PopCheckPoint) -> bool:
        """Send the missing messages of a check point; False if one could not be sent."""
        sent: list[int] = []
        results = StoreResults()
        retry = retry_topic(point.group, normal_topic(point.topic, point.group))
        try:
            for offset in point.missing:
                results.put(partial(self._send, point, offset, retry, sent))
        except (StoreRefused, OSError) as error:  # the master is back, or the disk fails
            log.warning(
                "redelivery of popped messages is delayed: %s", error, extra={"failure": "revive"}
            )
        try:
            await results.wait()
        finally:
            self._points.count_as_consumed(point, sent)
        return not point.missing

    def _send(
        self, point: PopCheckPoint, offset: int, topic: str, sent: list[int], outcome: OnStored
    ) -> None:
        """Send one message, or quarantine it. Raises StoreRefused and OSError."""

        def stored(refusal: StoreRefused | None) -> None:
            if is_stored(refusal):
                sent.append(offset)
            outcome(refusal)

        try:
            old = self._writer.read_entry(point.topic, point.queue_id, offset)
            if old is None:
                log.warning("%s queue %d: message %d, popped by group %s, has expired", point.topic,
                            point.queue_id, offset, point.group)  # fmt: skip
                stored(None)
                return
            self._writer.put(retry_message(old, point, topic, self._points.host), stored)
        except (StoreRefused, OSError):
            raise
        except Exception as error:
            self._points.aside.put(SERVICE, error, point.topic, point.queue_id, offset)
            stored(None)
