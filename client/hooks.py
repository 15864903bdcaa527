"""Hooks: the user's own code around sends, around consumption and around every request.

A hook derives from one of the classes below, or from several, and overrides what it wants; lists
of them are an option of every client (`ClientOptions.hooks`) and are called in their order. Their
methods are plain functions, on the event loop: they must be quick, and may not wait.

What an `around` hook raises is logged and changes nothing: a message is sent, or counts as
consumed, as if the hook were not there. Those that may refuse say so: `SendHook.check` and
`RpcHook`, whose exceptions the caller gets as `HookRefused`.
"""

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mq.client.errors import ClientError

if TYPE_CHECKING:
    from mq.client.send_result import SendResult
    from mq.client.trace.entries import ConsumeOutcome
    from mq.protocol.bodies import MessageQueue
    from mq.protocol.command import Command
    from mq.protocol.message import Message, StoredMessage


class HookRefused(ClientError):
    """A hook that may refuse has raised: `hook` is it, the cause is what it raised."""

    def __init__(self, hook: object, error: BaseException) -> None:
        super().__init__(f"{type(hook).__name__} refuses: {type(error).__name__}: {error}")
        self.hook = hook


class SendContext:
    """One try to send a message, or several as a batch (SendMessageContext).

    Attributes:
        group: of the producer, its full name.
        messages: what is sent; they have their unique ids.
        queue, address: where to; `address` is the broker's, "host:port".
        one_way: whether no broker answers.
        began: when, in seconds since 1970.
        request: what goes to the broker; None in `check` and `before_send`.
        response: what it has answered; None before that, and for a failure.
        result, error: how it went. Both are None for a message that no broker answers.
        state: for a hook to keep what it has to know afterwards, by a key of its own.
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
    """Hears of every try to send (SendMessageHook, CheckForbiddenHook)."""

    def check(self, context: SendContext) -> None:
        """May this be sent there? What it raises, `send` raises as HookRefused, with no retry."""

    def before_send(self, context: SendContext) -> None:
        """A try is about to begin. Properties that it sets on the messages are sent with them."""

    def after_send(self, context: SendContext) -> None:
        """The try is over: see `result` and `error` of the context."""


class ConsumeContext:
    """Messages of one queue that go to the user together (ConsumeMessageContext).

    Attributes:
        group: the consumer group, its full name.
        queue: where they come from.
        messages: in their order.
        outcome: how consuming them went, None before the end.
        error: what the listener raised, if it raised.
        seconds: how long the user had them.
        state: for a hook to keep what it has to know afterwards, by a key of its own.
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
    """Hears of what is consumed, and may sort out (ConsumeMessageHook, FilterMessageHook)."""

    def keep(self, group: str, queue: "MessageQueue", message: "StoredMessage") -> bool:
        """Whether the user shall get a message that was pulled; if not, it counts as consumed."""
        return True

    def before_consume(self, context: ConsumeContext) -> None:
        """The user is about to get these: a listener, a loop, or whoever has polled or pulled."""

    def after_consume(self, context: ConsumeContext) -> None:
        """The user has done with them: see `outcome` of the context.

        A loop and whoever polls are done when they ask for more, a `PullConsumer` gets messages
        that are its own at once. Messages given up at the end are FAILED.
        """


class RpcHook:
    """Stands around every request, those that the client makes for itself too (RPCHook).

    Not around requests of brokers to the client. What its methods raise fails the request with
    HookRefused, as Java's does.
    """

    def before_request(self, address: str, request: "Command") -> None:
        """A request is about to go to `address`; it is signed after this."""

    def after_response(self, address: str, request: "Command", response: "Command") -> None:
        """A response has come, whatever its code. Not called for a request that gets none."""


Hook = SendHook | ConsumeHook | RpcHook

_METHODS = (
    *("check", "before_send", "after_send", "keep", "before_consume", "after_consume"),
    *("before_request", "after_response"),
)


def check_hooks(hooks: Sequence[object]) -> None:
    """Raises ClientError for what is no hook, and for one that is to be awaited."""
    for hook in hooks:
        if not isinstance(hook, Hook):
            raise ClientError(f"{hook!r} is no hook: it derives from none of mq.client's hooks")
        for name in _METHODS:
            if inspect.iscoroutinefunction(getattr(hook, name, None)):
                raise ClientError(f"{type(hook).__name__}.{name} must be a plain function")


def of_kind(hooks: Sequence[object], kind: type[Any]) -> tuple[Any, ...] | None:
    """The hooks of one kind, None if there are none: one look tells the callers."""
    return tuple(hook for hook in hooks if isinstance(hook, kind)) or None
