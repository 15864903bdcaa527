"""Hooks: user code that runs around sends, consumption and requests.

A hook derives from one or more of the classes below and overrides the methods that it needs. Pass
hooks in `ClientOptions.hooks`; they are called in that order. The methods are plain functions that
run on the event loop: they must return quickly and must not block.

An exception of most methods is logged and has no other effect: the message is sent, or counts as
consumed, as if there were no hook. Only `SendHook.check` and `RpcHook` can refuse an operation; the
caller gets their exceptions as `HookRefused`.
"""

import inspect
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from mq.client.errors import ClientError

if TYPE_CHECKING:
    from mq.client.send_result import SendResult
    from mq.protocol.bodies import MessageQueue
    from mq.protocol.command import Command
    from mq.protocol.message import Message, StoredMessage


class HookRefused(ClientError):
    """A hook refused an operation: `hook` is the hook, and the cause is its exception."""

    def __init__(self, hook: object, error: BaseException) -> None:
        super().__init__(f"{type(hook).__name__} refuses: {type(error).__name__}: {error}")
        self.hook = hook


class ConsumeOutcome(IntEnum):
    """The result of consuming a message. Wire values (ConsumeReturnType)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


class SendContext:
    """One attempt to send a message, or several messages as a batch (SendMessageContext).

    Attributes:
        group: the full name of the producer group.
        messages: the messages, with their unique ids.
        queue, address: the destination; `address` is the broker's "host:port".
        one_way: whether the broker sends no answer.
        began: the start, in seconds since 1970.
        request: the request to the broker; None in `check` and `before_send`.
        response: the broker's answer; None before it arrives and after a failure.
        result, error: the outcome; both None for a one-way message.
        state: data that a hook keeps for `after_send`, under a key of its own.
    """

    __slots__ = (
        *("address", "began", "error", "group", "messages", "one_way", "queue", "request"),
        *("response", "result", "state"),
    )

    def __init__(
        self,
        group: str,
        messages: "Sequence[Message]",
        queue: "MessageQueue",
        address: str,
        began: float,
        *,
        one_way: bool,
    ) -> None:
        self.group = group
        self.messages = messages
        self.queue = queue
        self.address = address
        self.began = began
        self.one_way = one_way
        self.request: Command | None = None
        self.response: Command | None = None
        self.result: SendResult | None = None
        self.error: BaseException | None = None
        self.state: dict[Any, Any] = {}


class SendHook:
    """Observes every send attempt (SendMessageHook, CheckForbiddenHook)."""

    def check(self, context: SendContext) -> None:
        """Refuse a send by raising; `send` then raises HookRefused and does not retry."""

    def before_send(self, context: SendContext) -> None:
        """Called before an attempt. Properties that it sets on the messages are sent with them."""

    def after_send(self, context: SendContext) -> None:
        """Called after an attempt, with `result` or `error` set in the context."""


class ConsumeContext:
    """Messages of one queue that are delivered to the user together (ConsumeMessageContext).

    Attributes:
        group: the full name of the consumer group.
        queue: the source of the messages.
        messages: the messages, in order.
        outcome: the result of consuming them; None before the end.
        error: the exception of the listener, if any.
        seconds: the time that consuming took.
        state: data that a hook keeps for `after_consume`, under a key of its own.
    """

    __slots__ = ("error", "group", "messages", "outcome", "queue", "seconds", "state")

    def __init__(
        self, group: str, queue: "MessageQueue", messages: "Sequence[StoredMessage]"
    ) -> None:
        self.group = group
        self.queue = queue
        self.messages = messages
        self.outcome: ConsumeOutcome | None = None
        self.error: BaseException | None = None
        self.seconds = 0.0
        self.state: dict[Any, Any] = {}


class ConsumeHook:
    """Observes consumption, and may drop messages (ConsumeMessageHook, FilterMessageHook)."""

    def keep(self, group: str, queue: "MessageQueue", message: "StoredMessage") -> bool:
        """Whether to deliver a pulled message. A message that is dropped counts as consumed."""
        return True

    def before_consume(self, context: ConsumeContext) -> None:
        """Called before messages reach a listener, a loop, or the caller of a poll or pull."""

    def after_consume(self, context: ConsumeContext) -> None:
        """Called when the user has finished the messages, with `outcome` set in the context.

        A loop or a poll finishes its messages when it asks for more. A `PullConsumer` finishes them
        at once. Messages that are still unfinished when the consumer closes have the outcome
        FAILED.
        """


class RpcHook:
    """Runs around every request, including those that the client makes for itself (RPCHook).

    Requests from brokers to the client are not covered. As in Java, an exception of a method fails
    the request, here with HookRefused.
    """

    def before_request(self, address: str, request: "Command") -> None:
        """Called before a request to `address` is signed and sent."""

    def after_response(self, address: str, request: "Command", response: "Command") -> None:
        """Called with each response, whatever its code. Not called for one-way requests."""


Hook = SendHook | ConsumeHook | RpcHook

_METHODS = (
    *("check", "before_send", "after_send", "keep", "before_consume", "after_consume"),
    *("before_request", "after_response"),
)


def check_hooks(hooks: Sequence[object]) -> None:
    """Raise ClientError for an object that is not a hook, and for a hook with an async method."""
    for hook in hooks:
        if not isinstance(hook, Hook):
            raise ClientError(f"{hook!r} is not a hook: it derives from none of mq.client's hooks")
        for name in _METHODS:
            if inspect.iscoroutinefunction(getattr(hook, name, None)):
                raise ClientError(f"{type(hook).__name__}.{name} must be a plain function")


def of_kind(hooks: Sequence[object], kind: type[Any]) -> tuple[Any, ...] | None:
    """Return the hooks of one kind, or None if there are none, so that callers check only once."""
    return tuple(hook for hook in hooks if isinstance(hook, kind)) or None
