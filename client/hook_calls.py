"""Calls the user's hooks so that a failing hook never loses or fails a message."""

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

# Hooks are plain functions: a CancelledError comes from a task that a hook inspected, never from
# the client's own task.
_FAILURES = (Exception, asyncio.CancelledError)


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
            except _FAILURES as error:
                raise HookRefused(hook, error) from error
        for hook in self._hooks:
            try:
                hook.before_send(context)
            except _FAILURES:
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
            except _FAILURES:
                log.exception("a hook's after_send() failed")

    def done(self, context: SendContext, future: "asyncio.Future[SendResult]") -> None:
        """Call `end` as the done callback of a send."""
        if future.cancelled():
            self.end(context, None, asyncio.CancelledError())
        else:
            error = future.exception()
            self.end(context, None if error else future.result(), error)


class ConsumeHooks:
    """The consume hooks of one consumer."""

    def __init__(self, hooks: Sequence[ConsumeHook], group: str) -> None:
        self._hooks = tuple(hooks)
        self._group = group
        self._sorts_out = tuple(hook for hook in hooks if type(hook).keep is not ConsumeHook.keep)

    def kept(self, queue: MessageQueue, messages: list[StoredMessage]) -> list[StoredMessage]:
        """Return the messages that the hooks keep for the user. A message whose hook fails is
        kept.
        """
        for hook in self._sorts_out:
            messages = [message for message in messages if self._keeps(hook, queue, message)]
        return messages

    def _keeps(self, hook: ConsumeHook, queue: MessageQueue, message: StoredMessage) -> bool:
        try:
            return hook.keep(self._group, queue, message)
        except _FAILURES:
            log.exception("a hook's keep() failed; keeping message %s", message.message_id)
            return True

    def begin(
        self, queue: MessageQueue, messages: Sequence[StoredMessage]
    ) -> tuple[ConsumeContext, float]:
        """Run the hooks before the user gets messages. Returns the argument of `end`."""
        context = ConsumeContext(self._group, queue, messages)
        for hook in self._hooks:
            try:
                hook.before_consume(context)
            except _FAILURES:
                log.exception("a hook's before_consume() failed")
        return context, clock.monotonic()

    def end(
        self,
        began: tuple[ConsumeContext, float],
        outcome: "ConsumeOutcome",
        error: BaseException | None = None,
    ) -> None:
        """Run the hooks after the user has finished the messages."""
        context, started = began
        context.outcome = outcome
        context.error = error
        context.seconds = clock.monotonic() - started
        for hook in self._hooks:
            try:
                hook.after_consume(context)
            except _FAILURES:
                log.exception("a hook's after_consume() failed")

    def hand_over(self, queue: MessageQueue, messages: Sequence[StoredMessage]) -> None:
        """Run the hooks for messages whose end of processing the user does not report."""
        # imported here: producers do not need it
        from mq.client.trace.entries import ConsumeOutcome

        self.end(self.begin(queue, messages), ConsumeOutcome.SUCCESS)


def consume_hooks(hooks: Sequence[Any], group: str) -> ConsumeHooks | None:
    """Return the consume hooks among `hooks`, or None if there are none."""
    chosen = of_kind(hooks, ConsumeHook)
    return None if chosen is None else ConsumeHooks(chosen, group)
