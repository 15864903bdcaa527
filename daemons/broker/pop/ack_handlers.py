"""Acknowledging popped messages, and changing their invisible time (5.x).

A reply of success means that the acknowledgement is in the revive topic. Java replies with success
to any acknowledgement; here a message that has been redelivered meanwhile is answered with
NO_MESSAGE, which clients treat as "too late".
"""

import base64
import binascii
import logging
from collections.abc import Callable, Coroutine
from functools import partial

from mq.client.machine import clock
from mq.daemons.broker.delivery.waiting import StoreResults
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.pop.ack_batching import AckBatcher
from mq.daemons.broker.pop.check_points import PopCheckPoints
from mq.daemons.broker.pop.order import OrderedPops
from mq.daemons.broker.pop.pop_requests import LONGEST_INVISIBLE
from mq.daemons.broker.pop.records import Key, PopCheckPoint
from mq.daemons.broker.pop.waiters import Waiters
from mq.daemons.broker.store import MessageStore, OnStored, StoreRefused
from mq.daemons.broker.topics.topic_table import Topics, no_such_topic
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.memory import cost_of
from mq.daemons.request_codes import serves
from mq.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from mq.protocol.pop_receipt import Receipt, marked_topic, normal_topic

log = logging.getLogger(__name__)

MOST_BATCH_BYTES = 2 * 1024 * 1024
MOST_ACKS = 4096  # messages per batch: a pop returns at most 32
# Bytes reserved for an acknowledgement until it is stored, in addition to its body.
_WAITING_COST = 4096


