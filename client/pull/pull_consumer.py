"""Reads queues by offset, without group membership; offsets are committed only on request."""

import logging
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack, cast

from mq.client.admin.offsets import OffsetAdmin
from mq.client.errors import (
    BadAnswer,
    ConnectError,
    RequestTimeout,
    RouteNotFound,
    for_code,
)
from mq.client.offsets.offset_store import OffsetStore
from mq.client.options import ClientKeywords, ClientOptions, refuse, take
from mq.client.routing.replica_choice import ReplicaChoice, choose_filter_server
from mq.client.routing.routes import broker_address, read_queues
from mq.client.transport.caller import Caller
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.compression import MAX_DECOMPRESSED
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from mq.protocol.message import StoredMessage, decode_records, decode_undamaged, restore_body
from mq.protocol.names import TOOLS_CONSUMER_GROUP, check_group
from mq.protocol.tags import TagExpression

if TYPE_CHECKING:
    from mq.client.pull.consume_hooks import ConsumeHooks
    from mq.client.transport.session import Session

log = logging.getLogger(__name__)

# Java's broker checks suspended pulls every 5 s, so an answer may arrive well after the wait is
# over; its clients allow 15 s for that (consumerTimeoutMillisWhenSuspend).
POLL_MARGIN = 15.0
DEFAULT_MAX_COUNT = 32  # messages per pull; brokers return no more by default
# Between two pulls that return neither messages nor another offset although they may be suspended.
FRUITLESS_SECONDS = 0.05  # doubled each time
LONGEST_FRUITLESS_SECONDS = 3.0


class PullStatus(StrEnum):
    """The outcome of a pull."""

    FOUND = "FOUND"
    NO_NEW = "NO_NEW_MSG"  # there is no message at that offset yet
    NO_MATCHED = "NO_MATCHED_MSG"  # the expression matches nothing; continue
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"  # outside the queue; `next_offset` is inside


_STATUS = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


class PullResult(NamedTuple):
    """The result of a pull, and the offset at which to continue."""

    status: PullStatus
    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int  # the broker to ask next; 0 is the master
    damaged: bool = False  # whether damaged records were skipped
    address: str = ""  # of the broker that answered


def _has_progress(result: PullResult, offset: int) -> bool:
    """Whether the next request differs from the one for `offset`, or the broker suspends it."""
    if result.status is PullStatus.NO_NEW:
        return True
    if result.status is PullStatus.OFFSET_ILLEGAL:
        return result.next_offset != offset
    return result.next_offset > offset


