"""POP_MESSAGE: delivers messages to groups that pop, at once or when there are some (5.x)."""

import asyncio
import logging
from collections.abc import Coroutine

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.waiting import StoreResults
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.pop.peek_handlers import NOTHING
from mq.daemons.broker.pop.pop_requests import PopRequests
from mq.daemons.broker.pop.popped_records import PoppedRecords
from mq.daemons.broker.pop.popper import PopBatch, Popper
from mq.daemons.broker.pop.request import PopRequest
from mq.daemons.broker.pop.wait_queue import SuspendedPop
from mq.daemons.broker.pop.waiters import Waiters
from mq.daemons.broker.pull.queue_reader import QueueReader
from mq.daemons.broker.store import NotInMemory, StoreRefused
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.memory import cost_of
from mq.daemons.request_codes import serves
from mq.daemons.supervision import describe
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from mq.protocol.pop_receipt import message_offset_info, order_count_info, start_offset_info

log = logging.getLogger(__name__)

# A request that is this late has been given up by its sender (PopMessageRequestHeader).
_LATE = 500  # ms
# Bytes reserved for a pop until its check points are stored, in addition to its request.
_WAITING_COST = 4096
# Number of disk reads that a pop waits for before it is suspended like one without messages.
_MOST_READS = 3
# Seconds that a stop waits for pops in progress: other brokers may never have their check points.
_LAST_SECONDS = 1.0


