"""Sending messages.

`Producer.submit` is the hot path: no task, no await, one future per message. `Producer.send` adds
what cannot be had without waiting: fetching a route, and trying another broker.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

from mq.client.caller import Caller
from mq.client.closing import Closing
from mq.client.credentials import AccessKey
from mq.client.errors import (
    ClientError,
    ConnectError,
    MQError,
    ReplyTimeout,
    RequestTimeout,
    RouteNotFound,
    for_code,
)
from mq.client.heartbeat import Heartbeats
from mq.client.intervals import DEFAULT_INTERVALS, Intervals
from mq.client.latency import BrokerFaults, FaultTolerance
from mq.client.namespace import with_namespace
from mq.client.outgoing import MAX_BODY, Draft, draft, draft_batch
from mq.client.request_reply import make_reply, make_request, replies_of
from mq.client.routes import write_queues
from mq.client.session import Session
from mq.client.targets import Target, queues_to_create
from mq.protocol.bodies import (
    HeartbeatData,
    MessageQueue,
    ProducerData,
    TopicRouteData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.send import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    SendMessageResponseHeader,
)
from mq.protocol.message import Message, StoredMessage
from mq.protocol.message_id import UniqueIdMaker
from mq.protocol.names import DEFAULT_TOPIC, check_group, check_topic, reply_topic
from mq.protocol.recall import RecallHandle

if TYPE_CHECKING:
    import ssl

    from mq.client.trace.hooks import SendTrace

# How long a send whose only broker has failed waits for a fresh route before it tries again.
ROUTE_PATIENCE = 0.5
COMPRESS_OVER = 4096  # bytes of body; from here on it is sent compressed, as Java's producers do


class SendStatus(StrEnum):
    """How safe a message is that the broker has taken."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


_STATUS = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(NamedTuple):
    """Where a message went. Of a batch: the ids of all, joined by commas, and the first offset."""

    status: SendStatus
    message_id: str  # the unique id
    offset_message_id: str  # says which host has it where in its log
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None
    recall_handle: str | None = None  # of a message that is due later, for `Producer.recall`


#: Chooses a queue for a message among those of its topic.
Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