class Puller:
    """Pulls for one group.

    Each queue is pulled from the broker of its replica set that was suggested last, or from another
    one if that is unreachable.
    """

    def __init__(
        self,
        session: Caller,
        group: str,
        *,
        lite: bool = False,
        master_only: bool = False,
        hooks: "ConsumeHooks | None" = None,
    ) -> None:
        """With `lite` pulls are marked like those of Java's lite pull consumers; with `master_only`
        slaves are not asked, whatever is suggested.

        5.x clients have a request code of their own for lite pulls, which 4.9 brokers do not know;
        all brokers accept the code used here. `hooks` may drop messages.
        """
        self._session = session
        self.group = group
        self._flags = int(PullSysFlag.LITE_PULL) if lite else 0
        self._master_only = master_only
        self._hooks = hooks
        self._choice = ReplicaChoice(group)
        self._pauses: dict[MessageQueue, float] = {}  # the next pauses, see `_slow_down`

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        tags: TagExpression | None,
        *,
        max_count: int = DEFAULT_MAX_COUNT,
        wait: float = 0.0,
        commit_offset: int | None = None,
        subscription: str | None = None,
        expression_type: str | None = None,
        sub_version: int = 0,
        by_class: bool = False,
        decompress: bool = True,
    ) -> PullResult:
        """Request messages of `queue` from `offset` on.

        `wait` is how many seconds the broker may suspend the request until a message arrives. If an
        answer would lead to the same request at once, it is delayed, longer each time.

        `subscription` is sent with the request; without it the broker uses that of the group's
        heartbeat. Messages that do not match `tags` are dropped here too, because the broker
        compares only hashes. `commit_offset` also commits that offset. A stored message that is
        damaged, because its body does not match its checksum or it is not a valid record, is
        skipped and logged; the queue continues after it. (Java's consumers ignore the checksum, and
        drop an unreadable record with the rest of the answer: MessageDecoder.) Without `decompress`
        bodies are returned as stored.

        `by_class` pulls from a filter server of the broker, which has the group's class; this
        commits no offset and needs no subscription.

        Raises BrokerError, ConnectError, RequestTimeout, BadAnswer, RouteNotFound.
        """
        header = PullMessageRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_count,
            sys_flag=self._flags
            | (PullSysFlag.SUSPEND if wait > 0 else 0)
            | (PullSysFlag.CLASS_FILTER if by_class else 0)
            | (PullSysFlag.SUBSCRIPTION if subscription is not None and not by_class else 0)
            | (PullSysFlag.COMMIT_OFFSET if commit_offset and not by_class else 0),
            commit_offset=commit_offset or 0,
            suspend_timeout_millis=int(wait * 1000),
            subscription=None if by_class else subscription,
            sub_version=sub_version,
            expression_type=expression_type,
        )
        seconds = self._session.timeout + (wait + POLL_MARGIN if wait > 0 else 0)
        ask = self._ask_filter_server if by_class else self._ask
        response, address = await ask(queue, header, seconds)
        result = read_result(response, queue, offset, tags, address, decompress=decompress)
        self._choice.suggest(queue, result.suggested_broker_id, address)
        if wait > 0:
            await self._slow_down(queue, offset, result)
        if self._hooks is not None and result.messages:
            result = result._replace(messages=self._hooks.kept(queue, result.messages))
        return result

    def prefer_master(self, queue: MessageQueue) -> None:
        """Ask the master next, whatever was suggested."""
        self._choice.prefer_master(queue)

    async def _slow_down(self, queue: MessageQueue, offset: int, result: PullResult) -> None:
        """Delay an answer after which the same request would be sent again.

        A Java slave whose queues end before the offsets of its groups, or that does not serve
        reads, answers "at once" while that is so (PullMessageProcessor). A proxy or a faulty broker
        may repeat "offset moved" or "found" in the same way. The first such answer is not delayed,
        because it may name another broker.
        """
        if _has_progress(result, offset):
            self._pauses.pop(queue, None)
            return
        pause = self._pauses.get(queue, 0.0)
        self._pauses[queue] = min(max(pause * 2, FRUITLESS_SECONDS), LONGEST_FRUITLESS_SECONDS)
        if pause:
            # Imported here: a caller that never waits may have no event loop.
            import asyncio

            await asyncio.sleep(pause)

    async def _ask(
        self, queue: MessageQueue, header: PullMessageRequestHeader, seconds: float
    ) -> tuple[Command, str]:
        """Return the response of the first broker that answers, and its address."""
        if self._master_only:
            one = await self._session.master_address(queue.topic, queue.broker_name)
            command = Command(RequestCode.PULL_MESSAGE, header.encode())
            return await self._session.invoke(one, command, seconds), one
        route = await self._session.route(queue.topic)
        master = broker_address(route, queue.broker_name)
        tried: dict[str, ConnectError | RequestTimeout] = {}
        while (address := self._choice.choose(route, queue, tried)) is not None:
            fields = header.encode()
            if address != master and header.commit_offset:
                # Only a master stores offsets (as in DefaultMQPushConsumerImpl and PullAPIWrapper).
                fields["sysFlag"] = str(header.sys_flag & ~PullSysFlag.COMMIT_OFFSET)
            command = Command(RequestCode.PULL_MESSAGE, fields)
            try:
                return await self._session.invoke(address, command, seconds), address
            except (ConnectError, RequestTimeout) as error:
                tried[address] = error
                if self._choice.choose(route, queue, tried) is not None:
                    self._choice.unreachable(address, error)
                    self._session.outdate_route(queue.topic)
        if tried:
            raise next(iter(tried.values()))
        raise RouteNotFound(queue.topic, f"no broker {queue.broker_name} in its route")

    async def _ask_filter_server(
        self, queue: MessageQueue, header: PullMessageRequestHeader, seconds: float
    ) -> tuple[Command, str]:
        """Return the response of one of the broker's filter servers, and its address."""
        route = await self._session.route(queue.topic)
        why = f"broker {queue.broker_name} has no filter server"
        tried: list[str] = []
        without: list[str] = []
        while (broker := self._choice.choose(route, queue, without)) is not None:
            address = choose_filter_server(route, broker, tried)
            if address is None:
                without.append(broker)
                continue
            command = Command(RequestCode.PULL_MESSAGE, header.encode())
            try:
                return await self._session.invoke(address, command, seconds), address
            except (ConnectError, RequestTimeout) as error:
                tried.append(address)
                why = f"no filter server of broker {queue.broker_name} answers: {error}"
                self._session.outdate_route(queue.topic)
        # The address in a ConnectError would be mistaken for a broker's.
        raise RouteNotFound(queue.topic, why)


def read_result(
    response: Command,
    queue: MessageQueue,
    offset: int,
    tags: TagExpression | None,
    address: str,
    *,
    decompress: bool = True,
) -> PullResult:
    """Decode the answer of the broker at `address` to a pull. Raises BrokerError, BadAnswer."""
    status = _STATUS.get(response.code)
    if status is None:
        raise for_code(response.code, response.remark, address)
    messages: list[StoredMessage] = []
    damaged = False
    try:
        header = PullMessageResponseHeader.decode(response.fields)
        next_offset = header.next_begin_offset
        if status is PullStatus.FOUND:
            try:
                messages = decode_records(response.body, check_crc=True, decompress=decompress)
            except RemoteProtocolError as error:
                log.error("%s, from offset %d: skipped records that are damaged at its broker: %s",
                          queue, offset, error, extra={"failure": f"damaged {queue}"})  # fmt: skip
                damaged = True
                messages, complete = decode_undamaged(response.body, decompress=decompress)
                if not complete:
                    last = messages[-1].queue_offset if messages else offset
                    next_offset = min(max(offset, last) + 1, next_offset)
    except RemoteProtocolError as error:
        raise BadAnswer(address, str(error)) from None
    if tags is not None and tags.tags:
        messages = [message for message in messages if tags.matches(message.tags)]
    for message in messages:
        message.broker_name = queue.broker_name
    return PullResult(
        status,
        messages,
        next_offset,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
        damaged,
        address,
    )


