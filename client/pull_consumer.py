"""Reading queues at will: by queue and offset, without a group's bookkeeping unless asked for."""

import logging
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack, cast

from mq.client.admin.offsets import OffsetAdmin
from mq.client.caller import Caller
from mq.client.errors import (
    BadAnswer,
    ConnectError,
    RequestTimeout,
    RouteNotFound,
    for_code,
)
from mq.client.filter_servers import choose_filter_server
from mq.client.offsets import OffsetStore
from mq.client.options import ClientKeywords, ClientOptions, refuse, take
from mq.client.replica_choice import ReplicaChoice
from mq.client.routes import broker_address, read_queues
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
    from mq.client.hook_calls import ConsumeHooks
    from mq.client.session import Session

log = logging.getLogger(__name__)

# Java's broker looks every 5 s which held pulls are due, so an answer may come well after the wait
# is over; its clients allow 15 s for that (consumerTimeoutMillisWhenSuspend).
POLL_MARGIN = 15.0
DEFAULT_MAX_COUNT = 32  # messages per pull; a broker gives no more unless it is set to
# Between two pulls that bring neither messages nor another offset, though they were to be held.
FRUITLESS_SECONDS = 0.05  # doubled each time
LONGEST_FRUITLESS_SECONDS = 3.0


class PullStatus(StrEnum):
    """What became of a pull."""

    FOUND = "FOUND"
    NO_NEW = "NO_NEW_MSG"  # nothing at that offset yet
    NO_MATCHED = "NO_MATCHED_MSG"  # nothing that the expression lets through; go on
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"  # outside the queue; `next_offset` is inside


_STATUS = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


class PullResult(NamedTuple):
    """What a pull brought, and where to go on."""

    status: PullStatus
    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int  # the replica to ask the next time; 0 is the master
    damaged: bool = False  # something that is damaged was passed over
    address: str = ""  # of the broker that has answered


def _has_progress(result: PullResult, offset: int) -> bool:
    """Whether the next request differs from the one for `offset`, or the broker holds it."""
    if result.status is PullStatus.NO_NEW:
        return True
    if result.status is PullStatus.OFFSET_ILLEGAL:
        return result.next_offset != offset
    return result.next_offset > offset