class Producer:
    """Sends messages. An async context manager.

        async with Producer("127.0.0.1:9876", "orders") as producer:
            result = await producer.send(Message("Orders", b"...", keys=["42"]))

    `send` raises, besides what each method says: BrokerError (the broker refused), ConnectError,
    RequestTimeout (the message may have been stored), BadAnswer, RouteNotFound, ClientError (a body
    that is empty or too long, a closed producer), IllegalName (of the topic), ValueError
    (properties that are too long for a record).
    """

    def __init__(
        self,
        session: Session | str | Sequence[str],
        group: str = "mq_producer",
        *,
        timeout: float = 3.0,
        retries: int = 2,
        retry_not_stored: bool = False,
        compress_over: int = COMPRESS_OVER,
        max_body: int = MAX_BODY,
        faults: FaultTolerance | None = None,
        vip_channel: bool = False,
        intervals: Intervals = DEFAULT_INTERVALS,
        trace: bool | str = False,
        namespace: str | None = None,
        instance: str | None = None,
        unit_name: str | None = None,
        credentials: AccessKey | None = None,
        tls: "ssl.SSLContext | None" = None,
    ) -> None:
        """`session` is the addresses of name servers, or an open session to share.

        `instance`, `unit_name`, `credentials` and `tls` are for a session of its own, as `Session`
        takes them.

        `timeout` in seconds is for a `send` with all its tries, of which there are 1 + `retries`;
        with `retry_not_stored` also a status other than SEND_OK has it tried at another broker
        (retryAnotherBrokerWhenNotStoreOK), after which both may have the message. Bodies over
        `max_body` bytes are refused. With `vip_channel` messages go to the port that brokers keep
        for senders, two below their own. `intervals` says how often routes are refreshed, in a
        session of its own, and heartbeats sent.
        With `faults` brokers that have been slow are avoided for a while (sendLatencyFaultEnable).
        `trace` sends what is sent to the trace topic, too, or to that of the name given. Topics and
        the group are of `namespace`: queues have their full names, messages the short ones.

        Raises IllegalName for the group, ClientError for addresses that are none.
        """
        self.group = check_group(with_namespace(namespace, check_group(group)))
        self.namespace = namespace
        self.timeout = timeout
        self.retries = retries
        self.retry_not_stored = retry_not_stored
        self.compress_over = compress_over
        self.max_body = max_body
        self._vip_channel = vip_channel
        self._owns_session = not isinstance(session, Caller)
        self.session = (
            session
            if isinstance(session, Session)
            else Session(
                session,
                instance=instance,
                unit_name=unit_name,
                credentials=credentials,
                tls=tls,
                route_interval=intervals.routes,
            )
        )
        self.trace: SendTrace | None = None
        self._trace_topic = trace
        self._faults = None if faults is None else BrokerFaults(faults)
        self._targets: dict[str, Target] = {}
        self._heartbeats = Heartbeats(
            self.session, self._describe, replicas=False, interval=intervals.heartbeats
        )
        self._next_id: UniqueIdMaker | None = None
        self._beating: asyncio.Task[None] | None = None
        self._close_once = Closing()

    async def open(self) -> None:
        """Get ready to send. Safe to call again."""
        await self.session.open()
        if self._next_id is None:
            host = self.session.client_id.partition("@")[0]
            self._next_id = UniqueIdMaker(host, os.getpid(), time.time)
            self._beating = self.session.keep_task(self._heartbeats.run())
            if self._trace_topic:
                await self._open_trace(self._trace_topic)

    async def _open_trace(self, topic: bool | str) -> None:
        # Here: few producers trace, and the dispatcher is a user of producers itself.
        from mq.client.trace.hooks import make_send_trace

        self.trace = make_send_trace(self.session, self.group, topic, self.namespace)
        await self.trace.dispatcher.open()

    async def close(self) -> None:
        """Say good-bye to the brokers, and close the session if it is this producer's own.

        It goes on to the end even when whoever waits for it is cancelled.
        """
        await self._close_once.run(self._close)

    async def _close(self) -> None:
        try:
            if self._beating is not None:
                self._beating.cancel()
                self._beating = None
                if self.trace is not None:
                    await self.trace.dispatcher.close()
                self._next_id = None
                await self._heartbeats.unregister(producer_group=self.group)
        finally:
            if self._owns_session:
                await self.session.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        *,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message and return where it was stored.

        It goes to `queue`, or to the one that `selector` chooses, or else to the next in turn; only
        then another broker is tried when one fails. All tries carry the same unique id.
        """
        deadline = self._deadline(timeout)
        queues = await self.prepare(
            message.topic, timeout=self.timeout if timeout is None else timeout
        )
        if selector is not None:
            queue = selector(queues, message)
        return await self._send(self._draft(message), queue, deadline)

    async def send_batch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        *,
        timeout: float | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request; they get offsets one after the other.

        Raises ValueError if there is none, if topics or `wait_store_ok` differ, or for a delayed
        message: the broker would refuse them.
        """
        named = [self._named(message) for message in messages]
        batch = draft_batch(self.group, named, self._ids(), self._in_unit, self.max_body)
        deadline = self._deadline(timeout)
        await self.prepare(batch.topic, timeout=self.timeout if timeout is None else timeout)
        return await self._send(batch, queue, deadline)

    async def send_oneway(self, message: Message, queue: MessageQueue | None = None) -> None:
        """Send a message that no broker answers: it may be lost without an error."""
        await self.prepare(message.topic)
        target = self._target(message.topic)
        chosen = queue or self._next(target)
        command = self._draft(message).command(chosen)
        await self.session.invoke_oneway(self._address(target, chosen), command)

    async def request(
        self, message: Message, timeout: float | None = None, queue: MessageQueue | None = None
    ) -> StoredMessage:
        """Send a message to a consumer that replies to it, and return the reply.

        `timeout` in seconds is for both. Raises ReplyTimeout if the message was sent, but no reply
        came, and what `send` raises.
        """
        loop = asyncio.get_running_loop()
        seconds = self.timeout if timeout is None else timeout
        deadline = loop.time() + seconds
        request, correlation_id = make_request(message, self.session.client_id, seconds)
        await self._be_known(request.topic)
        reply = replies_of(self.session).expect(correlation_id)
        try:
            await self.send(request, queue, timeout=deadline - loop.time())
            async with asyncio.timeout_at(deadline):
                return await reply
        except TimeoutError:
            raise ReplyTimeout(message.topic, seconds) from None
        finally:
            reply.cancel()

    async def _be_known(self, topic: str) -> None:
        """Make sure that each broker to which a reply may be sent knows where this client is."""
        await self.prepare(topic)
        topic = with_namespace(self.namespace, topic)
        route = await self.session.route(topic if self._is_routed(topic) else DEFAULT_TOPIC)
        for cluster in {broker.cluster for broker in route.broker_datas if broker.cluster}:
            with contextlib.suppress(RouteNotFound):
                await self.session.route(reply_topic(cluster))
        await self._heartbeats.greet_new()

    def _is_routed(self, topic: str) -> bool:
        return self.session.known_route(topic) is not None

    async def reply(
        self,
        request: StoredMessage,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send the reply to a message that was consumed to the client that waits for it.

        Raises ClientError if none waits, RemoteSystemError if the broker cannot reach it any more,
        and what `send` raises.
        """
        reply = make_reply(request, body, properties=properties)
        queues = await self.prepare(reply.topic)
        # The broker of the request knows the client that sent it there.
        there = [queue for queue in queues if queue.broker_name == request.broker_name]
        return await self.send(reply, there[0] if there else None, timeout=timeout)

    async def recall(self, handle: str, *, timeout: float | None = None) -> str:
        """Take back a message that is not due yet, by the `recall_handle` of its `SendResult`.

        Returns the message's unique id. Raises ValueError for what is no handle, RouteNotFound if
        its broker is gone, and BrokerError if that does not recall it (5.3 brokers and this
        project's do so only with `recallMessageEnable=true`).
        """
        what = RecallHandle.decode(handle)
        address = await self.address_of(MessageQueue(what.topic, what.broker_name, 0))
        header = RecallMessageRequestHeader(
            producer_group=self.group,
            topic=what.topic,
            recall_handle=handle,
            broker=what.broker_name,
        )
        command = Command(RequestCode.RECALL_MESSAGE, header.encode())
        seconds = self.timeout if timeout is None else timeout
        response = await self.session.call(address, command, seconds)
        return RecallMessageResponseHeader.decode(response.fields).msg_id

    def submit(
        self, message: Message, queue: MessageQueue | None = None
    ) -> "asyncio.Future[SendResult]":
        """Send a message without waiting and without a second try; the future has the result.

        For many messages in flight. The caller bounds how many. `prepare` the topic first.
        """
        target = self._target(message.topic)
        chosen = queue or self._next(target)
        return self._submit(target, self._draft(message), chosen, self.timeout)

    async def prepare(self, topic: str, *, timeout: float | None = None) -> Sequence[MessageQueue]:
        """Have the route of `topic` ready for `submit`; returns the queues that can be written to.

        A topic that no name server knows goes where brokers create topics as they are sent to.
        It waits only the first time; from then on what is known serves while it is refreshed.
        Raises RouteNotFound, and RequestTimeout after `timeout` seconds, 3 by default.
        """
        if self.namespace is not None:
            topic = with_namespace(self.namespace, topic)
        target = self._targets.get(topic)
        if target is not None:
            now = asyncio.get_running_loop().time()
            if now >= target.until:
                target = self._renewed(topic, target)
                target.until = now + 1.0
            return target.queues
        check_topic(topic)
        seconds = self.session.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                route, queues = await self._find(topic)
        except TimeoutError:
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            raise RequestTimeout(self.session.name_server, seconds, code) from None
        return self._aim(topic, route, queues).queues

    async def _find(self, topic: str) -> tuple[TopicRouteData, list[MessageQueue]]:
        try:
            route = await self.session.route(topic)
        except RouteNotFound:
            try:
                route = await self.session.route(DEFAULT_TOPIC)
            except RouteNotFound:
                raise RouteNotFound(topic) from None
            return route, queues_to_create(topic, route)
        return route, write_queues(topic, route)

    def _aim(self, topic: str, route: TopicRouteData, queues: list[MessageQueue]) -> Target:
        until = asyncio.get_running_loop().time() + 1.0
        target = self._targets[topic] = Target(topic, route, queues, until, vip=self._vip_channel)
        self.session.keep_task(self._heartbeats.greet_new())
        return target

    def _renewed(self, topic: str, target: Target) -> Target:
        """The target of the newest route there is; a newer one is asked for if that is old."""
        route = self.session.current_route(topic)
        if route is None:  # of a topic that is to be made, or was meanwhile
            self.session.refresh_route(topic)
            route = self.session.current_route(DEFAULT_TOPIC)
            if route is None or route is target.route:
                return target
            return self._aim(topic, route, queues_to_create(topic, route))
        if route is target.route:
            return target
        return self._aim(topic, route, write_queues(topic, route))

    async def address_of(self, queue: MessageQueue) -> str:
        """Where messages for a queue are sent to, "host:port"; also of a topic that is to be made.

        Raises RouteNotFound.
        """
        await self.prepare(queue.topic)
        return self._address(self._target(queue.topic), queue)

    def _target(self, topic: str) -> Target:
        if self.namespace is not None:
            topic = with_namespace(self.namespace, topic)
        target = self._targets.get(topic)
        if target is None:
            raise ClientError(f"topic {topic} is not prepared")
        return target

    def _next(self, target: Target, avoid: str | None = None) -> MessageQueue:
        if self._faults is None:
            return target.next(avoid)
        return target.next_available(self._faults, avoid)

    def _address(self, target: Target, queue: MessageQueue) -> str:
        address = target.addresses.get(queue.broker_name)
        if address is None:
            raise RouteNotFound(queue.topic, f"no master {queue.broker_name} in its route")
        return address

    def _deadline(self, timeout: float | None) -> float:
        """When a send with this time-out is to be over, by the loop's clock."""
        seconds = self.timeout if timeout is None else timeout
        return asyncio.get_running_loop().time() + seconds

    async def _send(
        self, outgoing: Draft, queue: MessageQueue | None, deadline: float
    ) -> SendResult:
        loop = asyncio.get_running_loop()
        tries = 1 if queue is not None else 1 + self.retries
        failed: str | None = None
        while True:
            target = self._target(outgoing.topic)
            chosen = queue or self._next(target, failed)
            tries -= 1
            began = loop.time()
            try:
                result = await self._submit(target, outgoing, chosen, deadline - began)
                if self._faults is not None:
                    self._faults.record(chosen.broker_name, loop.time() - began)
                if (
                    result.status is SendStatus.SEND_OK
                    or not self.retry_not_stored
                    or not tries
                    or loop.time() >= deadline
                ):
                    return result
                failed = chosen.broker_name
                continue
            except MQError as error:
                if self._faults is not None:
                    self._faults.record(chosen.broker_name, loop.time() - began, isolate=True)
                if isinstance(error, ConnectError | RequestTimeout) or error.retriable:
                    self._outdate(outgoing.topic)
                if not error.retriable or not tries or loop.time() >= deadline:
                    raise
                failed = chosen.broker_name
            if len(target.addresses) == 1:
                # Only a newer route has another place to try.
                await self._look_again(outgoing.topic, min(ROUTE_PATIENCE, deadline - loop.time()))
            await self.prepare(outgoing.topic)

    async def _look_again(self, topic: str, seconds: float) -> None:
        """Wait for a fresh route of `topic`, but not for long: there may be none to be had."""
        topic = topic if self._is_routed(topic) else DEFAULT_TOPIC
        with contextlib.suppress(MQError, TimeoutError):
            async with asyncio.timeout(seconds):
                await self.session.fresh_route(topic)

    def _outdate(self, topic: str) -> None:
        """A broker has failed: look for a fresh route before the next message."""
        self.session.outdate_route(topic if self._is_routed(topic) else DEFAULT_TOPIC)
        target = self._targets.get(topic)
        if target is not None:
            target.until = 0

    def _submit(
        self, target: Target, outgoing: Draft, queue: MessageQueue, seconds: float
    ) -> "asyncio.Future[SendResult]":
        address = self._address(target, queue)
        ids = outgoing.ids
        request = outgoing.command(queue)
        trace = self.trace
        began = 0.0 if trace is None else time.time()

        def read(response: Command) -> SendResult:
            status = _STATUS.get(response.code)
            if status is None:
                raise for_code(response.code, response.remark, address)
            header = SendMessageResponseHeader.decode(response.fields)
            result = SendResult(
                status,
                ids,
                header.msg_id,
                MessageQueue(queue.topic, queue.broker_name, header.queue_id),
                header.queue_offset,
                header.transaction_id,
                header.recall_handle,
            )
            if trace is not None:
                trace.sent(request, response, address, began, result)
            return result

        return self.session.request(address, request, seconds, read)

    def _draft(self, message: Message) -> Draft:
        named = message if self.namespace is None else self._named(message)
        return draft(
            self.group, named, self._ids(), self.compress_over, self._in_unit, self.max_body
        )

    def _named(self, message: Message) -> Message:
        """The message under the full name of its topic."""
        topic = with_namespace(self.namespace, message.topic)
        if topic == message.topic:
            return message
        named = copy(message)
        named.topic = topic
        return named

    @property
    def _in_unit(self) -> bool:
        return self.session.unit_name is not None

    def _ids(self) -> UniqueIdMaker:
        if self._next_id is None:
            raise ClientError("the producer is not open: use `async with`")
        return self._next_id

    def _describe(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.session.client_id,
            producer_data_set=[ProducerData(group_name=self.group)],
            consumer_data_set=[],
        )
