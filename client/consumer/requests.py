"""Requests from brokers to a consumer, and the answers.

The largest is the running info, the state that an operator requests
(GET_CONSUMER_RUNNING_INFO).
"""

import sys
import threading
import traceback
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from weakref import WeakKeyDictionary

from mq.client.consumer.member import Member
from mq.client.consumer.push.listener import Call, RetryLater, SuspendQueue
from mq.client.errors import ClientError
from mq.client.machine import clock
from mq.client.namespace import without_namespace
from mq.client.pull.process_queue import ConsumeCounts, ProcessQueue
from mq.client.reader.reader import Reader
from mq.client.transport.session import RequestHandler, Session
from mq.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeType,
    GetConsumerStatusBody,
    MessageQueue,
    ProcessQueueInfo,
    ResetOffsetBody,
    SubscriptionData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.group import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from mq.protocol.headers.offset import ResetOffsetRequestHeader
from mq.protocol.message import StoredMessage, decode_record
from mq.protocol.versions import CURRENT_VERSION, version_name


class MemberRequests:
    """Answers the requests for one member of a group (ClientRemotingProcessor)."""

    def __init__(
        self, member: Member, reader: Reader, *, ordered: bool = False, concurrency: int = 1
    ) -> None:
        """`reader` has the member's queues; `concurrency` is the number of concurrent calls of a
        listener.
        """
        self._member = member
        self._reader = reader
        self._ordered = ordered
        self._concurrency = concurrency
        self.handlers: dict[int, RequestHandler] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
        }

    def register(self) -> None:
        """Route the session's requests for this group to this member. Safe to call more than once.

        Raises ClientError if another member of the group is open on the same session.
        """
        members = _members_of(self._member.session)
        group = self._member.group
        if members.setdefault(group, self) is not self:
            raise ClientError(f"the session has a consumer of {group} already")

    def leave(self) -> None:
        """Stop answering for the group. Safe to call more than once."""
        members = _members_of(self._member.session)
        if members.get(self._member.group) is self:
            del members[self._member.group]

    def _members_changed(self, request: Command, address: str) -> None:
        header = NotifyConsumerIdsChangedRequestHeader.decode(request.fields)
        if header.consumer_group == self._member.group:
            self._reader.wake()

    async def _reset_offset(self, request: Command, address: str) -> None:
        header = ResetOffsetRequestHeader.decode(request.fields)
        if header.group == self._member.group:
            offsets = ResetOffsetBody.decode(request.body).offset_table
            await self._reader.reset(
                {queue: to for queue, to in offsets.items() if queue.topic == header.topic}
            )

    def _status(self, request: Command, address: str) -> Command:
        header = GetConsumerStatusRequestHeader.decode(request.fields)
        table = {
            queue: held.commit_offset
            for queue, held in self._reader.held.items()
            if queue.topic == header.topic and header.group == self._member.group
        }
        return request.reply(0, None, GetConsumerStatusBody(message_queue_table=table).encode())

    def _running_info(self, request: Command, address: str) -> Command:
        header = GetConsumerRunningInfoRequestHeader.decode(request.fields)
        member = self._member
        if header.consumer_group != member.group:
            return _not_here(request, header.consumer_group)
        info = describe_consumer(
            name_servers=member.session.name_servers,
            started=member.started,
            ordered=self._ordered,
            concurrency=self._concurrency,
            consume_type=member.consume_type,
            subscriptions=member.subscriptions.data.values(),
            held=self._reader.held,
            counts=self._reader.counts,
            stacks=header.jstack_enable,
        )
        return request.reply(0, None, info.encode())