class PopHandlers:
    """Serves groups that pop."""

    def __init__(
        self,
        settings: BrokerSettings,
        requests: PopRequests,
        records: PoppedRecords,
        reader: QueueReader,
        pops: Popper,
        waiters: Waiters,
        groups: Groups,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._requests = requests
        self._records = records
        self._pops = pops
        self._waiters = waiters
        self._groups = groups
        self._running: set[asyncio.Task[None]] = set()
        self._reading: set[tuple[str, str]] = set()  # groups and topics that wait for the disk

    async def close(self) -> None:
        """Drop suspended pops, and finish pops in progress within _LAST_SECONDS."""
        self._waiters.drop_all()
        end = clock.monotonic() + _LAST_SECONDS
        while self._running:  # pops that waited for a group's file start new tasks
            left = max(end - clock.monotonic(), 0)
            _, late = await asyncio.wait(self._running, timeout=left)
            for task in late:  # its messages are redelivered
                task.cancel()
        self._waiters.drop_all()

    @serves(RequestCode.POP_MESSAGE)
    def pop(self, command: Command, channel: Channel) -> None:
        """Deliver messages of a topic, at once or when there are some."""
        header = command.read_header(PopMessageRequestHeader)
        until = (header.born_time or _now()) + header.poll_time
        if until - _now() < -_LATE:
            raise Refused(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{self._settings.broker.broker_ip1}] pop message is timeout too much",
            )
        request = self._requests.of_pop(header, channel)
        absent = None
        if self._groups.file.is_settled:
            try:
                if not self._serve(command, channel, request):
                    self._hold(command, channel, request, until, header.poll_time)
                return
            except NotInMemory as error:
                absent = error
        late = self._pop_late(absent, command, channel, request, until, header.poll_time)
        self._run_for(command, channel, late)

    async def _pop_late(
        self,
        absent: NotInMemory | None,
        command: Command,
        channel: Channel,
        request: PopRequest,
        until: int,
        poll_time: int,
    ) -> None:
        """Pop after a new group has been saved in its file, and after messages have been read from
        the disk.

        A start drops check points of unknown groups and does not move their offsets on:
        acknowledged messages would be redelivered, and the others never.
        """
        served = False
        for _ in range(_MOST_READS):
            if absent is not None and not await self._bring_in(absent, request):
                break
            # only now: the group may have been deleted and created again
            await self._groups.file.settle()
            if channel.closed or self._is_gone(command, channel, request):
                return
            try:
                served = self._serve_or_refuse(command, channel, request)
                break
            except NotInMemory as error:
                absent = error
        if served or channel.closed or self._is_gone(command, channel, request):
            return
        self._hold(command, channel, request, until, poll_time)

    def _is_gone(self, command: Command, channel: Channel, request: PopRequest) -> bool:
        """Whether the group of a pop was deleted meanwhile; if so, the pop is answered."""
        if request.group in self._groups.table:
            return False
        self._answer_nothing(command, channel, request, ResponseCode.POLLING_TIMEOUT)
        return True

    async def _bring_in(self, absent: NotInMemory, request: PopRequest) -> bool:
        try:
            await self._reader.residency.load(absent)
        except Exception:
            log.exception("cannot read messages of %s", request.topic,
                          extra={"failure": f"pops of {request.topic}"})  # fmt: skip
            return False
        return True

    def _wake_once_read(self, absent: NotInMemory, request: PopRequest) -> None:
        """Wake the suspended pops of a group when the missing messages have been read."""
        key = request.group, request.topic
        if key in self._reading:  # another pop waits for the same read
            return
        self._reading.add(key)

        async def read() -> None:
            try:
                found = await self._bring_in(absent, request)
            finally:
                self._reading.discard(key)
            if found:
                self._waiters.wake_group(*key)

        self._run(read())

    def _run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _run_for(
        self, command: Command, channel: Channel, work: Coroutine[None, None, None]
    ) -> None:
        """Run the rest of a request; its memory is reserved for the connection until it is done."""
        cost = _WAITING_COST + cost_of(command)
        channel.reserve(cost)
        self._run(work).add_done_callback(lambda _: channel.reserve(-cost))

    def _hold(
        self, command: Command, channel: Channel, request: PopRequest, until: int, poll_time: int
    ) -> None:
        if command.is_one_way:
            return
        held = SuspendedPop(
            command,
            channel,
            request,
            lambda: self._serve_held(command, channel, request),
            lambda: self._answer_nothing(command, channel, request, ResponseCode.POLLING_TIMEOUT),
        )
        if poll_time <= 0 or until <= _now():
            held.end()
        elif not self._waiters.add(held, (until - _now()) / 1000):
            full = ResponseCode.POLLING_FULL
            self._answer_nothing(held.command, held.channel, held.request, full)

    def _serve_held(self, command: Command, channel: Channel, request: PopRequest) -> bool:
        try:
            return self._serve_or_refuse(command, channel, request)
        except NotInMemory as absent:  # it stays suspended until the messages have been read
            self._wake_once_read(absent, request)
            return False

    def _serve_or_refuse(self, command: Command, channel: Channel, request: PopRequest) -> bool:
        try:
            return self._serve(command, channel, request)
        except NotInMemory:
            raise
        except Refused as refused:
            channel.reply(command, refused.code, remark=refused.remark)
            return True
        except Exception as error:  # it must not be woken forever, or disturb the task that woke it
            log.exception("cannot answer a suspended pop of %s", request.topic,
                          extra={"failure": f"pops of {request.topic}"})  # fmt: skip
            channel.reply(command, ResponseCode.SYSTEM_ERROR, remark=describe(error))
            return True

    def _serve(self, command: Command, channel: Channel, request: PopRequest) -> bool:
        """Take messages and send them once their check points are stored; False if there are none.
        Raises Refused and NotInMemory.
        """
        results = StoreResults()
        try:
            batches, pop_time, revive_queue = self._pops.take(request, results)
        except StoreRefused as refusal:
            raise Refused(refusal.code, refusal.remark) from None
        if not batches:
            return False
        finish = self._finish(command, channel, request, batches, pop_time, revive_queue, results)
        self._run_for(command, channel, finish)
        return True

    async def _finish(
        self,
        command: Command,
        channel: Channel,
        request: PopRequest,
        batches: list[PopBatch],
        pop_time: int,
        revive_queue: int,
        results: StoreResults,
    ) -> None:
        await results.wait()
        # a check point on a slow disk is in the log: its messages would be delivered twice
        if not results.all_stored:
            refusal = results.refusal
            assert refusal is not None
            channel.reply(command, refusal.code, remark=refusal.remark)
            self._waiters.wake_group_soon(request.group, request.topic)
            return
        try:
            bodies = [
                await self._records.read(
                    request, batch, pop_time, request.invisible_time, revive_queue
                )
                for batch in batches
            ]
        except Exception as error:  # whatever the error is, the peer waits for a reply
            log.exception("cannot deliver popped messages of %s", request.topic,
                          extra={"failure": f"pops of {request.topic}"})  # fmt: skip
            channel.reply(command, ResponseCode.SYSTEM_ERROR, remark=describe(error))
            return
        if channel.closed:  # the messages are redelivered when their invisible time is over
            return
        for batch in batches:
            self._records.count(request, batch)
        header = PopMessageResponseHeader(
            pop_time=pop_time,
            invisible_time=request.invisible_time,
            revive_qid=revive_queue,
            rest_num=self._pops.rest(request),
            start_offset_info=start_offset_info(
                (batch.queue.topic, batch.queue.queue_id, batch.offsets[0]) for batch in batches
            ),
            msg_offset_info=message_offset_info(
                (batch.queue.topic, batch.queue.queue_id, batch.offsets) for batch in batches
            ),
            order_count_info=order_count_info(
                (batch.queue.topic, batch.queue.queue_id, batch.offsets, batch.counts)
                for batch in batches
            )
            if request.is_ordered
            else None,
        )
        channel.reply(
            command, ResponseCode.SUCCESS, header.encode(), b"".join(bodies), remark="FOUND"
        )
        if header.rest_num:
            self._waiters.wake_for_rest(request.group, request.topic)

    def _answer_nothing(
        self, command: Command, channel: Channel, request: PopRequest, code: ResponseCode
    ) -> None:
        header = PopMessageResponseHeader(
            pop_time=_now(), invisible_time=request.invisible_time, rest_num=0
        )
        channel.reply(command, code, header.encode(), remark=NOTHING)


def _now() -> int:
    return clock.milliseconds()
