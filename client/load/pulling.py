"""Pulls, one in flight per queue: from given offsets to the end, or endlessly."""

import asyncio

from mq.client.load.connection import FIRST_OPAQUE, LoadConnection, failure
from mq.client.load.measuring import LoadCounter, clock
from mq.client.load.plan import STAMP_DIGITS, Plan
from mq.client.load.sending import Connect, access_key
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.flags import PullSysFlag
from mq.protocol.frame import encode
from mq.protocol.headers.pull import PullMessageRequestHeader
from mq.protocol.record import HEAD_V4, IPV6_BITS, struct_of

_NEXT = b'"nextBeginOffset":"'
_WAIT_MILLISECONDS = 1000  # how long a broker suspends a pull at the end of a queue
_GOES_ON = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
_MOVED = ResponseCode.PULL_OFFSET_MOVED
_SIZE_AND_FLAG = struct_of("size", "sys_flag").unpack_from


class QueueReader:
    """Reads one queue over a shared connection, on which `opaque` identifies it."""

    def __init__(self, plan: Plan, queue_id: int, offset: int, opaque: int) -> None:
        self.opaque = opaque
        self.offset = offset
        self.asked = 0  # time of the request, in ns of the monotonic clock
        self._plan = plan
        self._queue_id = queue_id
        self._key = access_key(plan)

    def frame(self) -> bytes:
        """Return the frame of the next pull."""
        self.asked = clock()
        flags = PullSysFlag.SUBSCRIPTION
        if not self._plan.to_the_end:
            flags |= PullSysFlag.SUSPEND
        header = PullMessageRequestHeader(
            consumer_group=self._plan.group,
            topic=self._plan.topic,
            queue_id=self._queue_id,
            queue_offset=self.offset,
            max_msg_nums=self._plan.window,
            sys_flag=flags,
            commit_offset=0,
            suspend_timeout_millis=_WAIT_MILLISECONDS,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        command = Command(RequestCode.PULL_MESSAGE, header.encode(), opaque=self.opaque)
        if self._key is not None:
            self._key.sign(command)
        return encode(command)


class Puller:
    """One connection and the queues that are read over it."""

    def __init__(self, plan: Plan, measuring: LoadCounter) -> None:
        self._plan = plan
        self._measuring = measuring
        self._readers: dict[int, QueueReader] = {}
        self._stopped = False
        self.idle = asyncio.Event()
        self.connection = LoadConnection(self._reply, self._lost)

    def add(self, queue_id: int, offset: int) -> None:
        """Add a queue."""
        opaque = FIRST_OPAQUE + len(self._readers)
        self._readers[opaque] = QueueReader(self._plan, queue_id, offset, opaque)

    def start(self) -> None:
        """Send the first pull of each queue."""
        for reader in self._readers.values():
            self.connection.transport.write(reader.frame())
        if not self._readers:
            self.idle.set()

    def stop(self) -> None:
        """Send no more pulls."""
        self._stopped = True

    def _reply(self, data: bytes, opaque: int, code: int, header: int, body: int, end: int) -> None:
        reader = self._readers[opaque]
        if code == 0:
            self._count(data, reader, body, end)
        else:
            code, remark = failure(data, header, body)
            if code not in _GOES_ON and code != _MOVED:
                self._measuring.failed(code, remark)
                self._done(opaque)
                return
        at = data.find(_NEXT, header, body) + len(_NEXT)
        before, reader.offset = reader.offset, int(data[at : data.index(b'"', at)])
        # An answer without messages but with a higher offset is not the end: the broker skips a
        # gap.
        at_the_end = code == ResponseCode.PULL_NOT_FOUND and reader.offset <= before
        if self._stopped or (at_the_end and self._plan.to_the_end):
            self._done(opaque)
        else:
            self.connection.transport.write(reader.frame())

    def _count(self, data: bytes, reader: QueueReader, body: int, end: int) -> None:
        messages = 0
        stamps: list[int] = []
        position = body
        while position < end:
            size, flag = _SIZE_AND_FLAG(data, position)
            # records with IPv6 hosts are not searched for stamps
            if self._plan.stamped and not flag & IPV6_BITS:
                at = position + HEAD_V4.size
                stamp = data[at : at + STAMP_DIGITS]
                if stamp.isdigit() and len(stamp) == STAMP_DIGITS:
                    stamps.append(int(stamp))
            position += size
            messages += 1
        if not self._plan.stamped:
            self._measuring.ended(reader.asked, messages, end - body)
            return
        for due in stamps:
            self._measuring.ended(due, 1, (end - body) // messages)

    def _done(self, opaque: int) -> None:
        del self._readers[opaque]
        if not self._readers:
            self.idle.set()

    def _lost(self) -> None:
        if self._readers and not self._stopped:
            self._measuring.failed(-1, "the connection is lost")
        self._readers.clear()
        self.idle.set()


async def consume(plan: Plan, measuring: LoadCounter, connect: Connect) -> None:
    """Read until the time is over, or with `to_the_end` until the ends of all queues."""
    by_address: dict[str, list[tuple[int, int]]] = {}
    for address, queue_id, offset in plan.queues:
        by_address.setdefault(address, []).append((queue_id, offset))
    pullers = []
    for address, queues in by_address.items():
        count = max(1, min(len(queues), plan.connections // len(by_address) or 1))
        group = [Puller(plan, measuring) for _ in range(count)]
        for number, (queue_id, offset) in enumerate(queues):
            group[number % count].add(queue_id, offset)
        for puller in group:
            await connect(address, puller.connection)
        pullers += group
    for puller in pullers:
        puller.start()
    waits = [asyncio.ensure_future(puller.idle.wait()) for puller in pullers]
    left = max((measuring.end - clock()) / 1e9, 0)
    await asyncio.wait(waits, timeout=left)
    for puller in pullers:
        puller.stop()
    for wait in waits:
        wait.cancel()
