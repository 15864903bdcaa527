"""Sending messages.

`Producer.submit` is the hot path: no task, no await, one future per message (see `sender`).
`Producer.send` adds the steps that must wait: the route, and retries at other brokers.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from mq.client.errors import (
    ClientError,
    ReplyTimeout,
    RouteNotFound,
)
from mq.client.hooks import SendHook, of_kind
from mq.client.machine import clock, random_ids
from mq.client.namespace import with_namespace
from mq.client.options import ClientOptions, refuse, take
from mq.client.producer.options import COMPRESS_OVER as COMPRESS_OVER
from mq.client.producer.options import ProducerKeywords, ProducerOptions
from mq.client.producer.request_reply import make_reply, make_request, replies_of
from mq.client.producer.routing_table import RoutingTable
from mq.client.producer.sender import ROUTE_PATIENCE, Sender, SendHooks
from mq.client.send_result import SendResult as SendResult
from mq.client.send_result import SendStatus as SendStatus
from mq.client.snode.sessions import session_for
from mq.client.transport.heartbeat import Heartbeats
from mq.client.transport.session import Session
from mq.client.transport.tasks import Closing
from mq.protocol.bodies import HeartbeatData, MessageQueue, ProducerData
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from mq.protocol.message import Message, StoredMessage
from mq.protocol.message_id import UniqueIdMaker
from mq.protocol.names import check_group, reply_topic
from mq.protocol.recall import RecallHandle

if TYPE_CHECKING:  # imported only when tracing is enabled
    from mq.client.trace.dispatcher import TraceDispatcher
    from mq.client.trace.hooks import SendTrace

log = logging.getLogger(__name__)

#: Selects a queue for a message among the queues of its topic.
Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


class Producer:
    """Sends messages. An async context manager.

        async with Producer("127.0.0.1:9876", "orders") as producer:
            result = await producer.send(Message("Orders", b"...", keys=["42"]))

    All sending methods raise these, besides the errors that each one documents:

    - BrokerError: the broker refused the message.
    - ConnectError, RequestTimeout, BadAnswer: after RequestTimeout the message may be stored.
    - RouteNotFound: no name server knows the topic.
    - ClientError: the body is empty or too long, or the producer is closed.
    - IllegalName: the topic's name is not allowed.
    - ValueError: the properties are too long for a record.
    """

    def __init__(
        self,
        session: Session | str | Sequence[str],
        group: str = "mq_producer",
        options: ProducerOptions | None = None,
        *,
        client: ClientOptions | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None:
        """Create a producer.

        Args:
            session: the addresses of name servers, or an open session to share.
            group: the producer group.
            options, client: configure the producer; keywords that name their fields override them.
                `client` defaults to the options of a shared session. Settings of the session itself
                (timeouts, credentials and the like) remain those of the shared session.

        Raises:
            IllegalName: the group's name is not allowed.
            ClientError: an address is invalid, or a shared session does not have an `RpcHook`.
        """
        given = cast("dict[str, Any]", keywords)
        self.options = options = take(options or ProducerOptions(), given)
        self.session, client = session_for(session, client, given)
        refuse(self, given)
        self._owns_session = self.session is not session
        self.namespace = namespace = client.namespace
        self.group = check_group(with_namespace(namespace, check_group(group)))
        self.timeout = options.timeout
        self.trace: SendTrace | None = None
        self._trace_topic = options.trace
        self._send_hooks: Sequence[SendHook] = of_kind(client.hooks, SendHook) or ()
        self._heartbeats = Heartbeats(
            self.session, self._describe, replicas=False, interval=client.intervals.heartbeats
        )
        self._table = RoutingTable(
            self.session,
            namespace,
            options.faults,
            vip=options.vip_channel,
            beat_new=self._heartbeats.beat_new,
        )
        self._sender = Sender(self.session, self.group, namespace, options, self._table)
        self._set_hooks()
        self._beating: asyncio.Task[None] | None = None
        self._close_once = Closing()

    def _set_hooks(self) -> None:
        hooks = [*self._send_hooks, *([] if self.trace is None else [self.trace])]
        self._sender.hooks = SendHooks(hooks, self.group) if hooks else None

    async def open(self) -> None:
        """Prepare for sending; waits first for a close that is running. Safe to call again."""
        await self._close_once.settle()
        await self.session.open()
        if self._sender.next_id is None:
            host = self.session.client_id.partition("@")[0]
            self._sender.next_id = UniqueIdMaker(host, os.getpid(), clock.time, random_ids.salt())
            self._beating = self.session.keep_task(self._heartbeats.run())
            self.session.on_unanswered[self._table] = self._table.unanswered
            if self._trace_topic:
                await self._open_trace(self._trace_topic)

    async def _open_trace(self, topic: bool | str) -> None:
        from mq.client.trace.hooks import SendTrace

        dispatcher = trace_dispatcher(self.session, self.group, "PRODUCE", topic)
        self.trace = SendTrace(dispatcher, self.group, self.namespace)
        await dispatcher.open()
        self._set_hooks()

    async def close(self) -> None:
        """Unregister at the brokers, and close the session if the producer owns it.

        It completes even if the caller is cancelled.
        """
        await self._close_once.run(self._close)

    async def _close(self) -> None:
        try:
            if self._beating is not None:
                self._beating.cancel()
                self._beating = None
                self.session.on_unanswered.pop(self._table, None)
                if self.trace is not None:
                    await self.trace.dispatcher.close()
                self._sender.next_id = None
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

        It is sent to `queue`, or to the one that `selector` returns, or to the next one in turn;
        only in the last case is another broker tried after a failure. All attempts carry the same
        unique id.
        """
        deadline = self._deadline(timeout)
        queues = await self.prepare(
            message.topic, timeout=self.timeout if timeout is None else timeout
        )
        if selector is not None:
            queue = selector(queues, message)
        return await self._sender.send(self._sender.draft(message), queue, deadline)

    async def send_batch(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None = None,
        *,
        timeout: float | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request; they get consecutive offsets.

        Raises ValueError if there are no messages, if topics or `wait_store_ok` differ, or if a
        message is delayed: the broker would refuse the batch.
        """
        batch = self._sender.draft_batch(messages)
        deadline = self._deadline(timeout)
        await self.prepare(batch.topic, timeout=self.timeout if timeout is None else timeout)
        return await self._sender.send(batch, queue, deadline)

    async def send_oneway(self, message: Message, queue: MessageQueue | None = None) -> None:
        """Send a message without an answer from the broker: it may be lost without an error."""
        topic = message.topic
        if queue is None:
            target = await self._table.prepare(topic)
        else:
            target = await self._table.prepare_for(topic, queue.broker_name, ROUTE_PATIENCE)
        chosen = queue or self._table.next(target)
        await self._sender.send_oneway(target, self._sender.draft(message), chosen)

    async def request(
        self, message: Message, timeout: float | None = None, queue: MessageQueue | None = None
    ) -> StoredMessage:
        """Send a message to a consumer that replies to it, and return the reply.

        `timeout` in seconds covers both. Raises ReplyTimeout if the message was sent but no reply
        arrived, and what `send` raises.
        """
        loop = asyncio.get_running_loop()
        seconds = self.timeout if timeout is None else timeout
        deadline = loop.time() + seconds
        request, correlation_id = make_request(message, self.session.client_id, seconds)
        await self._register_at(request.topic)
        reply = replies_of(self.session).expect(correlation_id)
        try:
            await self.send(request, queue, timeout=deadline - loop.time())
            async with asyncio.timeout_at(deadline):
                return await reply
        except TimeoutError:
            raise ReplyTimeout(message.topic, seconds) from None
        finally:
            reply.cancel()

    async def _register_at(self, topic: str) -> None:
        """Ensure that each broker to which a reply may be sent knows this client."""
        if self.session.options.snode:
            raise ClientError("snodes do not forward replies: use a producer connected to brokers")
        await self.prepare(topic)
        topic = with_namespace(self.namespace, topic)
        route = await self.session.route(self._table.routed(topic))
        for cluster in {broker.cluster for broker in route.broker_datas if broker.cluster}:
            with contextlib.suppress(RouteNotFound):
                await self.session.route(reply_topic(cluster))
        await self._heartbeats.beat_new()

    async def reply(
        self,
        request: StoredMessage,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send the reply to a consumed request message, to the client that waits for it.

        Raises ClientError if the message does not ask for a reply, RemoteSystemError if the broker
        can no longer reach the client, and what `send` raises.
        """
        reply = make_reply(request, body, properties=properties)
        queues = await self.prepare(reply.topic)
        # The broker of the request knows the client that sent it.
        there = [queue for queue in queues if queue.broker_name == request.broker_name]
        return await self.send(reply, there[0] if there else None, timeout=timeout)

    async def recall(self, handle: str, *, timeout: float | None = None) -> str:
        """Recall a timed message that is not due yet, by the `recall_handle` of its `SendResult`.

        Returns the message's unique id. Raises ValueError for an invalid handle, RouteNotFound if
        the broker is not in the route, and BrokerError if it does not recall the message (5.3
        brokers and this project's do so only with `recallMessageEnable=true`).
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
        """Send a message without waiting and without retries; the future gets the result.

        Use it for many messages in flight; the caller bounds their number. Call `prepare` for the
        topic first.
        """
        target = self._table.target(message.topic)
        chosen = queue or self._table.next(target)
        sent = self._sender.submit(target, self._sender.draft(message), chosen, self.timeout)
        self._table.watch(sent, chosen)
        return sent

    async def prepare(self, topic: str, *, timeout: float | None = None) -> Sequence[MessageQueue]:
        """Load the route of `topic` for `submit`; returns the writable queues.

        A topic that no name server knows is sent to brokers that create topics automatically. Only
        the first call waits; later ones use the known route while it is refreshed. Raises
        RouteNotFound, and RequestTimeout after `timeout` seconds, 3 by default.
        """
        return (await self._table.prepare(topic, timeout)).queues

    async def address_of(self, queue: MessageQueue) -> str:
        """Return the "host:port" to which messages for a queue are sent, also for a topic yet to be
        created.

        Raises RouteNotFound.
        """
        found = await self._table.prepare_for(queue.topic, queue.broker_name, ROUTE_PATIENCE)
        return self._table.address(found, queue)

    def _deadline(self, timeout: float | None) -> float:
        """Return the deadline of a send with this timeout, by the loop's clock."""
        seconds = self.timeout if timeout is None else timeout
        return asyncio.get_running_loop().time() + seconds

    def _describe(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.session.client_id,
            producer_data_set=[ProducerData(group_name=self.group)],
            consumer_data_set=[],
        )


def trace_dispatcher(
    session: Session, group: str, kind: str, topic: bool | str = True
) -> "TraceDispatcher":
    """Create the dispatcher for the traces of `group`, with a producer of its own.

    `kind` is PRODUCE or CONSUME.
    """
    from mq.client.trace.dispatcher import SEND_SECONDS, TraceDispatcher, trace_group

    name = trace_group(group, kind)
    producer = Producer(session, name, timeout=SEND_SECONDS, client=ClientOptions())
    return TraceDispatcher(session, producer, topic)
