"""POP_MESSAGE and its relatives: messages handed out, looked at and waited for (5.x)."""

import asyncio
import logging
import time

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filter.subscriptions import Expression, Subscriptions
from mq.daemons.broker.groups import Groups
from mq.daemons.broker.handlers.reading import check_broker, consuming_group, readable_topic
from mq.daemons.broker.pop.receipt import (
    RETRY_MARK,
    Receipt,
    message_offset_info,
    order_count_info,
    retry_topic,
    start_offset_info,
)
from mq.daemons.broker.pop.request import ALL_QUEUES, INIT_MIN, PopRequest
from mq.daemons.broker.pop.taking import PopBatch, Pops
from mq.daemons.broker.pop.waiters import Held, Waiters
from mq.daemons.broker.queue_reader import QueueReader
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.topics import Topics
from mq.daemons.broker.waiting import StoreResults
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.serving import serves
from mq.daemons.supervision import describe
from mq.protocol import names
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import LocalProtocolError
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from mq.protocol.message import decode_records, encode_record
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

MOST_MESSAGES = 32  # of one pop
LONGEST_INVISIBLE = 7 * 24 * 3600 * 1000  # ms
# A request that is so late has been given up by its sender (PopMessageRequestHeader).
_LATE = 500  # ms
_NOTHING = "NO_MESSAGE_IN_QUEUE"


