"""Pulls of a range of a queue: several requests ahead, in the order of its offsets.

The range is cut into slots, each asked for with one pull. A broker gives fewer messages than asked
for as it likes (Java: 32 from memory, 8 from disk, 256 KB), and a filter lets few of them through;
a reply says up to which offset it goes, and what is left of its slot becomes a slot of its own,
asked for at once. Slots follow the size of the replies: one that came short makes the next slots
smaller, a row of full ones makes them larger again. Records are handed on as soon as every slot
before theirs is complete.

Our own brokers give a megabyte at a time to whoever says that he takes it (maxMsgBytes, see
docs/decisions/0025-large-pulls.md). Their replies are cut by bytes alone, so that the next slots
are as large as, by the size of the last records, just fits.
"""

import logging
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mq.client.blocking import BlockingSession, run
from mq.client.errors import (
    BadAnswer,
    BrokerError,
    ConnectError,
    MQError,
    RequestTimeout,
    RouteNotFound,
    for_code,
)
from mq.client.routes import broker_address
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

WINDOW = 16  # pulls under way: hides the way to the broker and back, and bounds what is held back
# Full replies in a row before slots become larger; twice as many after each time that failed, for
# then the rest of each slot comes late, and its records far from their neighbours.
_GROW_AFTER = 2 * WINDOW
_GROW_AFTER_MOST = 64 * WINDOW
# Of replies that are larger fewer are under way: as many as come to so many bytes, two at least.
_WINDOW_BYTES = 4 * 1024 * 1024
# What a reply may hold, if the broker lets a pull say so. A reply of half of it did.
_BULK_BYTES = 1024 * 1024
_FILLED = 0.95  # of it, so that sizes that vary do not make every second reply come short
_EMPTY_PAUSE = 0.1  # seconds before an offset is asked for again that is not there yet

_FOUND = int(ResponseCode.SUCCESS)
# Nothing at that offset yet, nothing that matches, and an offset outside the queue.
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
    batch: int = 8192  # messages asked for at a time, at most
    timeout: float = 10.0  # seconds for a reply
    retries: int = 3
    retry_pause: float = 1.0  # seconds; twice as long before each further one
    fail_on_data_loss: bool = True
    skip_absent: bool = True  # go on without a broker that stays away, where a loss does not fail


class Segment(NamedTuple):
    """Records that were received: where they begin in a buffer, ascending."""

    buffer: bytearray
    positions: Integers


_NO_RECORDS = Segment(bytearray(), np.empty(0, np.int64))


