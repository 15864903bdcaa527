"""Sends of a producer: encoding, attempts, and the hooks around each attempt."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mq.client.hooks import (
    HookRefused,
    SendContext,
    SendHook,
)
from mq.client.machine import clock
from mq.client.send_result import SendResult
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message

if TYPE_CHECKING:
    pass

import contextlib
from collections.abc import Callable, Iterable
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
from mq.client.namespace import with_namespace
from mq.client.producer.options import ProducerOptions
from mq.client.producer.outgoing import Draft, draft, draft_batch
from mq.client.producer.routing_table import RoutingTable
from mq.client.producer.send_attempts import SendAttempts
from mq.client.routing.targets import Target
from mq.client.send_result import SendStatus, read_result
from mq.client.transport.session import Session
from mq.protocol.command import Command
from mq.protocol.message import check_property
from mq.protocol.message_id import UniqueIdMaker

log = logging.getLogger(__name__)

# How long a send whose only broker failed, or is in no route, waits for a fresh route before it
# retries.
ROUTE_PATIENCE = 0.5
# The remark with which 5.x brokers answer SYSTEM_ERROR while too few slaves are in sync
# (SendMessageProcessor.handlePutMessageResult, IN_SYNC_REPLICAS_NOT_ENOUGH).
_NOT_IN_SYNC = "in-sync replicas not enough"
# Hooks are plain functions: a CancelledError comes from a task that a hook inspected, never from
# the client's own task.
_HOOK_FAILURES = (Exception, asyncio.CancelledError)


def _may_move(error: MQError) -> bool:
    """Whether the replica set may soon have a new master, so that the next attempt waits for its
    route.

    A new master may accept nothing until enough slaves are in sync. Any other SYSTEM_ERROR is
    retried at once, as in DefaultMQProducerImpl.sendDefaultImpl: brokers use it for permanent
    refusals, too, and the caller should not wait for those.
    """
    if isinstance(error, RemoteSystemError):
        return _NOT_IN_SYNC in error.remark
    return isinstance(error, ConnectError | ServiceNotAvailable)


def _avoided(target: Target, attempts: SendAttempts, failed: str | None) -> set[str]:
    """Return the brokers that the next attempt avoids: those in flight, and the one that just
    failed unless all others are in flight.
    """
    avoided = attempts.broker_names()
    if failed is not None and target.addresses.keys() - avoided - {failed}:
        avoided.add(failed)
    return avoided


def _share(target: Target, attempts: SendAttempts, tries: int, seconds: float) -> float | None:
    """Return an attempt's share of the seconds left; None if no other attempt is possible
    meanwhile.
    """
    if not tries or not target.addresses.keys() - attempts.broker_names():
        return None
    return seconds / (tries + 1)


class SendHooks:
    """The send hooks of one producer."""

    def __init__(self, hooks: Sequence[SendHook], group: str) -> None:
        self._hooks = tuple(hooks)
        self._group = group
        #: Whether a hook may change the messages in `begin`.
        self.may_change = any(type(hook).before_send is not SendHook.before_send for hook in hooks)

    def begin(
        self, messages: Sequence[Message], queue: MessageQueue, address: str, *, one_way: bool
    ) -> SendContext:
        """Run the hooks before a send attempt. Raises HookRefused."""
        context = SendContext(self._group, messages, queue, address, clock.time(), one_way=one_way)
        for hook in self._hooks:
            try:
                hook.check(context)
            except _HOOK_FAILURES as error:
                raise HookRefused(hook, error) from error
        for hook in self._hooks:
            try:
                hook.before_send(context)
            except _HOOK_FAILURES:
                log.exception("a hook's before_send() failed")
        return context

    def end(
        self, context: SendContext, result: SendResult | None, error: BaseException | None
    ) -> None:
        """Run the hooks after a send attempt."""
        context.result = result
        context.error = error
        for hook in self._hooks:
            try:
                hook.after_send(context)
            except _HOOK_FAILURES:
                log.exception("a hook's after_send() failed")

    def done(self, context: SendContext, future: "asyncio.Future[SendResult]") -> None:
        """Call `end` as the done callback of a send."""
        if future.cancelled():
            self.end(context, None, asyncio.CancelledError())
        else:
            error = future.exception()
            self.end(context, None if error else future.result(), error)


class Sender:
    """Sends for one producer. `submit` is the hot path: no task, no await, one future."""

    def __init__(
        self,
        session: Session,
        group: str,
        namespace: str | None,
        options: ProducerOptions,
        table: RoutingTable,
    ) -> None:
        """`group` is the full name of the producer group; `table` is the routing table."""
        self.table = table
        self.hooks: SendHooks | None = None
        self.next_id: UniqueIdMaker | None = None  # set while the producer is open
        self._session = session
        self._group = group
        self._namespace = namespace
        self._retries = options.retries
        self._retry_not_stored = options.retry_not_stored
        self._compress_over = options.compress_over
        self._max_body = options.max_body
        self._in_unit = session.unit_name is not None

    def draft(self, message: Message) -> Draft:
        """Encode a message. Raises what `outgoing.draft` raises; ClientError when not open."""
        if self._namespace is not None:
            message = self._named(message)
        return draft(
            self._group, message, self._ids(), self._compress_over, self._in_unit, self._max_body
        )

    def draft_batch(self, messages: Iterable[Message]) -> Draft:
        """Encode messages of one topic as a batch. Raises what `outgoing.draft_batch` raises."""
        named = [self._named(message) for message in messages]
        return draft_batch(self._group, named, self._ids(), self._in_unit, self._max_body)

    def _draft_again(self, source: Message | Sequence[Message]) -> Draft:
        """Encode messages again after hooks may have changed them; they keep their ids."""
        return self.draft(source) if isinstance(source, Message) else self.draft_batch(source)

    def _named(self, message: Message) -> Message:
        """Return the message with the full name of its topic."""
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
        """Send to `queue`, or to one queue after the other until a broker accepts the message.

        A broker that does not answer gets a share of the time; then another one is tried, too.
        """
        attempts = SendAttempts()
        try:
            return await self._send(attempts, outgoing, queue, deadline)
        finally:
            attempts.cancel()

    async def _send(
        self, attempts: SendAttempts, outgoing: Draft, queue: MessageQueue | None, deadline: float
    ) -> SendResult:
        loop = asyncio.get_running_loop()
        table = self.table
        tries = 1 if queue is not None else 1 + self._retries
        failed: str | None = None
        while True:
            target = table.target(outgoing.topic)
            if queue is not None and queue.broker_name not in target.addresses:
                patience = min(ROUTE_PATIENCE, deadline - loop.time())
                target = await table.newer_target(outgoing.topic, patience)
            chosen = queue or table.next(target, _avoided(target, attempts, failed))
            tries -= 1
            began = loop.time()
            name = chosen.broker_name
            try:
                attempts.add(self.submit(target, outgoing, chosen, deadline - began), name, began)
                share = _share(target, attempts, tries, deadline - began)
                attempt = await attempts.first_ended(share)
                if attempt is None:  # it stays in flight while another broker is tried
                    table.isolate(name)
                    table.outdate(outgoing.topic)
                    continue
                name = attempt.broker_name
                result = attempt.answer.result()
                table.record(name, loop.time() - attempt.began)
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
                    table.isolate(name)
                if isinstance(error, RouteNotFound) or error.retriable:
                    table.outdate(outgoing.topic)
                if not error.retriable or not tries or loop.time() >= deadline:
                    raise
                failed = name
                changes = _may_move(error)
                broke = isinstance(error, ConnectError)
            await self._find_next_target(outgoing.topic, target, deadline, changes, broke)

    async def _find_next_target(
        self, topic: str, target: Target, deadline: float, changes: bool, broke: bool
    ) -> None:
        """Wait for a target for the next attempt, after a failure."""
        table = self.table
        if len(target.addresses) > 1 or (broke and self._session.has_detour()):
            await table.prepare(topic)
            return
        # Only a newer route can name another broker.
        patience = min(ROUTE_PATIENCE, deadline - asyncio.get_running_loop().time())
        await table.wait_for_fresh_route(topic, patience, target if changes else None)
        with contextlib.suppress(*((RouteNotFound,) if changes else ())):
            await table.prepare(topic)

    def submit(
        self, target: Target, outgoing: Draft, queue: MessageQueue, seconds: float
    ) -> "asyncio.Future[SendResult]":
        """Send once to `queue`, of `target`, without waiting."""
        address = self.table.address(target, queue)
        read = partial(read_result, address, outgoing.ids, queue)
        if self.hooks is not None:
            return self._submit_hooked(self.hooks, outgoing, queue, address, seconds, read)
        return self._session.request(address, outgoing.command(queue), seconds, read)

    async def send_oneway(self, target: Target, outgoing: Draft, queue: MessageQueue) -> None:
        """Send to `queue` as a one-way request."""
        address = self.table.address(target, queue)
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
        # Added first, so the hooks have run when `send` returns.
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
        """Run the hooks before an attempt, which may change its messages; returns the request to
        send.
        """
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
                log.exception("a hook set an invalid property; sending the message without it")
        request = context.request = outgoing.command(queue)
        return context, request
