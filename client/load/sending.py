"""Sends as fast as replies arrive, or on a schedule.

On a schedule a latency counts from the time when its send was due, whether or not it could be sent
then, so that a stall is charged to every send that it delayed.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import cycle

from mq.client.credentials import AccessKey
from mq.client.load.connection import FIRST_OPAQUE, LAST_OPAQUE, LoadConnection, failure
from mq.client.load.measuring import LoadCounter, clock
from mq.client.load.plan import STAMP_DIGITS, Plan
from mq.protocol import properties
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.headers.send import SendMessageRequestHeaderV2

Connect = Callable[[str, LoadConnection], Coroutine[None, None, None]]

_TICK = 0.001  # seconds between two checks of the schedule
_REFRESH_SECONDS = 1.0  # the maximum age of a born time
_OPAQUE = b"%d" % FIRST_OPAQUE
_WAIT_SECONDS = 5.0  # for the last replies


class Template:
    """The frame of a send to one queue, with placeholders for its number and its due time."""

    def __init__(self, plan: Plan, queue_id: int, now: float) -> None:
        filling = bytes(32 + number % 95 for number in range(plan.size))
        self._stamped = plan.stamped
        self._signs = plan.stamped and plan.access_key is not None
        header = SendMessageRequestHeaderV2(
            producer_group=plan.group,
            topic=plan.topic,
            default_topic="TBW102",
            default_topic_queue_nums=8,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=int(now * 1000),
            flag=0,
            properties=properties.encode(plan.properties),
            reconsume_times=0,
            max_reconsume_times=16,
        )
        self._fields = header.encode()
        self._key = access_key(plan)
        self._body = filling
        command = self._command(filling, FIRST_OPAQUE)
        frame = encode(command)
        self._head, self._tail = frame[: len(frame) - plan.size].split(_OPAQUE)
        if self._stamped:
            self._filling = filling[STAMP_DIGITS:]

    def _command(self, body: bytes, opaque: int) -> Command:
        command = Command(RequestCode.SEND_MESSAGE_V2, self._fields, body, opaque=opaque)
        if self._key is not None:
            self._key.sign(command)
        return command

    def frame(self, opaque: int, due: int) -> bytes:
        """Return the frame of the send with this number."""
        if not self._stamped:
            return b"%b%d%b%b" % (self._head, opaque, self._tail, self._body)
        stamp = b"%019d" % due
        if self._signs:
            return encode(self._command(stamp + self._filling, opaque))
        return b"%b%d%b%b%b" % (self._head, opaque, self._tail, stamp, self._filling)


def access_key(plan: Plan) -> AccessKey | None:
    if plan.access_key is None or plan.secret_key is None:
        return None
    return AccessKey(plan.access_key, plan.secret_key, plan.security_token)


class Sender:
    """One connection that sends to its queues in turn."""

    def __init__(self, plan: Plan, queue_ids: list[int], measuring: LoadCounter) -> None:
        self._plan = plan
        self._queue_ids = queue_ids
        self._measuring = measuring
        self._due: dict[int, int] = {}  # due times of the requests in flight, by number
        self._waiting: deque[int] = deque()  # due, while the window is full
        self._opaque = FIRST_OPAQUE
        self._out: list[bytes] = []
        self._stopped = False
        self.idle = asyncio.Event()
        self.connection = LoadConnection(self._reply, self._lost)
        self.refresh(time.time())

    def refresh(self, now: float) -> None:
        """Rebuild the frames with a new born time."""
        templates = [Template(self._plan, queue_id, now) for queue_id in self._queue_ids]
        self._templates = cycle(templates)

    @property
    def room(self) -> int:
        return self._plan.window - len(self._due)

    def fill(self) -> None:
        """Send until the window is full."""
        now = clock()
        for _ in range(self.room):
            self._send(now)
        self.flush()

    def send_due(self, due: int) -> None:
        """Send the message that was due at `due`, or keep it until there is room."""
        if self._waiting or self.room <= 0:
            self._waiting.append(due)
        else:
            self._send(due)

    def flush(self) -> None:
        """Write the sent frames to the transport."""
        if self._out:
            self.connection.transport.write(b"".join(self._out))
            self._out.clear()

    def stop(self) -> None:
        """Stop sending; `idle` is set when all replies have arrived."""
        self._stopped = True
        self._waiting.clear()
        if not self._due:
            self.idle.set()

    def _send(self, due: int) -> None:
        opaque = self._opaque
        self._opaque = opaque + 1 if opaque < LAST_OPAQUE else FIRST_OPAQUE
        self._due[opaque] = due
        self._out.append(next(self._templates).frame(opaque, due))

    def _reply(self, data: bytes, opaque: int, code: int, header: int, body: int, end: int) -> None:
        due = self._due.pop(opaque)
        if code == 0:
            now = self._measuring.ended(due, 1, self._plan.size)
        else:
            self._measuring.failed(*failure(data, header, body))
            now = clock()
        if self._stopped:
            if not self._due:
                self.idle.set()
        elif self._waiting:
            self._send(self._waiting.popleft())
        elif not self._plan.rate:
            self._send(now)
        if end == len(data) or len(self._out) >= self._plan.window:
            self.flush()

    def _lost(self) -> None:
        if not self._stopped or self._due:
            self._measuring.failed(-1, "the connection is lost")
        self._due.clear()
        self.stop()


async def produce(plan: Plan, measuring: LoadCounter, connect: Connect) -> None:
    """Send until the time is over."""
    by_address: dict[str, list[int]] = {}
    for address, queue_id, _ in plan.queues:
        by_address.setdefault(address, []).append(queue_id)
    senders = []
    for number, address in zip(range(plan.connections), cycle(by_address), strict=False):
        ids = by_address[address]
        turned = ids[number % len(ids) :] + ids[: number % len(ids)]
        sender = Sender(plan, turned, measuring)
        await connect(address, sender.connection)
        senders.append(sender)
    await (_on_schedule if plan.rate else _at_once)(plan, senders, measuring)
    for sender in senders:
        sender.stop()
    waits = [asyncio.ensure_future(sender.idle.wait()) for sender in senders]
    await asyncio.wait(waits, timeout=_WAIT_SECONDS)
    for wait in waits:
        wait.cancel()


async def _at_once(plan: Plan, senders: list[Sender], measuring: LoadCounter) -> None:
    """Keep the window of each connection full: each reply triggers the next send."""
    for sender in senders:
        sender.fill()
    while (left := (measuring.end - clock()) / 1e9) > 0:
        await asyncio.sleep(min(left, _REFRESH_SECONDS))
        for sender in senders:
            sender.refresh(time.time())


async def _on_schedule(plan: Plan, senders: list[Sender], measuring: LoadCounter) -> None:
    """Send on a schedule: message n is due n / rate seconds after the start."""
    begin = clock()
    interval = 1e9 / plan.rate
    turns = cycle(senders)
    sent = 0
    refreshed = begin
    while (now := clock()) < measuring.end:
        while (due := begin + int(sent * interval)) <= now:
            next(turns).send_due(due)
            sent += 1
        for sender in senders:
            sender.flush()
        if now - refreshed > _REFRESH_SECONDS * 1e9:
            refreshed = now
            for sender in senders:
                sender.refresh(time.time())
        await asyncio.sleep(_TICK)