class AckHandlers:
    """Serves acknowledgements."""

    def __init__(
        self,
        topics: Topics,
        store: MessageStore,
        offsets: ConsumerOffsets,
        points: PopCheckPoints,
        gathering: AckBatcher,
        order: OrderedPops,
        waiters: Waiters,
        clock: Callable[[], int] = clock.milliseconds,
    ) -> None:
        self._topics = topics
        self._store = store
        self._offsets = offsets
        self._points = points
        self._gathering = gathering
        self._order = order
        self._waiters = waiters
        self._clock = clock

    @serves(RequestCode.ACK_MESSAGE)
    def acknowledge(
        self, command: Command, channel: Channel
    ) -> Coroutine[None, None, Command] | None:
        """Acknowledge one message."""
        header = command.read_header(AckMessageRequestHeader)
        self._check(header.topic, header.queue_id, header.offset, channel)
        receipt = Receipt.decode(header.extra_info, header.queue_id, header.offset)
        if receipt.is_ordered:
            return self._acknowledge_in_order(command, header.topic, header.consumer_group, receipt)

        key, revive_queue, due = self._place(header.topic, header.consumer_group, receipt)
        cost = _WAITING_COST + cost_of(command)  # also for peers that do not read replies

        def stored(refusal: StoreRefused | None) -> None:
            channel.reserve(-cost)
            if refusal is None:
                channel.reply(command)
            else:
                channel.reply(command, refusal.code, remark=refusal.remark)

        channel.reserve(cost)
        self._gathering.acknowledge(key, header.offset, revive_queue, due, stored)
        return None

    async def _acknowledge_in_order(
        self, command: Command, topic: str, group: str, receipt: Receipt
    ) -> Command:
        await self._acknowledge_ordered(topic, group, receipt)
        return command.reply()

    @serves(RequestCode.BATCH_ACK_MESSAGE)
    async def acknowledge_batch(self, command: Command, channel: Channel) -> Command:
        """Acknowledge several messages; those that have been redelivered meanwhile are skipped."""
        if len(command.body) > MOST_BATCH_BYTES:
            raise RemoteProtocolError(
                f"a batch of acknowledgements of {len(command.body)} bytes, over {MOST_BATCH_BYTES}"
            )
        acks = command.read_body(BatchAckMessageRequestBody)
        if not acks.acks:
            raise Refused(ResponseCode.NO_MESSAGE, "no acknowledgement in the body")
        if (
            len(acks.acks) > MOST_ACKS
            or sum(_bits(ack).bit_count() for ack in acks.acks) > MOST_ACKS
        ):
            raise RemoteProtocolError(f"a batch acknowledges over {MOST_ACKS} messages")
        results = StoreResults()
        taken = late = 0
        for ack in acks.acks:
            topic, group = _names(ack)
            known = self._topics.get(topic)
            if known is None:
                raise no_such_topic(topic)
            offsets = self._offsets_of(ack, topic)
            if not offsets:
                continue
            receipt = _receipt(ack, acks.broker_name or "")
            try:
                if receipt.is_ordered:
                    for offset in offsets:
                        await self._acknowledge_ordered(topic, group, receipt, offset)
                else:
                    results.put(partial(self._put_ack, topic, group, receipt, offsets))
                taken += 1
            except Refused as refused:
                if refused.code != ResponseCode.NO_MESSAGE:
                    raise
                late += 1
        if late and not taken:
            raise Refused(ResponseCode.NO_MESSAGE, "all of these messages have been redelivered")
        return await _answer(command, results)

    @serves(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    async def change_invisible_time(self, command: Command, channel: Channel) -> Command:
        """Replace the invisible time of a popped message; the new one starts now."""
        header = command.read_header(ChangeInvisibleTimeRequestHeader)
        topic, group = header.topic, header.consumer_group
        self._check(topic, header.queue_id, header.offset, channel)
        if not 0 <= header.invisible_time <= LONGEST_INVISIBLE:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime={header.invisible_time}: expected 0 to {LONGEST_INVISIBLE} ms",
            )
        receipt = Receipt.decode(header.extra_info, header.queue_id, header.offset)
        now = self._clock()
        if receipt.is_ordered:
            return self._postpone(command, header, receipt, now)
        old = self._points.find(_key(topic, group, receipt))
        if old is None or old.is_reviving or header.offset not in old.missing:
            raise _too_late(topic, receipt)
        # The message would be redelivered to a new group of that name.
        if old.is_group_deleted:
            raise _too_late(topic, receipt)
        # its acknowledgement is answered with success, so it must not be redelivered
        if header.offset in old.ending:
            raise _too_late(topic, receipt)
        self._check_revive_queue(receipt)
        # If it was popped in this very millisecond, the acknowledgement below would name the new
        # check point, too.
        place = topic, group, header.queue_id, header.offset
        pop_time = self._points.free_time(place, now, old.broker_name)
        if pop_time is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"message {header.offset} of {topic} queue {header.queue_id} cannot be hidden now: "
                "acknowledgements of it use every pop time of the next second",
            )
        new = PopCheckPoint(
            topic,
            group,
            header.queue_id,
            header.offset,
            [header.offset],
            pop_time,
            header.invisible_time,
            old.revive_queue_id,
            old.broker_name,
        )
        results = StoreResults()
        try:
            results.put(lambda stored: self._points.put(new, stored))
        except StoreRefused as refusal:
            raise Refused(refusal.code, refusal.remark) from None
        results.put(partial(self._put_ack, topic, group, receipt, [header.offset]))
        fields = ChangeInvisibleTimeResponseHeader(
            pop_time=new.pop_time,
            invisible_time=header.invisible_time,
            revive_qid=new.revive_queue_id,
        )
        return await _answer(command, results, fields.encode())

    # one acknowledgement --------------------------------------------------------------------

    def _put_ack(
        self,
        topic: str,
        group: str,
        receipt: Receipt,
        offsets: list[int],
        on_stored: OnStored,
    ) -> None:
        """Store that messages were consumed. Raises Refused, also if it is too late."""
        key, revive_queue, due = self._place(topic, group, receipt)
        try:
            self._points.acknowledge(key, offsets, revive_queue, due, on_stored)
        except StoreRefused as refusal:
            raise Refused(refusal.code, refusal.remark) from None

    def _place(self, topic: str, group: str, receipt: Receipt) -> tuple[Key, int, int]:
        """Return the check point's key, the revive queue and the due time of an acknowledgement.

        If the check point is known, its queue and due time are used, whatever the receipt says.
        Raises Refused if it is too late.
        """
        key = _key(topic, group, receipt)
        point = self._points.find(key)
        if point is None or point.is_reviving:
            # Unknown and not due: already acknowledged, or popped with a Java broker's timer.
            if point is not None or receipt.visible_at <= self._clock():
                raise _too_late(topic, receipt)
            if point is None and not self._points.may_be_early(key):
                raise RemoteProtocolError("the names of group and broker are too long for a pop")
        self._check_revive_queue(receipt)
        if point is None:
            return key, receipt.revive_queue_id, receipt.visible_at
        return key, point.revive_queue_id, point.due

    def _check_revive_queue(self, receipt: Receipt) -> None:
        """Raises RemoteProtocolError. Called before anything is written, because a message for a
        queue that the revive topic does not have would create that queue.
        """
        if not self._points.has_queue(receipt.revive_queue_id):
            raise RemoteProtocolError(f"revive queue {receipt.revive_queue_id} does not exist")

    async def _acknowledge_ordered(
        self, topic: str, group: str, receipt: Receipt, offset: int | None = None
    ) -> None:
        """Raises Refused for a message that is no longer in flight."""
        offset = receipt.offset if offset is None else offset
        at = self._offsets.query(group, topic, receipt.queue_id)
        if offset < at:
            return  # already acknowledged
        reached = self._order.acknowledge(
            topic, group, receipt.queue_id, offset, receipt.pop_time, at
        )
        if reached is None:
            raise _too_late(topic, receipt)
        self._offsets.commit(group, topic, receipt.queue_id, reached)
        await self._offsets.save()
        self._waiters.wake_group(group, normal_topic(topic, group))

    def _postpone(
        self,
        command: Command,
        header: ChangeInvisibleTimeRequestHeader,
        receipt: Receipt,
        now: int,
    ) -> Command:
        until = now + header.invisible_time
        if not self._order.postpone(
            header.topic,
            header.consumer_group,
            header.queue_id,
            header.offset,
            receipt.pop_time,
            until,
        ):
            raise _too_late(header.topic, receipt)
        # It was in flight until now: when the waiting pops are woken, it may not be any more.
        self._waiters.wake_when_free(header.consumer_group, header.topic, now - 1)
        fields = ChangeInvisibleTimeResponseHeader(
            pop_time=receipt.pop_time,
            invisible_time=until - receipt.pop_time,
            revive_qid=receipt.revive_queue_id,
        )
        return command.reply(fields=fields.encode())

    def _check(self, topic: str, queue_id: int, offset: int, channel: Channel) -> None:
        """Check topic, queue and offset; refuses with the codes of AckMessageProcessor."""
        config = self._topics.get(topic)
        if config is None:
            raise no_such_topic(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{config.read_queue_nums}] consumer:[{channel.remote}]",
            )
        first = self._store.min_offset(topic, queue_id)
        last = self._store.max_offset(topic, queue_id)
        if not first <= offset < last:
            raise Refused(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{first}~{last}",
            )

    def _offsets_of(self, ack: BatchAck, topic: str) -> list[int]:
        """The offsets in the bit set of a batch. Raises RemoteProtocolError."""
        bits = _bits(ack)
        first = self._store.min_offset(topic, ack.queue_id)
        last = self._store.max_offset(topic, ack.queue_id)
        offsets = (ack.start_offset + n for n in range(bits.bit_length()) if bits >> n & 1)
        return [offset for offset in offsets if first <= offset < last]


