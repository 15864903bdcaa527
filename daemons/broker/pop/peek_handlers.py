"""Previews of a pop: PEEK_MESSAGE, NOTIFICATION and POLLING_INFO (5.x)."""

from mq.client.machine import clock
from mq.daemons.broker.pop.pop_requests import PopRequests, check_maximum
from mq.daemons.broker.pop.popped_records import PoppedRecords
from mq.daemons.broker.pop.popper import PopBatch, Popper
from mq.daemons.broker.pop.request import ALL_QUEUES, PopRequest
from mq.daemons.broker.pop.wait_queue import SuspendedPop
from mq.daemons.broker.pop.waiters import Waiters
from mq.daemons.broker.pull.queue_reader import QueueReader
from mq.daemons.broker.store import NotInMemory
from mq.daemons.channel import Channel
from mq.daemons.request_codes import serves
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)

NOTHING = "NO_MESSAGE_IN_QUEUE"

# Limit of disk reads of one peek: one for each queue in which it finds messages.
_MOST_READS = 32


class PeekHandlers:
    """Reports messages to groups that pop, without taking them."""

    def __init__(
        self,
        requests: PopRequests,
        records: PoppedRecords,
        reader: QueueReader,
        pops: Popper,
        waiters: Waiters,
    ) -> None:
        self._requests = requests
        self._records = records
        self._reader = reader
        self._pops = pops
        self._waiters = waiters

    @serves(RequestCode.PEEK_MESSAGE)
    async def peek(self, command: Command, channel: Channel) -> Command:
        """Return the messages that a pop would get, without taking them."""
        header = command.read_header(PeekMessageRequestHeader)
        check_maximum(header.max_msg_nums)
        self._requests.check(header.topic, header.consumer_group, header.queue_id, channel)
        request = self._requests.of_everything(
            header.topic, header.consumer_group, header.queue_id, header.max_msg_nums
        )
        bodies: list[bytes] = []
        for batch in await self._peek(request):
            bodies.append(await self._records.read(request, batch, _now(), 0, 0))
            self._records.count(request, batch)
        fields = PopMessageResponseHeader(rest_num=self._pops.rest(request)).encode()
        if not bodies:
            return command.reply(ResponseCode.PULL_NOT_FOUND, fields, remark=NOTHING)
        return command.reply(ResponseCode.SUCCESS, fields, b"".join(bodies), remark="FOUND")

    async def _peek(self, request: PopRequest) -> list[PopBatch]:
        """Raises NotInMemory if memory is so short that messages do not stay in it when read."""
        for _ in range(_MOST_READS):
            try:
                return self._pops.peek(request)
            except NotInMemory as absent:
                await self._reader.residency.load(absent)
        return self._pops.peek(request)

    @serves(RequestCode.NOTIFICATION)
    def notify(self, command: Command, channel: Channel) -> None:
        """Report that there is a message to pop, at once or when there is one."""
        header = command.read_header(NotificationRequestHeader)
        self._requests.check(header.topic, header.consumer_group, header.queue_id, channel)
        attempt = header.attempt_id or ""
        request = self._requests.of_everything(
            header.topic, header.consumer_group, header.queue_id, 1, header.order, attempt
        )

        def answer(has_messages: bool, is_full: bool = False) -> None:
            fields = NotificationResponseHeader(has_msg=has_messages, polling_full=is_full)
            channel.reply(command, ResponseCode.SUCCESS, fields.encode())

        def serve() -> bool:
            if not self._pops.has_something(request):
                return False
            answer(has_messages=True)
            return True

        until = (header.born_time or _now()) + header.poll_time
        if serve() or command.is_one_way:
            return
        held = SuspendedPop(command, channel, request, serve, lambda: answer(has_messages=False))
        if header.poll_time <= 0 or until <= _now():
            held.end()
        elif not self._waiters.add(held, (until - _now()) / 1000):
            answer(has_messages=False, is_full=True)

    @serves(RequestCode.POLLING_INFO)
    def polling_info(self, command: Command, channel: Channel) -> Command:
        """The number of pops that wait for a queue."""
        header = command.read_header(PollingInfoRequestHeader)
        self._requests.check(header.topic, header.consumer_group, header.queue_id, channel)
        number = self._waiters.waiting(
            header.consumer_group, header.topic, max(header.queue_id, ALL_QUEUES)
        )
        return command.reply(fields=PollingInfoResponseHeader(polling_num=number).encode())

    @serves(RequestCode.POP_ROLLBACK)
    def export_records(self, command: Command, channel: Channel) -> Command:
        """Move pop records to the files of older releases. Does nothing: they are nowhere else.

        Java's 5.4 may keep them in RocksDB (AdminBrokerProcessor.transferPopToFsStore).
        """
        return command.reply()


def _now() -> int:
    return clock.milliseconds()