class ConsumerRequests(MemberRequests):
    """Answers the requests for one consumer, which may have a listener."""

    def __init__(
        self, member: Member, reader: Reader, call: Call | None, *, ordered: bool, concurrency: int
    ) -> None:
        """`call` passes messages to the listener, if there is one."""
        super().__init__(member, reader, ordered=ordered, concurrency=concurrency)
        self._call = call
        self.handlers[RequestCode.CONSUME_MESSAGE_DIRECTLY] = self._consume_directly

    async def _consume_directly(self, request: Command, address: str) -> Command:
        header = ConsumeMessageDirectlyResultRequestHeader.decode(request.fields)
        if header.consumer_group != self._member.group:
            return _not_here(request, header.consumer_group)
        message = decode_record(request.body)
        started = clock.monotonic()
        outcome, remark = await self._consume(message)
        result = ConsumeMessageDirectlyResult(
            order=self._ordered,
            auto_commit=True,
            consume_result=outcome,
            remark=remark,
            spent_time_mills=int((clock.monotonic() - started) * 1000),
        )
        return request.reply(0, None, result.encode())

    async def _consume(self, message: StoredMessage) -> tuple[CMResult, str | None]:
        """Pass a message to the listener on behalf of an operator; returns the result and a
        remark.
        """
        call = self._call
        if call is None:
            return CMResult.CR_THROW_EXCEPTION, "this consumer has no listener"
        message.topic = without_namespace(self._member.namespace, message.topic)
        try:
            await call([message])
        except (RetryLater, SuspendQueue) as error:
            return CMResult.CR_LATER, str(error)
        except Exception as error:  # the listener is user code
            return CMResult.CR_THROW_EXCEPTION, f"{type(error).__name__}: {error}"
        return CMResult.CR_SUCCESS, None


_CODES = (
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
)
_MEMBERS: "WeakKeyDictionary[Session, dict[str, MemberRequests]]" = WeakKeyDictionary()


def serve_also(session: Session, code: int) -> None:
    """Route requests with another code to the members of groups on a session."""
    session.on_request(code, partial(_for_member, _members_of(session)))


def _members_of(session: Session) -> dict[str, MemberRequests]:
    """Return the members on a session by group, which the session's request handlers share."""
    members = _MEMBERS.get(session)
    if members is None:
        members = _MEMBERS[session] = {}
        for code in _CODES:
            session.on_request(code, partial(_for_member, members))
    return members


def _for_member(
    members: dict[str, MemberRequests], request: Command, address: str
) -> Command | Awaitable[Command | None] | None:
    group = request.fields.get("consumerGroup") or request.fields.get("group", "")
    member = members.get(group)
    handler = None if member is None else member.handlers.get(request.code)
    return _not_here(request, group) if handler is None else handler(request, address)


def _not_here(request: Command, group: str) -> Command:
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)


_MIB = 1024 * 1024


def describe_consumer(
    *,
    name_servers: Iterable[str],
    started: float,
    ordered: bool,
    concurrency: int,
    consume_type: ConsumeType,
    subscriptions: Iterable[SubscriptionData],
    held: Mapping[MessageQueue, ProcessQueue],
    counts: Mapping[str, ConsumeCounts],
    stacks: bool,
) -> ConsumerRunningInfo:
    """Build the answer. `started` is in seconds since 1970; `stacks` adds the stacks of all
    threads.
    """
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in name_servers),
            "PROP_CONSUME_TYPE": consume_type.name,
            "PROP_CLIENT_VERSION": version_name(CURRENT_VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(int(started * 1000)),
            "PROP_CONSUMEORDERLY": "true" if ordered else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(concurrency),
        },
        subscription_set=list(subscriptions),
        mq_table={queue: _describe_queue(held[queue]) for queue in sorted(held)},
        status_table={topic: counts[topic].status() for topic in sorted(counts)},
        jstack=_stacks() if stacks else None,
    )


def _describe_queue(held: ProcessQueue) -> ProcessQueueInfo:
    first, last = held.bounds
    return ProcessQueueInfo(
        commit_offset=held.commit_offset,
        cached_msg_min_offset=first,
        cached_msg_max_offset=last,
        cached_msg_count=held.count,
        cached_msg_size_in_mib=held.bytes // _MIB,
        locked=held.locked,
        last_lock_timestamp=int(held.last_lock * 1000),
        droped=held.dropped,
        last_pull_timestamp=int(held.last_pull * 1000),
        last_consume_timestamp=int(held.last_consume * 1000),
    )


def _stacks() -> str:
    """Return the stacks of all threads, as jstack does for a Java consumer."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"{names.get(ident, ident)}\n{lines}")
    return "\n".join(parts)
