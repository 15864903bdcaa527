"""Pulls of a range of a queue: several requests in flight, results in the order of offsets.

The range is cut into slots, and each is requested with one pull. A broker may return fewer messages
than requested (Java: 32 from memory, 8 from disk, 256 KB), and a filter lets few of them through. A
reply states up to which offset it extends; the rest of its slot becomes a slot of its own, which is
requested at once. The size of slots follows that of replies: a short reply makes the next slots
smaller, a sequence of full ones makes them larger again. Records are returned as soon as every slot
before theirs is complete.

Our own brokers return a megabyte at a time if the request allows it (maxMsgBytes, see
docs/decisions/0025-large-pulls.md). Their replies are limited by bytes alone, so the next slots are
as large as just fits, according to the size of the last records.
"""

import logging
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mq.client.errors import (
    BadAnswer,
    BrokerError,
    ConnectError,
    MQError,
    RequestTimeout,
    RouteNotFound,
    for_code,
)
from mq.client.routing.routes import broker_address
from mq.client.transport.blocking import BlockingSession, run
from mq.pipeline.data_loss import report_away, report_gone
from mq.pipeline.records import Integers, walk
from mq.pipeline.wire import Frame, Wire
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import PullSysFlag
from mq.protocol.frame import encode
from mq.protocol.tags import ALL_TAGS

log = logging.getLogger(__name__)

WINDOW = 16  # pulls in flight: hides the round trip to the broker, and bounds the records that wait
# Full replies in a row before slots become larger. The number doubles after each failed attempt,
# because then the rest of each slot comes late, and its records far from their neighbours.
_GROW_AFTER = 2 * WINDOW
_GROW_AFTER_MOST = 64 * WINDOW
# With larger replies fewer pulls are in flight: as many as add up to this size, at least two.
_WINDOW_BYTES = 4 * 1024 * 1024
# Limit of a reply in bytes, if the broker supports it. It does if a reply exceeds half of it.
_BULK_BYTES = 1024 * 1024
_FILLED = 0.95  # of it, so that records of varying size do not make every second reply come short
_EMPTY_PAUSE = 0.1  # seconds until an offset that does not exist yet is requested again

_FOUND = int(ResponseCode.SUCCESS)
# No message at that offset yet, no matching message, and an offset outside the queue.
WITHOUT_MESSAGES = (
    int(ResponseCode.PULL_NOT_FOUND),
    int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    int(ResponseCode.PULL_OFFSET_MOVED),
)


class QueueRange(NamedTuple):
    """Messages of a queue: from the offset `begin`, up to but without `end`."""

    topic: str
    broker_name: str
    queue_id: int
    begin: int
    end: int

    @property
    def queue(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic} at broker {self.broker_name}"


class PullSettings(NamedTuple):
    """How ranges are pulled."""

    group: str
    expression: str = ALL_TAGS
    expression_type: str = "TAG"
    batch: int = 8192  # maximum number of messages per request
    timeout: float = 10.0  # seconds for a reply
    retries: int = 3
    retry_pause: float = 1.0  # seconds; doubled before each further retry
    fail_on_data_loss: bool = True
    # continue without a broker that stays unavailable, if data loss is allowed
    skip_absent: bool = True


class Segment(NamedTuple):
    """Received records: their positions in a buffer, ascending."""

    buffer: bytearray
    positions: Integers


_NO_RECORDS = Segment(bytearray(), np.empty(0, np.int64))


class _Slot:
    """A part of the range, in a list ordered by offset. `records` is None until they have
    arrived.
    """

    __slots__ = ("begin", "end", "next", "records", "since")

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self.records: Segment | None = None
        self.next: _Slot | None = None
        self.since: float | None = None  # when the broker first had nothing at its offset