class PullConsumer:
    """Reads queues by offset. An async context manager.

    It opens a session of its own for given name servers, or uses a given session and leaves it
    open. It does not join a group: it sends no heartbeats, and commits offsets for its group only
    on request.
    """

    def __init__(
        self,
        session: Caller | str | Sequence[str],
        group: str = TOOLS_CONSUMER_GROUP,
        *,
        client: ClientOptions | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """`session` is a session, or the addresses of name servers.

        `client`, and keywords that name its fields, configure a session of its own; with a given
        session they default to its options. Raises IllegalName for the group, ClientError for
        invalid addresses.
        """
        check_group(group)
        given = cast("dict[str, Any]", keywords)
        self._own: Session | None = None
        if isinstance(session, Caller):
            client = session.options_for(client, given)
        else:
            # Imported here: a command with another kind of session must not import asyncio.
            from mq.client.snode.sessions import make_session

            client = take(client or ClientOptions(), given)
            session = self._own = make_session(session, client)
        refuse(self, given)
        self._hooks: ConsumeHooks | None = None
        if client.hooks:
            from mq.client.pull.consume_hooks import consume_hooks

            self._hooks = consume_hooks(client.hooks, group)
        self.session = session
        self._puller = Puller(session, group, hooks=self._hooks)
        self._admin = OffsetAdmin(session)
        self._offsets = OffsetStore(session, group)

    async def __aenter__(self) -> Self:
        if self._own is not None:
            await self._own.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the session if this consumer owns it. Safe to call again."""
        if self._own is not None:
            await self._own.close()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of `topic`, in order. Raises RouteNotFound."""
        return read_queues(topic, await self.session.route(topic))

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = "*",
        *,
        max_count: int = DEFAULT_MAX_COUNT,
        wait: float = 0.0,
        expression_type: str = "TAG",
        decompress: bool = True,
    ) -> PullResult:
        """Request messages of `queue` from `offset` on.

        `expression` is "*", tags as "a || b", or an expression of `expression_type` ("TAG",
        "SQL92"). `wait` is how many seconds the broker may suspend the request until a message
        arrives. Without `decompress` bodies are returned as stored; a caller that does not trust
        their senders can then decompress each one with a limit
        (`mq.protocol.message.restore_body`). Raises BrokerError, ConnectError, RequestTimeout,
        BadAnswer, RouteNotFound.
        """
        tags = TagExpression.parse(expression) if expression_type == "TAG" else None
        result = await self._puller.pull(
            queue,
            offset,
            tags,
            max_count=max_count,
            wait=wait,
            subscription=expression,
            expression_type=expression_type,
            decompress=decompress,
        )
        if self._hooks is not None and result.messages:
            self._hooks.hand_over(queue, result.messages)
        return result

    async def read(
        self,
        queue: MessageQueue,
        begin: int | None = None,
        end: int | None = None,
        expression: str = "*",
    ) -> AsyncIterator[StoredMessage]:
        """Yield the messages of `queue` with offsets from `begin` up to, not including, `end`.

        The default is from the oldest message to the newest at the time of the call. Does not wait
        for new messages.
        """
        offset = await self.min_offset(queue) if begin is None else begin
        stop = await self.max_offset(queue) if end is None else end
        while offset < stop:
            # Decompress one by one, unless hooks need the bodies: a pull of small records may
            # expand to gigabytes.
            later = self._hooks is None
            result = await self.pull(queue, offset, expression, decompress=not later)
            messages = result.messages[::-1]
            result.messages.clear()
            while messages:
                message = messages.pop()
                if message.queue_offset < stop:
                    if later:
                        restore_body(message, MAX_DECOMPRESSED)
                    yield message
                del message
            # If nothing was found, continue at a higher next offset: the broker has no messages
            # before it (GetMessageStatus.OFFSET_FOUND_NULL).
            if result.next_offset <= offset:
                return
            offset = result.next_offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest retained message of `queue`."""
        return await self._admin.min_offset(await self._master(queue), queue.topic, queue.queue_id)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of `queue` will get."""
        return await self._admin.max_offset(await self._master(queue), queue.topic, queue.queue_id)

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """Return the offset of the first message of `queue` stored at `timestamp` (ms) or later."""
        address = await self._master(queue)
        return await self._admin.search_offset(address, queue.topic, queue.queue_id, timestamp)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group in `queue`; None if there is none."""
        return await self._offsets.committed(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit `offset` of `queue` for the group. Raises the broker's error."""
        self._offsets.update(queue, offset)
        for error in await self._offsets.commit([queue], again=True):
            raise error

    async def _master(self, queue: MessageQueue) -> str:
        return await self.session.master_address(queue.topic, queue.broker_name)