class Puller:
    """Pulls for one group, each queue from the broker of its set that was suggested last, or from
    another one where that cannot be reached."""

    def __init__(
        self,
        session: Caller,
        group: str,
        *,
        lite: bool = False,
        master_only: bool = False,
        hooks: "ConsumeHooks | None" = None,
    ) -> None:
        """With `lite` pulls are marked as Java marks those of its lite pull consumers; with
        `master_only` no replica is asked, whatever is suggested.

        5.x clients have a request code of their own for them, which 4.9 brokers do not know; all
        brokers take these. `hooks` may sort out messages.
        """
        self._session = session
        self.group = group
        self._flags = int(PullSysFlag.LITE_PULL) if lite else 0
        self._master_only = master_only
        self._hooks = hooks
        self._choice = ReplicaChoice(group)
        self._pauses: dict[MessageQueue, float] = {}  # the next ones, see `_slow_down`

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
        """Ask for messages of `queue` from `offset` on.

        `wait` seconds is how long the broker may hold the request until a message comes. One that
        has it asked again at once, and the same, is asked ever more slowly.
        `subscription` goes with the request; without it the broker takes the one of the group's
        heartbeat. What `tags` do not match is left out here too, because the broker compares
        hashes only. `commit_offset` also commits, on the way. A message that is damaged where it is
        stored, by the checksum of its body or so that it is no record, is passed over and logged:
        the queue goes on behind it. (Java's consumers do not look at the checksum, and drop what
        they cannot read with the rest of the answer: MessageDecoder.)

        Without `decompress` bodies are as they are stored.

        `by_class` asks a filter server of the broker, which has the group's class; it commits no
        offset, and needs no subscription.

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
        """Ask the master the next time, whatever was suggested."""
        self._choice.prefer_master(queue)

    async def _slow_down(self, queue: MessageQueue, offset: int, result: PullResult) -> None:
        """Wait before an answer is returned after which the same request would be sent again.

        A Java slave whose queues end before the offsets of its groups, or that does not serve
        reads, answers "at once" for as long as that is so (PullMessageProcessor). A proxy or a
        damaged broker may repeat "offset moved" or "found" in the same way. The first such answer
        is returned without a pause, because it may name another broker.
        """
        if _has_progress(result, offset):
            self._pauses.pop(queue, None)
            return
        pause = self._pauses.get(queue, 0.0)
        self._pauses[queue] = min(max(pause * 2, FRUITLESS_SECONDS), LONGEST_FRUITLESS_SECONDS)
        if pause:
            # Only here: who never waits may have no event loop.
            import asyncio

            await asyncio.sleep(pause)

    async def _ask(
        self, queue: MessageQueue, header: PullMessageRequestHeader, seconds: float
    ) -> tuple[Command, str]:
        """The response of the first broker that answers, and its address."""
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
                # Only a master keeps offsets (DefaultMQPushConsumerImpl and PullAPIWrapper agree).
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
        """The response of one of the broker's filter servers, and its address."""
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
        # Whoever hears of a ConnectError would take the address for a broker's.
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
    """What the broker at `address` has answered to a pull. Raises BrokerError, BadAnswer."""
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
                log.error("%s, from offset %d: passed over what is damaged at its broker: %s",
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

    It works with a session of its own, given name servers, or with one that it is given and leaves
    open. It is a member of no group: it sends no heartbeats, and offsets are committed for its
    group only when asked.
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

        `client`, and keywords that are fields of it, are for a session of its own; with one that is
        given they are what that was opened with, by default.

        Raises IllegalName for the group, ClientError for invalid addresses.
        """
        check_group(group)
        given = cast("dict[str, Any]", keywords)
        self._own: Session | None = None
        if isinstance(session, Caller):
            client = session.options_for(client, given)
        else:
            # Only here: a command with a session of its own kind must not pay for asyncio.
            from mq.client.sessions import make_session

            client = take(client or ClientOptions(), given)
            session = self._own = make_session(session, client)
        refuse(self, given)
        self._hooks: ConsumeHooks | None = None
        if client.hooks:
            from mq.client.hook_calls import consume_hooks

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
        """Close the session if it is this consumer's own. Safe to call again."""
        if self._own is not None:
            await self._own.close()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of `topic` that can be read, in order. Raises RouteNotFound."""
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
        """Ask for messages of `queue` from `offset` on.

        `expression` is "*", tags as "a || b", or what `expression_type` ("TAG", "SQL92") reads.
        `wait` seconds is how long the broker may hold the request until a message comes. Without
        `decompress` bodies are as they are stored: whoever does not trust who sent them gives each
        a limit of its own (`mq.protocol.message.restore_body`).

        Raises BrokerError, ConnectError, RequestTimeout, BadAnswer, RouteNotFound.
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

        By default from the oldest to the newest at the time of the call. Never waits for more.
        """
        offset = await self.min_offset(queue) if begin is None else begin
        stop = await self.max_offset(queue) if end is None else end
        while offset < stop:
            # One by one, where nobody else looks at them: a pull of small ones may be gigabytes.
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
            # With nothing found, an offset ahead is where to go on: the broker has nothing before
            # it (GetMessageStatus.OFFSET_FOUND_NULL).
            if result.next_offset <= offset:
                return
            offset = result.next_offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of `queue` that is kept."""
        return await self._admin.min_offset(await self._master(queue), queue.topic, queue.queue_id)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of `queue` will get."""
        return await self._admin.max_offset(await self._master(queue), queue.topic, queue.queue_id)

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset of the first message of `queue` stored at `timestamp` (ms) or later."""
        address = await self._master(queue)
        return await self._admin.search_offset(address, queue.topic, queue.queue_id, timestamp)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group goes on in `queue`; None if it never committed there."""
        return await self._offsets.committed(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Let the group go on at `offset` of `queue`. Raises what went wrong at the broker."""
        self._offsets.update(queue, offset)
        for error in await self._offsets.commit([queue], again=True):
            raise error

    async def _master(self, queue: MessageQueue) -> str:
        return await self.session.master_address(queue.topic, queue.broker_name)