class QueuePuller:
    """Pulls one range; iterate over `segments` once."""

    def __init__(
        self, session: BlockingSession, pulled: QueueRange, settings: PullSettings
    ) -> None:
        self._session = session
        self._range = pulled
        self._settings = settings
        self._fields = pull_fields(pulled, settings)
        self._wire: Wire | None = None
        self._of_replica = False  # the master is unavailable, and a replica is read
        self._asked: dict[int, _Slot] = {}
        self._opaque = 0
        self._step = settings.batch
        self._full_replies = 0
        self._grow_after = _GROW_AFTER
        self._window = 1  # until the first reply has shown how much the broker returns
        self._failures = 0
        self._next_begin = pulled.begin
        self._first: _Slot | None = None
        self._last: _Slot | None = None

    def segments(self) -> Iterator[Segment]:
        """Yield the records of the range in the order of their offsets.

        A segment is valid until the next one is requested: its buffer is reused. Raises DataLoss
        for deleted messages if the settings say so, BrokerError if the broker refuses a pull, and
        the last error if all retries fail.
        """
        buffer = _NO_RECORDS.buffer
        begun: list[Integers] = []
        for each in self._replies():
            # A late reply to an early request is after others in the buffer, but positions must
            # ascend.
            if each.buffer is not buffer or each.positions[0] < begun[-1][-1]:
                if begun:
                    yield Segment(buffer, np.concatenate(begun))
                self._recycle(buffer)
                buffer, begun = each.buffer, []
            begun.append(each.positions)
        if begun:
            yield Segment(buffer, np.concatenate(begun))

    def _replies(self) -> Iterator[Segment]:
        """Yield the records of each reply."""
        try:
            while self._first is not None or self._next_begin < self._range.end:
                try:
                    self._ask()
                    self._accept(self._connected().receive())
                    self._failures = 0
                except (ConnectError, RequestTimeout, RouteNotFound, BadAnswer) as error:
                    if not self._retry(error):
                        return
                except BrokerError as error:
                    if not error.retriable or self._failures >= self._settings.retries:
                        raise
                    self._retry(error)
                yield from self._complete()
        finally:
            self._disconnect()

    def _recycle(self, buffer: bytearray) -> None:
        """Reuse a buffer, unless it holds replies that wait for others."""
        slot = self._first
        while slot is not None:
            if slot.records is not None and slot.records.buffer is buffer:
                return
            slot = slot.next
        if self._wire is not None:
            self._wire.recycle(buffer)

    # requests -------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Fill the window, with one write."""
        wire = self._connected()
        requests: list[bytes] = []
        if self._window // 2 < len(self._asked) < self._window:
            return  # wait to send several with one write: waking the broker is the main cost
        while len(self._asked) < self._window and self._next_begin < self._range.end:
            end = min(self._next_begin + self._step, self._range.end)
            slot = _Slot(self._next_begin, end)
            self._next_begin = end
            if self._last is None:
                self._first = slot
            else:
                self._last.next = slot
            self._last = slot
            requests.append(self._request(slot))
        if requests:
            wire.send(b"".join(requests))

    def _request(self, slot: _Slot) -> bytes:
        self._opaque += 1
        self._asked[self._opaque] = slot
        self._fields["queueOffset"] = str(slot.begin)
        self._fields["maxMsgNums"] = str(slot.end - slot.begin)
        fields = dict(self._fields)
        command = Command(RequestCode.PULL_MESSAGE, fields, opaque=self._opaque)
        if self._session.credentials is not None:
            self._session.credentials.sign(command)
        return encode(command)

    # replies --------------------------------------------------------------------------------------

    def _accept(self, frame: Frame) -> None:
        opaque = frame.header.get("opaque")
        slot = self._asked.pop(opaque, None) if isinstance(opaque, int) else None
        if slot is None:
            return  # a request of the broker, such as "consumers have changed"
        try:
            self._accept_reply(slot, frame)
        except MQError:
            if slot.records is None:
                self._asked[-1] = slot  # requested again if there is another attempt
            raise

    def _accept_reply(self, slot: _Slot, frame: Frame) -> None:
        code = frame.header.get("code")
        remark = frame.header.get("remark")
        address = self._connected().address
        if code != _FOUND and code not in WITHOUT_MESSAGES:
            number = code if isinstance(code, int) else -1
            raise for_code(number, remark if isinstance(remark, str) else None, address)
        fields = frame.header.get("extFields")
        try:
            assert isinstance(fields, dict)
            next_offset = int(fields["nextBeginOffset"])
            least, most = int(fields["minOffset"]), int(fields["maxOffset"])
        except (AssertionError, KeyError, ValueError):
            raise BadAnswer(address, "a pull reply without its offsets") from None
        if code == _FOUND:
            self._take(slot, frame, next_offset, address)
        elif next_offset > slot.begin:
            # Without a filter every message matches, so it has been deleted.
            if slot.begin < least or self._settings.expression == ALL_TAGS:
                self._lose(slot.begin, min(next_offset, slot.end))
            self._finish(slot, next_offset)
        else:
            self._wait_for(slot, most)

    def _take(self, slot: _Slot, frame: Frame, next_offset: int, address: str) -> None:
        if next_offset <= slot.begin:
            raise BadAnswer(address, f"messages from {slot.begin}, but next offset {next_offset}")
        before = slot.end if next_offset > slot.end else None
        try:
            positions = walk(frame.buffer, frame.body_start, frame.body_end, before)
        except RemoteProtocolError as error:
            raise BadAnswer(address, f"{self._range.queue} at {slot.begin}: {error}") from None
        self._learn(slot, next_offset, frame.body_end - frame.body_start)
        slot.records = Segment(frame.buffer, positions)
        self._finish(slot, next_offset)

    def _learn(self, slot: _Slot, next_offset: int, size: int) -> None:
        """Adapt the size of the next slots to the number of messages that the broker returned."""
        self._window = min(WINDOW, max(2, _WINDOW_BYTES // max(1, size)))
        given = next_offset - slot.begin
        if size > _BULK_BYTES // 2:
            step = int(_FILLED * given * _BULK_BYTES / size)
            self._step = min(max(1, step), self._settings.batch)
        elif next_offset < slot.end:
            # otherwise it is a slot from before the last change
            if slot.end - slot.begin >= self._step:
                self._grow_after = min(2 * self._grow_after, _GROW_AFTER_MOST)
            self._step = given
            self._full_replies = 0
        else:
            self._full_replies += 1
            if self._full_replies >= self._grow_after and self._step < self._settings.batch:
                self._step = min(2 * self._step, self._settings.batch)
                self._full_replies = 0

    def _finish(self, slot: _Slot, next_offset: int) -> None:
        """Mark the slot as complete up to `next_offset`, and request the rest of it, if there is
        one.
        """
        if slot.records is None:
            slot.records = _NO_RECORDS
        if next_offset < slot.end and slot is self._last:
            self._next_begin = slot.end = next_offset
        elif next_offset < slot.end:
            rest = _Slot(next_offset, slot.end)
            slot.end = next_offset
            rest.next = slot.next
            slot.next = rest
            self._connected().send(self._request(rest))

    def _wait_for(self, slot: _Slot, most: int) -> None:
        """Handle an offset that the broker does not have, but had when the query was planned.

        A replica that took over may lag; it gets as long as a reply may take.
        """
        now = time.monotonic()
        if slot.since is None:
            slot.since = now
        if now - slot.since > self._settings.timeout:
            if self._of_replica:  # the master may have it, and may return
                address = self._connected().address
                raise ConnectError(address, f"a replica, which ends at {most}")
            self._lose(slot.begin, slot.end, f"it ends at {most} now")
            self._finish(slot, slot.end)
            return
        time.sleep(_EMPTY_PAUSE)
        self._connected().send(self._request(slot))

    def _lose(self, begin: int, end: int, why: str = "they were deleted") -> None:
        report_gone(self._range.queue, begin, end, why, fail=self._settings.fail_on_data_loss)

    def _complete(self) -> Iterator[Segment]:
        """Remove the slots whose records have arrived, as long as none is missing before them."""
        while self._first is not None and self._first.records is not None:
            records = self._first.records
            self._first = self._first.next
            if self._first is None:
                self._last = None
            if len(records.positions):
                yield records

    # connections ----------------------------------------------------------------------------------

    def _connected(self) -> Wire:
        if self._wire is None:
            topic, name = self._range.topic, self._range.broker_name
            route = run(self._session.route(topic))
            address = broker_address(route, name, exact=False)
            if address is None:
                raise RouteNotFound(topic, f"no broker {name} in its route")
            self._wire = Wire(address, self._settings.timeout, self._session.tls)
            was_replica, self._of_replica = self._of_replica, address != broker_address(route, name)
            lost, self._asked = self._asked, {}
            if was_replica and not self._of_replica:  # the master may need a moment, too
                for slot in lost.values():
                    slot.since = None
            again = [self._request(slot) for slot in lost.values()]
            if again:
                self._wire.send(b"".join(again))
        return self._wire

    def _disconnect(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _retry(self, error: MQError) -> bool:
        """Pause before another attempt. If none is left, raise, or report the unread part and
        return False.
        """
        self._disconnect()
        self._session.outdate_route(self._range.topic)
        self._failures += 1
        left = self._range.begin if self._first is None else self._first.begin
        if self._failures > self._settings.retries:
            what = f"{self._range.queue}, offset {left}: {self._failures} attempts failed: {error}"
            report_away(
                what,
                self._range.end,
                error,
                fail=self._settings.fail_on_data_loss,
                skip=self._settings.skip_absent,
            )
            return False
        pause = self._settings.retry_pause * 2 ** (self._failures - 1)
        log.warning("%s, offset %d: retrying in %g s: %s", self._range.queue, left, pause, error)
        time.sleep(pause)
        return True


def pull_fields(pulled: QueueRange, settings: PullSettings) -> dict[str, str]:
    """Return the fields that are the same in every pull (PullMessageRequestHeader)."""
    return {
        "consumerGroup": settings.group,
        "topic": pulled.topic,
        "queueId": str(pulled.queue_id),
        "sysFlag": str(PullSysFlag.SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": settings.expression,
        "subVersion": "0",
        "expressionType": settings.expression_type,
        "maxMsgBytes": str(_BULK_BYTES),
    }
