"""Calls a consumer's hooks so that a failing hook never loses or fails a message."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mq.client.hooks import (
    ConsumeContext,
    ConsumeHook,
    of_kind,
)
from mq.client.machine import clock
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import StoredMessage

if TYPE_CHECKING:
    from mq.client.hooks import ConsumeOutcome


log = logging.getLogger(__name__)

# Hooks are plain functions: a CancelledError comes from a task that a hook inspected, never from
# the client's own task.
_FAILURES = (Exception, asyncio.CancelledError)


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
        from mq.client.hooks import ConsumeOutcome

        self.end(self.begin(queue, messages), ConsumeOutcome.SUCCESS)


def consume_hooks(hooks: Sequence[Any], group: str) -> ConsumeHooks | None:
    """Return the consume hooks among `hooks`, or None if there are none."""
    chosen = of_kind(hooks, ConsumeHook)
    return None if chosen is None else ConsumeHooks(chosen, group)