class PopHandlers:
    """Serves groups that pop."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        groups: Groups,
        reader: QueueReader,
        subscriptions: Subscriptions,
        pops: Pops,
        waiters: Waiters,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._reader = reader
        self._expression_of = subscriptions.expression
        self._pops = pops
        self._waiters = waiters
        self._running: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Let go of those that wait, and finish what was taken."""
        self._waiters.drop_all()
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    # pop ------------------------------------------------------------------------------------

    @serves(RequestCode.POP_MESSAGE)
    def pop(self, command: Command, channel: Channel) -> None:
        """Hand out messages of a topic, at once or when there are some."""
        header = command.read_header(PopMessageRequestHeader)
        until = (header.born_time or _now()) + header.poll_time
        if until - _now() < -_LATE:
            raise Refused(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{self._settings.broker.broker_ip1}] pop message is timeout too much",
            )
        if not 1 <= header.max_msg_nums <= MOST_MESSAGES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"maxMsgNums={header.max_msg_nums}: expected 1 to {MOST_MESSAGES}",
            )
        if not 1 <= header.invisible_time <= LONGEST_INVISIBLE:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime={header.invisible_time}: expected 1 to {LONGEST_INVISIBLE} ms",
            )
        self._check(header.topic, header.consumer_group, header.queue_id, channel)
        request = PopRequest(
            header.consumer_group,
            header.topic,
            max(header.queue_id, ALL_QUEUES),
            header.max_msg_nums,
            header.invisible_time,
            header.init_mode,
            self._expression(header),
            header.order,
            header.attempt_id or "",
        )
        if self._serve(command, channel, request) or command.is_one_way:
            return
        held = Held(
            command,
            channel,
            request,
            lambda: self._serve_held(command, channel, request),
            lambda: self._answer_nothing(command, channel, request, ResponseCode.POLLING_TIMEOUT),
        )
        self._hold(held, until, header.poll_time)

    def _hold(self, held: Held, until: int, poll_time: int) -> None:
        if poll_time <= 0 or until <= _now():
            held.end()
        elif not self._waiters.add(held, (until - _now()) / 1000):
            full = ResponseCode.POLLING_FULL
            self._answer_nothing(held.command, held.channel, held.request, full)
        else:
            self._wake_when_free(held.request)

    def _wake_when_free(self, request: PopRequest) -> None:
        """An ordered pop gets what is out once its invisible time is over."""
        free_at = self._pops.free_at(request) if request.is_ordered else 0
        if free_at:
            self._waiters.wake_at(request.group, request.topic, free_at)

    def _serve_held(self, command: Command, channel: Channel, request: PopRequest) -> bool:
        try:
            return self._serve(command, channel, request)
        except Refused as refused:
            channel.reply(command, refused.code, remark=refused.remark)
            return True
        except Exception as error:  # it must not wake in vain for ever, or spoil what woke it
            log.exception("a held pop of %s cannot be answered", request.topic,
                          extra={"failure": f"pops of {request.topic}"})  # fmt: skip
            channel.reply(command, ResponseCode.SYSTEM_ERROR, remark=describe(error))
            return True

    def _serve(self, command: Command, channel: Channel, request: PopRequest) -> bool:
        """Take messages and send them once their check points are stored; False if there are
        none. Raises Refused."""
        results = StoreResults()
        try:
            batches, pop_time, revive_queue = self._pops.take(request, results)
        except StoreRefused as refusal:
            raise Refused(refusal.code, refusal.remark) from None
        if not batches:
            return False
        work = self._finish(command, channel, request, batches, pop_time, revive_queue, results)
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
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
        if not results.all_well:
            refusal = results.refusal
            assert refusal is not None
            channel.reply(command, refusal.code, remark=refusal.remark)
            return
        try:
            bodies = [
                await self._records(request, batch, pop_time, request.invisible_time, revive_queue)
                for batch in batches
            ]
        except Exception as error:  # whatever it is, the peer waits for an answer
            log.exception("popped messages of %s cannot be given out", request.topic,
                          extra={"failure": f"pops of {request.topic}"})  # fmt: skip
            channel.reply(command, ResponseCode.SYSTEM_ERROR, remark=describe(error))
            return
        if channel.closed:  # they come again when their invisible time is over
            return
        for batch in batches:
            self._reader.count(batch.queue.topic, request.group, batch.queue.queue_id, batch.found)
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
            self._waiters.wake_group(request.group, request.topic)

    async def _records(
        self,
        request: PopRequest,
        batch: PopBatch,
        pop_time: int,
        invisible_time: int,
        revive_queue: int,
    ) -> bytes:
        """The records of a batch. A retry goes out as a message of the topic that was asked for,
        with its receipt in it (popResponseReturnActualRetryTopic=false)."""
        body = await self._reader.read(batch.found)
        if batch.queue.topic == request.topic:
            return body
        records = []
        for message in decode_records(body, decompress=False):
            receipt = Receipt(
                batch.offsets[0],
                pop_time,
                invisible_time,
                revive_queue,
                RETRY_MARK,
                self._settings.broker.broker_name,
                batch.queue.queue_id,
                message.queue_offset,
            )
            message.topic = request.topic
            message.properties.setdefault(PropertyKey.POP_CHECKPOINT, receipt.encode())
            try:
                records.append(encode_record(message))
            except LocalProtocolError:
                # No room for the receipt. Clients make one from the header, as for any message, for
                # one that says where it really lies.
                message.topic = batch.queue.topic
                del message.properties[PropertyKey.POP_CHECKPOINT]
                records.append(encode_record(message))
        return b"".join(records)

    def _answer_nothing(
        self, command: Command, channel: Channel, request: PopRequest, code: ResponseCode
    ) -> None:
        header = PopMessageResponseHeader(
            pop_time=_now(), invisible_time=request.invisible_time, rest_num=0
        )
        channel.reply(command, code, header.encode(), remark=_NOTHING)

    # the others -----------------------------------------------------------------------------

    @serves(RequestCode.PEEK_MESSAGE)
    async def peek(self, command: Command, channel: Channel) -> Command:
        """What a pop would get, without taking it."""
        header = command.read_header(PeekMessageRequestHeader)
        if not 1 <= header.max_msg_nums <= MOST_MESSAGES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"maxMsgNums={header.max_msg_nums}: expected 1 to {MOST_MESSAGES}",
            )
        self._check(header.topic, header.consumer_group, header.queue_id, channel)
        request = self._any(
            header.topic, header.consumer_group, header.queue_id, header.max_msg_nums
        )
        bodies: list[bytes] = []
        for batch in self._pops.peek(request):
            bodies.append(await self._records(request, batch, _now(), 0, 0))
            self._reader.count(batch.queue.topic, request.group, batch.queue.queue_id, batch.found)
        fields = PopMessageResponseHeader(rest_num=self._pops.rest(request)).encode()
        if not bodies:
            return command.reply(ResponseCode.PULL_NOT_FOUND, fields, remark=_NOTHING)
        return command.reply(ResponseCode.SUCCESS, fields, b"".join(bodies), remark="FOUND")

    @serves(RequestCode.NOTIFICATION)
    def notify(self, command: Command, channel: Channel) -> None:
        """Say that there is something to pop, at once or when there is."""
        header = command.read_header(NotificationRequestHeader)
        self._check(header.topic, header.consumer_group, header.queue_id, channel)
        request = self._any(header.topic, header.consumer_group, header.queue_id, 1, header.order)

        def answer(has_messages: bool, is_full: bool = False) -> None:
            fields = NotificationResponseHeader(has_msg=has_messages, polling_full=is_full)
            channel.reply(command, ResponseCode.SUCCESS, fields.encode())

        def serve() -> bool:
            if not self._pops.has_something(request, header.attempt_id or ""):
                return False
            answer(has_messages=True)
            return True

        until = (header.born_time or _now()) + header.poll_time
        if serve() or command.is_one_way:
            return
        held = Held(command, channel, request, serve, lambda: answer(has_messages=False))
        if header.poll_time <= 0 or until <= _now():
            held.end()
        elif not self._waiters.add(held, (until - _now()) / 1000):
            answer(has_messages=False, is_full=True)
        else:
            self._wake_when_free(request)

    @serves(RequestCode.POLLING_INFO)
    def polling_info(self, command: Command, channel: Channel) -> Command:
        """How many pops wait for a queue."""
        header = command.read_header(PollingInfoRequestHeader)
        self._check(header.topic, header.consumer_group, header.queue_id, channel)
        number = self._waiters.waiting(
            header.consumer_group, header.topic, max(header.queue_id, ALL_QUEUES)
        )
        return command.reply(fields=PollingInfoResponseHeader(polling_num=number).encode())

    @serves(RequestCode.POP_ROLLBACK)
    def export_records(self, command: Command, channel: Channel) -> Command:
        """Have what was popped where older releases look for it: here it is nowhere else.

        Java's 5.4 may keep it in RocksDB (AdminBrokerProcessor.transferPopToFsStore).
        """
        return command.reply()

    def _any(
        self, topic: str, group: str, queue_id: int, maximum: int, is_ordered: bool = False
    ) -> PopRequest:
        expression = self._expression_of(
            {"subscription": "*"}, PullSysFlag.SUBSCRIPTION, group, topic
        )
        return PopRequest(
            group, topic, max(queue_id, ALL_QUEUES), maximum, 0, INIT_MIN, expression, is_ordered
        )

    def _expression(self, header: PopMessageRequestHeader) -> Expression:
        fields = {"subscription": header.exp or "*"}
        if header.exp and header.exp_type:
            fields["expressionType"] = header.exp_type
        return self._expression_of(
            fields, PullSysFlag.SUBSCRIPTION, header.consumer_group, header.topic
        )

    def _check(self, topic: str, group: str, queue_id: int, channel: Channel) -> None:
        """Raises Refused with the codes of PopMessageProcessor."""
        check_broker(self._settings.broker, "pop message")
        known = readable_topic(self._topics, topic, "peeking message")
        if queue_id >= known.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{known.read_queue_nums}] consumer:[{channel.remote}]",
            )
        consuming_group(self._groups, group)
        again = retry_topic(group, topic)
        if len(again) > names.MAX_TOPIC_LENGTH:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the names of group and topic are too long to pop: their retry topic {again} "
                f"would have over {names.MAX_TOPIC_LENGTH} characters",
            )


def _now() -> int:
    return time.time_ns() // 1_000_000