class _Slot:
    """A part of the range, in a chain by offsets. `records` is None until they have come."""

    __slots__ = ("begin", "end", "next", "records", "since")

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self.records: Segment | None = None
        self.next: _Slot | None = None
        self.since: float | None = None  # when its offset was first not there yet


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
        self._of_replica = False  # is pulled from, for the master is away
        self._asked: dict[int, _Slot] = {}
        self._opaque = 0
        self._step = settings.batch
        self._full_replies = 0
        self._grow_after = _GROW_AFTER
        self._window = 1  # until the first reply has told how much the broker gives
        self._failures = 0
        self._next_begin = pulled.begin
        self._first: _Slot | None = None
        self._last: _Slot | None = None

    def segments(self) -> Iterator[Segment]:
        """The records of the range in the order of their offsets.

        A segment is good until the next one is asked for: its buffer is used again. Raises DataLoss
        for messages that are not there any more if that is to fail, BrokerError when the broker
        refuses, and when no try succeeds what the last one met.
        """
        buffer = _NO_RECORDS.buffer
        begun: list[Integers] = []
        for each in self._replies():
            # A late reply to an early request lies behind others: positions are to ascend.
            if each.buffer is not buffer or each.positions[0] < begun[-1][-1]:
                if begun:
                    yield Segment(buffer, np.concatenate(begun))
                self._recycle(buffer)
                buffer, begun = each.buffer, []
            begun.append(each.positions)
        if begun:
            yield Segment(buffer, np.concatenate(begun))

    def _replies(self) -> Iterator[Segment]:
        """The records of each reply."""
        try:
            while self._first is not None or self._next_begin < self._range.end:
                try:
                    self._ask()
                    self._accept(self._connected().receive())
                    self._failures = 0
                except (ConnectError, RequestTimeout, RouteNotFound, BadAnswer) as error:
                    if not self._try_again(error):
                        return
                except BrokerError as error:
                    if not error.retriable or self._failures >= self._settings.retries:
                        raise
                    self._try_again(error)
                yield from self._complete()
        finally:
            self._disconnect()

    def _recycle(self, buffer: bytearray) -> None:
        """Let a buffer be used again, unless it holds replies that wait for others."""
        slot = self._first
        while slot is not None:
            if slot.records is not None and slot.records.buffer is buffer:
                return
            slot = slot.next
        if self._wire is not None:
            self._wire.recycle(buffer)

    # asking ---------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Fill the window, with one write."""
        wire = self._connected()
        requests: list[bytes] = []
        if self._window // 2 < len(self._asked) < self._window:
            return  # several go out with one write: waking the broker is what costs
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

    # accepting ------------------------------------------------------------------------------------

    def _accept(self, frame: Frame) -> None:
        opaque = frame.header.get("opaque")
        slot = self._asked.pop(opaque, None) if isinstance(opaque, int) else None
        if slot is None:
            return  # what a broker sends by itself, such as "consumers have changed"
        try:
            self._accept_reply(slot, frame)
        except MQError:
            if slot.records is None:
                self._asked[-1] = slot  # to be asked for again, should there be another try
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
            # Without a filter there is nothing that would not match: it has been deleted.
            if slot.begin < least or self._settings.expression == ALL_TAGS:
                self._lose(slot.begin, min(next_offset, slot.end))
            self._finish(slot, next_offset)
        else:
            self._wait_for(slot, most)

    def _take(self, slot: _Slot, frame: Frame, next_offset: int, address: str) -> None:
        if next_offset <= slot.begin:
            raise BadAnswer(address, f"messages from {slot.begin} on, to go on at {next_offset}")
        before = slot.end if next_offset > slot.end else None
        try:
            positions = walk(frame.buffer, frame.body_start, frame.body_end, before)
        except RemoteProtocolError as error:
            raise BadAnswer(address, f"{self._range.queue} at {slot.begin}: {error}") from None
        self._learn(slot, next_offset, frame.body_end - frame.body_start)
        slot.records = Segment(frame.buffer, positions)
        self._finish(slot, next_offset)

    def _learn(self, slot: _Slot, next_offset: int, size: int) -> None:
        """Fit the size of the slots to come to what the broker gives: so many bytes, this time."""
        self._window = min(WINDOW, max(2, _WINDOW_BYTES // max(1, size)))
        given = next_offset - slot.begin
        if size > _BULK_BYTES // 2:
            step = int(_FILLED * given * _BULK_BYTES / size)
            self._step = min(max(1, step), self._settings.batch)
        elif next_offset < slot.end:
            if slot.end - slot.begin >= self._step:  # else it is one from before the last change
                self._grow_after = min(2 * self._grow_after, _GROW_AFTER_MOST)
            self._step = given
            self._full_replies = 0
        else:
            self._full_replies += 1
            if self._full_replies >= self._grow_after and self._step < self._settings.batch:
                self._step = min(2 * self._step, self._settings.batch)
                self._full_replies = 0

    def _finish(self, slot: _Slot, next_offset: int) -> None:
        """The slot is complete up to `next_offset`: ask for the rest of it, if there is one."""
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
        """The broker has nothing at that offset, which it had when the query was planned.

        A replica that took over may be behind; it gets as long as a reply may take.
        """
        now = time.monotonic()
        if slot.since is None:
            slot.since = now
        if now - slot.since > self._settings.timeout:
            if self._of_replica:  # its master may have it, and comes back
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
        """Take the slots off whose records have come, as far as none is missing before them."""
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
            if was_replica and not self._of_replica:  # its master may need a moment, too
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

    def _try_again(self, error: MQError) -> bool:
        """Wait for a further try. Without one left: raise, or say what is not read and be False."""
        self._disconnect()
        self._session.outdate_route(self._range.topic)
        self._failures += 1
        left = self._range.begin if self._first is None else self._first.begin
        if self._failures > self._settings.retries:
            what = f"{self._range.queue}, offset {left}: {self._failures} tries failed: {error}"
            report_away(
                what,
                self._range.end,
                error,
                fail=self._settings.fail_on_data_loss,
                skip=self._settings.skip_absent,
            )
            return False
        pause = self._settings.retry_pause * 2 ** (self._failures - 1)
        log.warning("%s, offset %d: again in %g s: %s", self._range.queue, left, pause, error)
        time.sleep(pause)
        return True


def pull_fields(pulled: QueueRange, settings: PullSettings) -> dict[str, str]:
    """What is the same in every pull (PullMessageRequestHeader)."""
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
