"""Sending messages.

`Producer.submit` is the hot path: no task, no await, one future per message. `Producer.send` adds
what cannot be had without waiting: fetching a route, and trying another broker.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from mq.client.aims import Aims
from mq.client.closing import Closing
from mq.client.errors import (
    ClientError,
    ConnectError,
    MQError,
    ReplyTimeout,
    RequestTimeout,
    RouteNotFound,
)
from mq.client.heartbeat import Heartbeats
from mq.client.hook_calls import SendHooks
from mq.client.hooks import HookRefused, SendContext, SendHook, of_kind
from mq.client.namespace import with_namespace
from mq.client.options import ClientOptions, refuse, take
from mq.client.outgoing import Draft, draft, draft_batch
from mq.client.producer_options import COMPRESS_OVER as COMPRESS_OVER
from mq.client.producer_options import ProducerKeywords, ProducerOptions
from mq.client.request_reply import make_reply, make_request, replies_of
from mq.client.send_result import SendResult as SendResult
from mq.client.send_result import SendStatus as SendStatus
from mq.client.send_result import read_result
from mq.client.session import Session, session_for
from mq.client.targets import Target
from mq.protocol.bodies import HeartbeatData, MessageQueue, ProducerData
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from mq.protocol.message import Message, StoredMessage, check_property
from mq.protocol.message_id import UniqueIdMaker
from mq.protocol.names import check_group, reply_topic
from mq.protocol.recall import RecallHandle

if TYPE_CHECKING:
    from mq.client.trace.hooks import SendTrace

log = logging.getLogger(__name__)

# How long a send whose only broker has failed waits for a fresh route before it tries again.
ROUTE_PATIENCE = 0.5


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
        options: ProducerOptions | None = None,
        *,
        client: ClientOptions | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None:
        """`session` is the addresses of name servers, or an open session to share.

        `options` and `client`, and keywords that are fields of them, say how; with a session that
        is shared `client` is what that was opened with, by default. The session's own part (time-
        outs, credentials and the like) is as it is then.

        Raises IllegalName for the group, ClientError for addresses that are none, and for an
        `RpcHook` that is to work on a session without being one of its own.
        """
        given = cast("dict[str, Any]", keywords)
        options = take(options or ProducerOptions(), given)
        self.session, client = session_for(session, client, given)
        refuse(self, given)
        self._owns_session = self.session is not session
        self.namespace = namespace = client.namespace
        self.group = check_group(with_namespace(namespace, check_group(group)))
        self.timeout = options.timeout
        self.retries = options.retries
        self.retry_not_stored = options.retry_not_stored
        self.compress_over = options.compress_over
        self.max_body = options.max_body
        self.trace: SendTrace | None = None
        self._trace_topic = options.trace
        self._send_hooks: Sequence[SendHook] = of_kind(client.hooks, SendHook) or ()
        self._hooks = self._made_hooks()
        self._heartbeats = Heartbeats(
            self.session, self._describe, replicas=False, interval=client.intervals.heartbeats
        )
        self._aims = Aims(
            self.session,
            namespace,
            options.faults,
            vip=options.vip_channel,
            greet=self._heartbeats.greet_new,
        )
        self._next_id: UniqueIdMaker | None = None
        self._beating: asyncio.Task[None] | None = None
        self._close_once = Closing()

    def _made_hooks(self) -> SendHooks | None:
        hooks = [*self._send_hooks, *([] if self.trace is None else [self.trace])]
        return SendHooks(hooks, self.group) if hooks else None

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
        self._hooks = self._made_hooks()

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
        batch = self._drafted(named)
        deadline = self._deadline(timeout)
        await self.prepare(batch.topic, timeout=self.timeout if timeout is None else timeout)
        return await self._send(batch, queue, deadline)

    async def send_oneway(self, message: Message, queue: MessageQueue | None = None) -> None:
        """Send a message that no broker answers: it may be lost without an error."""
        target = await self._aims.prepare(message.topic)
        chosen = queue or self._aims.next(target)
        address = self._aims.address(target, chosen)
        outgoing = self._draft(message)
        if self._hooks is None:
            await self.session.invoke_oneway(address, outgoing.command(chosen))
            return
        context, request = self._begin(self._hooks, outgoing, chosen, address, one_way=True)
        error: BaseException | None = None
        try:
            await self.session.invoke_oneway(address, request)
        except BaseException as failure:
            error = failure
            raise
        finally:
            self._hooks.end(context, None, error)

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
        route = await self.session.route(self._aims.routed(topic))
        for cluster in {broker.cluster for broker in route.broker_datas if broker.cluster}:
            with contextlib.suppress(RouteNotFound):
                await self.session.route(reply_topic(cluster))
        await self._heartbeats.greet_new()

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
        target = self._aims.target(message.topic)
        chosen = queue or self._aims.next(target)
        return self._submit(target, self._draft(message), chosen, self.timeout)

    async def prepare(self, topic: str, *, timeout: float | None = None) -> Sequence[MessageQueue]:
        """Have the route of `topic` ready for `submit`; returns the queues that can be written to.

        A topic that no name server knows goes where brokers create topics as they are sent to.
        It waits only the first time; from then on what is known serves while it is refreshed.
        Raises RouteNotFound, and RequestTimeout after `timeout` seconds, 3 by default.
        """
        return (await self._aims.prepare(topic, timeout)).queues

    async def address_of(self, queue: MessageQueue) -> str:
        """Where messages for a queue are sent to, "host:port"; also of a topic that is to be made.

        Raises RouteNotFound.
        """
        return self._aims.address(await self._aims.prepare(queue.topic), queue)

    def _deadline(self, timeout: float | None) -> float:
        """When a send with this time-out is to be over, by the loop's clock."""
        seconds = self.timeout if timeout is None else timeout
        return asyncio.get_running_loop().time() + seconds

    async def _send(
        self, outgoing: Draft, queue: MessageQueue | None, deadline: float
    ) -> SendResult:
        loop = asyncio.get_running_loop()
        aims, faults = self._aims, self._aims.faults
        tries = 1 if queue is not None else 1 + self.retries
        failed: str | None = None
        while True:
            target = aims.target(outgoing.topic)
            chosen = queue or aims.next(target, failed)
            tries -= 1
            began = loop.time()
            try:
                result = await self._submit(target, outgoing, chosen, deadline - began)
                if faults is not None:
                    faults.record(chosen.broker_name, loop.time() - began)
                if (
                    result.status is SendStatus.SEND_OK
                    or not self.retry_not_stored
                    or not tries
                    or loop.time() >= deadline
                ):
                    return result
                failed = chosen.broker_name
                continue
            except HookRefused:
                raise
            except MQError as error:
                if faults is not None:
                    faults.record(chosen.broker_name, loop.time() - began, isolate=True)
                if isinstance(error, ConnectError | RequestTimeout) or error.retriable:
                    aims.outdate(outgoing.topic)
                if not error.retriable or not tries or loop.time() >= deadline:
                    raise
                failed = chosen.broker_name
            if len(target.addresses) == 1:
                # Only a newer route has another place to try.
                await aims.look_again(outgoing.topic, min(ROUTE_PATIENCE, deadline - loop.time()))
            await aims.prepare(outgoing.topic)

    def _submit(
        self, target: Target, outgoing: Draft, queue: MessageQueue, seconds: float
    ) -> "asyncio.Future[SendResult]":
        address = self._aims.address(target, queue)
        read = partial(read_result, address, outgoing.ids, queue)
        if self._hooks is not None:
            return self._submit_hooked(self._hooks, outgoing, queue, address, seconds, read)
        return self.session.request(address, outgoing.command(queue), seconds, read)

    def _submit_hooked(
        self,
        hooks: SendHooks,
        outgoing: Draft,
        queue: MessageQueue,
        address: str,
        seconds: float,
        read: Callable[[Command], SendResult],
    ) -> "asyncio.Future[SendResult]":
        context, request = self._begin(hooks, outgoing, queue, address, one_way=False)

        def note(response: Command) -> SendResult:
            context.response = response
            return read(response)

        try:
            future = self.session.request(address, request, seconds, note)
        except BaseException as error:
            hooks.end(context, None, error)
            raise
        # The first callback of the future: hooks have run when `send` returns.
        future.add_done_callback(partial(hooks.done, context))
        return future

    def _begin(
        self,
        hooks: SendHooks,
        outgoing: Draft,
        queue: MessageQueue,
        address: str,
        *,
        one_way: bool,
    ) -> tuple[SendContext, Command]:
        """Let hooks see a try, and change its messages; returns what goes out then."""
        source = outgoing.source
        messages = (source,) if isinstance(source, Message) else source
        context = hooks.begin(messages, queue, address, one_way=one_way)
        if hooks.may_change:
            try:
                for message in messages:
                    for name, value in message.properties.items():
                        check_property(name, value)
                outgoing = self._drafted(source)
            except Exception:
                log.exception("what a hook has set cannot be sent, the message goes without it")
        request = context.request = outgoing.command(queue)
        return context, request

    def _draft(self, message: Message) -> Draft:
        return self._drafted(message if self.namespace is None else self._named(message))

    def _drafted(self, source: Message | Sequence[Message]) -> Draft:
        """What sends messages that have their full names; they keep ids that they have."""
        if isinstance(source, Message):
            return draft(
                self.group, source, self._ids(), self.compress_over, self._in_unit, self.max_body
            )
        return draft_batch(self.group, source, self._ids(), self._in_unit, self.max_body)

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