def _bits(ack: BatchAck) -> int:
    """The bit set of the acknowledged messages, the first message in bit 0. Raises
    RemoteProtocolError.
    """
    try:
        bits = int.from_bytes(base64.b64decode(ack.bit_set or "", validate=True), "little")
    except (binascii.Error, ValueError):
        raise RemoteProtocolError("the bit set of an acknowledgement is not Base64") from None
    if bits.bit_length() > MOST_ACKS:
        raise RemoteProtocolError(f"a batch acknowledges over {MOST_ACKS} messages")
    return bits


def _key(topic: str, group: str, receipt: Receipt) -> Key:
    return (
        topic,
        group,
        receipt.queue_id,
        receipt.start_offset,
        receipt.pop_time,
        receipt.broker_name,
    )


def _names(ack: BatchAck) -> tuple[str, str]:
    """The topic in which the messages are stored, and the group. Raises RemoteProtocolError."""
    if not ack.topic or not ack.consumer_group:
        raise RemoteProtocolError("an acknowledgement without topic or group")
    return marked_topic(ack.topic, ack.consumer_group, ack.retry or "0"), ack.consumer_group


def _receipt(ack: BatchAck, broker_name: str) -> Receipt:
    return Receipt(
        ack.start_offset,
        ack.pop_time,
        ack.invisible_time,
        ack.revive_queue_id,
        ack.retry or "0",
        broker_name,
        ack.queue_id,
        -1,
    )


def _too_late(topic: str, receipt: Receipt) -> Refused:
    return Refused(
        ResponseCode.NO_MESSAGE,
        f"message {receipt.offset} of {topic} queue {receipt.queue_id} no longer belongs to this "
        "consumer: its invisible time is over, or it has been acknowledged",
    )


async def _answer(
    command: Command, results: StoreResults, fields: dict[str, str] | None = None
) -> Command:
    await results.wait()
    refusal = results.refusal
    if refusal is not None:
        return command.reply(refusal.code, remark=refusal.remark)
    return command.reply(fields=fields)
