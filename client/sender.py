"""Sends of a producer: drafts, tries, hooks around each try."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial

from mq.client.errors import (
    ClientError,
    ConnectError,
    MQError,
    RemoteSystemError,
    RouteNotFound,
    ServiceNotAvailable,
)
from mq.client.hook_calls import SendHooks
from mq.client.hooks import SendContext
from mq.client.namespace import with_namespace
from mq.client.outgoing import Draft, draft, draft_batch
from mq.client.producer_options import ProducerOptions
from mq.client.routing_table import RoutingTable
from mq.client.send_attempts import SendAttempts
from mq.client.send_result import SendResult, SendStatus, read_result
from mq.client.session import Session
from mq.client.targets import Target
from mq.protocol.bodies import MessageQueue
from mq.protocol.command import Command
from mq.protocol.message import Message, check_property
from mq.protocol.message_id import UniqueIdMaker

log = logging.getLogger(__name__)

# How long a send whose only broker has failed, or is in no route, waits for a fresh one before it
# tries again.
ROUTE_PATIENCE = 0.5
# What brokers of 5.x answer with SYSTEM_ERROR while too few others are in sync with them
# (SendMessageProcessor.handlePutMessageResult, IN_SYNC_REPLICAS_NOT_ENOUGH).
_NOT_IN_SYNC = "in-sync replicas not enough"


def _may_move(error: MQError) -> bool:
    """Whether the set may have a new master in a moment: the next try waits for a route that names
    it. A new one may take nothing until enough others are in sync with it.

    Another SYSTEM_ERROR is tried again at once, as by DefaultMQProducerImpl.sendDefaultImpl: a
    broker refuses so for good, too, and who is refused need not wait for it.
    """
    if isinstance(error, RemoteSystemError):
        return _NOT_IN_SYNC in error.remark
    return isinstance(error, ConnectError | ServiceNotAvailable)


def _avoided(target: Target, flights: SendAttempts, failed: str | None) -> set[str]:
    """The brokers that the next try avoids: those in flight, and the one that has just failed
    unless all others are in flight."""
    avoided = flights.broker_names()
    if failed is not None and target.addresses.keys() - avoided - {failed}:
        avoided.add(failed)
    return avoided


def _share(target: Target, flights: SendAttempts, tries: int, seconds: float) -> float | None:
    """The share of a try in the seconds left; None if nothing else can be tried meanwhile."""
    if not tries or not target.addresses.keys() - flights.broker_names():
        return None
    return seconds / (tries + 1)


class Sender:
    """Sends for one producer. `submit` is the hot path: no task, no await, one future."""

    def __init__(
        self,
        session: Session,
        group: str,
        namespace: str | None,
        options: ProducerOptions,
        aims: RoutingTable,
    ) -> None:
        """`group` is the full name of the producer's, `aims` say where topics go."""
        self.aims = aims
        self.hooks: SendHooks | None = None
        self.next_id: UniqueIdMaker | None = None  # while the producer is open
        self._session = session
        self._group = group
        self._namespace = namespace
        self._retries = options.retries
        self._retry_not_stored = options.retry_not_stored
        self._compress_over = options.compress_over
        self._max_body = options.max_body
        self._in_unit = session.unit_name is not None

    def draft(self, message: Message) -> Draft:
        """Make a message ready to go. Raises as `outgoing.draft`; ClientError when not open."""
        if self._namespace is not None:
            message = self._named(message)
        return draft(
            self._group, message, self._ids(), self._compress_over, self._in_unit, self._max_body
        )

    def draft_batch(self, messages: Iterable[Message]) -> Draft:
        """Make messages of one topic ready to go together. Raises as `outgoing.draft_batch`."""
        named = [self._named(message) for message in messages]
        return draft_batch(self._group, named, self._ids(), self._in_unit, self._max_body)

    def _draft_again(self, source: Message | Sequence[Message]) -> Draft:
        """What hooks may have changed; messages keep the ids that they have."""
        return self.draft(source) if isinstance(source, Message) else self.draft_batch(source)

    def _named(self, message: Message) -> Message:
        """The message under the full name of its topic."""
        topic = with_namespace(self._namespace, message.topic)
        if topic == message.topic:
            return message
        named = copy(message)
        named.topic = topic
        return named

    def _ids(self) -> UniqueIdMaker:
        if self.next_id is None:
            raise ClientError("the producer is not open: use `async with`")
        return self.next_id

    async def send(
        self, outgoing: Draft, queue: MessageQueue | None, deadline: float
    ) -> SendResult:
        """Send to `queue`, or to one after the other until a broker takes it.

        A broker that does not answer is given a share of the time; then another is tried, too.
        """
        flights = SendAttempts()
        try:
            return await self._send(flights, outgoing, queue, deadline)
        finally:
            flights.cancel()

    async def _send(
        self, flights: SendAttempts, outgoing: Draft, queue: MessageQueue | None, deadline: float
    ) -> SendResult:
        loop = asyncio.get_running_loop()
        aims = self.aims
        tries = 1 if queue is not None else 1 + self._retries
        failed: str | None = None
        while True:
            target = aims.target(outgoing.topic)
            if queue is not None and queue.broker_name not in target.addresses:
                patience = min(ROUTE_PATIENCE, deadline - loop.time())
                target = await aims.newer_target(outgoing.topic, patience)
            chosen = queue or aims.next(target, _avoided(target, flights, failed))
            tries -= 1
            began = loop.time()
            name = chosen.broker_name
            try:
                flights.add(self.submit(target, outgoing, chosen, deadline - began), name, began)
                share = _share(target, flights, tries, deadline - began)
                flight = await flights.landed(share)
                if flight is None:  # it stays in flight while another broker is tried
                    aims.isolate(name)
                    aims.outdate(outgoing.topic)
                    continue
                name = flight.broker_name
                result = flight.answer.result()
                aims.record(name, loop.time() - flight.began)
                if (
                    result.status is SendStatus.SEND_OK
                    or not self._retry_not_stored
                    or not tries
                    or loop.time() >= deadline
                ):
                    return result
                failed = name
                continue
            except MQError as error:
                if error.retriable:
                    aims.isolate(name)
                if isinstance(error, RouteNotFound) or error.retriable:
                    aims.outdate(outgoing.topic)
                if not error.retriable or not tries or loop.time() >= deadline:
                    raise
                failed = name
                changes = _may_move(error)
                broke = isinstance(error, ConnectError)
            await self._look_elsewhere(outgoing.topic, target, deadline, changes, broke)

    async def _look_elsewhere(
        self, topic: str, target: Target, deadline: float, changes: bool, broke: bool
    ) -> None:
        """Have a target for the next try, after one that failed."""
        aims = self.aims
        if len(target.addresses) > 1 or (broke and self._session.has_detour()):
            await aims.prepare(topic)
            return
        # Only a newer route has another place to try.
        patience = min(ROUTE_PATIENCE, deadline - asyncio.get_running_loop().time())
        await aims.look_again(topic, patience, target if changes else None)
        with contextlib.suppress(*((RouteNotFound,) if changes else ())):
            await aims.prepare(topic)

    def submit(
        self, target: Target, outgoing: Draft, queue: MessageQueue, seconds: float
    ) -> "asyncio.Future[SendResult]":
        """Send once to `queue`, of `target`, without waiting."""
        address = self.aims.address(target, queue)
        read = partial(read_result, address, outgoing.ids, queue)
        if self.hooks is not None:
            return self._submit_hooked(self.hooks, outgoing, queue, address, seconds, read)
        return self._session.request(address, outgoing.command(queue), seconds, read)

    async def send_oneway(self, target: Target, outgoing: Draft, queue: MessageQueue) -> None:
        """Send to `queue` what no broker answers."""
        address = self.aims.address(target, queue)
        if self.hooks is None:
            await self._session.invoke_oneway(address, outgoing.command(queue))
            return
        context, request = self._begin(self.hooks, outgoing, queue, address, one_way=True)
        error: BaseException | None = None
        try:
            await self._session.invoke_oneway(address, request)
        except BaseException as failure:
            error = failure
            raise
        finally:
            self.hooks.end(context, None, error)

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
            future = self._session.request(address, request, seconds, note)
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
                outgoing = self._draft_again(source)
            except Exception:
                log.exception("what a hook has set cannot be sent, the message goes without it")
        request = context.request = outgoing.command(queue)
        return context, request
