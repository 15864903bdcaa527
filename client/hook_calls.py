"""Calls of a user's hooks, so that none of them loses or fails a message."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mq.client.hooks import (
    ConsumeContext,
    ConsumeHook,
    HookRefused,
    SendContext,
    SendHook,
    of_kind,
)
from mq.client.machine import clock
from mq.client.send_result import SendResult
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message, StoredMessage

if TYPE_CHECKING:
    from mq.client.trace.entries import ConsumeOutcome

log = logging.getLogger(__name__)

# Hooks are plain functions: a CancelledError is of a task that one has looked into, never of ours.
_FAILURES = (Exception, asyncio.CancelledError)


class SendHooks:
    """The hooks of one producer around its sends."""

    def __init__(self, hooks: Sequence[SendHook], group: str) -> None:
        self._hooks = tuple(hooks)
        self._group = group
        #: Whether messages may be others after `begin` than they were before.
        self.may_change = any(type(hook).before_send is not SendHook.before_send for hook in hooks)

    def begin(
        self, messages: Sequence[Message], queue: MessageQueue, address: str, *, one_way: bool
    ) -> SendContext:
        """A try to send is about to begin. Raises HookRefused."""
        context = SendContext(self._group, messages, queue, address, clock.time(), one_way=one_way)
        for hook in self._hooks:
            try:
                hook.check(context)
            except _FAILURES as error:
                raise HookRefused(hook, error) from error
        for hook in self._hooks:
            try:
                hook.before_send(context)
            except _FAILURES:
                log.exception("a hook before sending failed")
        return context

    def end(
        self, context: SendContext, result: SendResult | None, error: BaseException | None
    ) -> None:
        """The try is over."""
        context.result = result
        context.error = error
        for hook in self._hooks:
            try:
                hook.after_send(context)
            except _FAILURES:
                log.exception("a hook after sending failed")

    def done(self, context: SendContext, future: "asyncio.Future[SendResult]") -> None:
        """`end`, as the callback of what is sent."""
        if future.cancelled():
            self.end(context, None, asyncio.CancelledError())
        else:
            error = future.exception()
            self.end(context, None if error else future.result(), error)


class ConsumeHooks:
    """The hooks of one consumer around what it gives to its user."""

    def __init__(self, hooks: Sequence[ConsumeHook], group: str) -> None:
        self._hooks = tuple(hooks)
        self._group = group
        self._sorts_out = tuple(hook for hook in hooks if type(hook).keep is not ConsumeHook.keep)

    def kept(self, queue: MessageQueue, messages: list[StoredMessage]) -> list[StoredMessage]:
        """Those of the messages that the user shall get; one whose hook fails is among them."""
        for hook in self._sorts_out:
            messages = [message for message in messages if self._keeps(hook, queue, message)]
        return messages

    def _keeps(self, hook: ConsumeHook, queue: MessageQueue, message: StoredMessage) -> bool:
        try:
            return hook.keep(self._group, queue, message)
        except _FAILURES:
            log.exception("a hook that sorts out failed, %s is kept", message.message_id)
            return True

    def begin(
        self, queue: MessageQueue, messages: Sequence[StoredMessage]
    ) -> tuple[ConsumeContext, float]:
        """The user is about to get messages. Returns what `end` needs."""
        context = ConsumeContext(self._group, queue, messages)
        for hook in self._hooks:
            try:
                hook.before_consume(context)
            except _FAILURES:
                log.exception("a hook before consuming failed")
        return context, clock.monotonic()

    def end(
        self,
        began: tuple[ConsumeContext, float],
        outcome: "ConsumeOutcome",
        error: BaseException | None = None,
    ) -> None:
        """The user has done with them."""
        context, started = began
        context.outcome = outcome
        context.error = error
        context.seconds = clock.monotonic() - started
        for hook in self._hooks:
            try:
                hook.after_consume(context)
            except _FAILURES:
                log.exception("a hook after consuming failed")

    def hand_over(self, queue: MessageQueue, messages: Sequence[StoredMessage]) -> None:
        """The user gets messages and does not say when it has done with them."""
        from mq.client.trace.entries import ConsumeOutcome  # no producer needs it

        self.end(self.begin(queue, messages), ConsumeOutcome.SUCCESS)


def consume_hooks(hooks: Sequence[Any], group: str) -> ConsumeHooks | None:
    """Those of `hooks` that are around consumption; None if there are none."""
    chosen = of_kind(hooks, ConsumeHook)
    return None if chosen is None else ConsumeHooks(chosen, group)
