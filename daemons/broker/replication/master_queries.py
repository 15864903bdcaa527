"""Queries of a slave to its master, over the port for requests, as a tool sends them."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from mq.client.errors import BadAnswer
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.peer_sessions import PeerSessions
from mq.daemons.broker.replication.common_end import Bounds
from mq.daemons.broker.store import NotReplicated
from mq.protocol.bodies import KVTable
from mq.protocol.bodies.queue import QueryConsumeQueueResponseBody
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import ProtocolError
from mq.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
)
from mq.protocol.headers.query import QueryConsumeQueueRequestHeader, ViewMessageRequestHeader

TIMEOUT = 5.0
_AT_ONCE = 32  # concurrent queries
# A refusal of an overloaded or failing master must not count as an answer, because the slave would
# change its log by it. So the remark must start as that for a missing record
# (QueryMessageProcessor.viewMessageById), or end as that for a missing queue or entry
# (AdminBrokerProcessor.queryConsumeQueue).
_NO_RECORD = "can not find message by the offset"
_NOT_THERE = " is not exist!"


class MasterQueries:
    """Queries the broker at an address. An async context manager. All calls raise MQError, and
    NotReplicated if the master refuses.
    """

    def __init__(self, address: str, settings: BrokerSettings) -> None:
        self._address = address
        self._session = PeerSessions(settings).session(address, timeout=TIMEOUT)

    async def __aenter__(self) -> Self:
        await self._session.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def record_at(self, physical: int) -> bytes | None:
        """The record that starts at an offset of its log, or None."""
        header = ViewMessageRequestHeader(offset=physical)
        request = Command(RequestCode.VIEW_MESSAGE_BY_ID, header.encode())
        reply = await self._session.invoke(self._address, request, TIMEOUT)
        self._check_may_see(reply)
        if reply.code == ResponseCode.SUCCESS:
            return bytes(reply.body)
        if not (reply.remark or "").startswith(_NO_RECORD):
            raise NotReplicated(
                f"{self._address} does not report what its log has at {physical}: "
                f"{reply.code} {reply.remark}"
            )
        return None

    def _check_may_see(self, reply: Command) -> None:
        if reply.code == ResponseCode.NO_PERMISSION:
            raise NotReplicated(
                f"{self._address} does not let this slave read messages ({reply.remark}): the "
                f"account of namesrvAclFile needs admin=true there"
            )

    async def _answer(self, request: Command, what: str) -> Command:
        """The reply to a query. Raises NotReplicated for a refusal."""
        reply = await self._session.invoke(self._address, request, TIMEOUT)
        self._check_may_see(reply)
        if reply.code != ResponseCode.SUCCESS:
            raise NotReplicated(
                f"{self._address} does not report {what}: {reply.code} {reply.remark}"
            )
        return reply

    async def first_offsets(
        self, queues: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], int | None]:
        """By topic and queue id the physical offset of the queue's first message; 0 for a queue
        whose first messages have expired, None for a missing queue or one that shows no message.
        """
        found: dict[tuple[str, int], int | None] = {}
        for begin in range(0, len(queues), _AT_ONCE):
            asked = queues[begin : begin + _AT_ONCE]
            offsets = await asyncio.gather(*(self._first_offset(*queue) for queue in asked))
            found.update(zip(asked, offsets, strict=True))
        return found

    async def _first_offset(self, topic: str, queue_id: int) -> int | None:
        # Without logical offsets: for a queue of a static topic, 5.x would use another id, or not
        # have it (TopicQueueMappingManager.buildTopicQueueMappingContext).
        header = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id, logical=False)
        request = Command(RequestCode.GET_MIN_OFFSET, header.encode())
        reply = await self._answer(request, f"where queue {queue_id} of {topic} starts")
        if reply.read_header(GetMinOffsetResponseHeader).offset > 0:
            return 0  # a restarted queue has message 0 as long as the log has its later messages
        return (await self._entry(topic, queue_id, 0))[0]

    async def _entry(self, topic: str, queue_id: int, index: int) -> tuple[int | None, int | None]:
        """As `shown`; without an end if there is no message."""
        entry = QueryConsumeQueueRequestHeader(topic=topic, queue_id=queue_id, index=index, count=1)
        request = Command(RequestCode.QUERY_CONSUME_QUEUE, entry.encode())
        reply = await self._session.invoke(self._address, request, TIMEOUT)
        self._check_may_see(reply)
        if reply.code == ResponseCode.SUCCESS and reply.body:
            body = QueryConsumeQueueResponseBody.decode(reply.body)
            physical = body.queue_data[0].physic_offset if body.queue_data else None
            return physical, body.max_queue_index
        if not (reply.remark or "").endswith(_NOT_THERE):
            raise NotReplicated(
                f"{self._address} does not report what queue {queue_id} of {topic} has: "
                f"{reply.code} {reply.remark}"
            )
        return None, None

    async def shown(self, topic: str, queue_id: int, index: int) -> tuple[int | None, int]:
        """The physical offset of the message at an index of a queue, None if it shows none; and the
        index after the last message that it shows.
        """
        physical, end = await self._entry(topic, queue_id, index)
        if end is not None:
            return physical, end
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        request = Command(RequestCode.GET_MAX_OFFSET, header.encode())
        reply = await self._answer(request, f"where queue {queue_id} of {topic} ends")
        return None, reply.read_header(GetMaxOffsetResponseHeader).offset

    async def bounds(self) -> Bounds:
        """The start, end and recovered end of its log."""
        request = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
        reply = await self._session.invoke(self._address, request, TIMEOUT)
        if reply.code != ResponseCode.SUCCESS:
            raise NotReplicated(
                f"{self._address} does not report what its log has: {reply.code} {reply.remark}"
            )
        try:
            table = KVTable.decode(reply.body).table
            recovered_end = table.get("commitLogFoundEnd")  # only brokers of this project report it
            return Bounds(
                int(table["commitLogMinOffset"]),
                int(table["commitLogMaxOffset"]),
                None if recovered_end is None else int(recovered_end),
            )
        except (ProtocolError, KeyError, ValueError) as error:
            raise BadAnswer(self._address, f"what its log has: {error}") from None
