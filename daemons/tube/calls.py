"""Requests of a TubeMQ server and their handlers: calls, and the entries of the table."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import Message

from mq.protocol.tube.names import MAX_MESSAGE_SIZE, MESSAGE_HEADER_SIZE
from mq.protocol.tube.rpc import ERROR, Request, encode_failure, encode_response

Answer = Message | bytes
Handler = Callable[["Call"], Answer | Awaitable[Answer] | None]

#: Maximum size of a request's message in bytes: for a send, and for all others. Ten thousand
#: partitions are less than two of these megabytes. Protobuf needs a dozen times the size of a list,
#: so the limit of frames would be too large.
MAX_SEND = MAX_MESSAGE_SIZE + 2 * MESSAGE_HEADER_SIZE
MAX_BODY = 4 * 1024 * 1024


class ServiceFailure(Exception):
    """Raised by a handler to answer with an exception (see `rpc.EXCEPTIONS`), not a result."""

    def __init__(self, exception: str, text: str) -> None:
        super().__init__(f"{exception}: {text}")
        self.exception = exception
        self.text = text


@dataclass(frozen=True, slots=True)
class Route:
    """The handler of a method.

    Attributes:
        handle: see `Handler`. kind: the message of a request; `Call.message` is one. Without it a
        handler reads
            `Call.request.body` by itself.
        limit: the maximum size of the message in bytes.
    """

    handle: Handler
    kind: type[Message] | None = None
    limit: int = MAX_BODY


class Peer(Protocol):
    """The part of its connection that a call needs."""

    host: str
    remote: str
    tls: bool

    def answered(self, call: "Call", frame: bytes) -> None: ...


class Call:
    """A request, to be answered once. Late and repeated answers are dropped."""

    __slots__ = ("_channel", "_done", "deadline", "message", "request")

    def __init__(self, channel: Peer, request: Request, deadline: float) -> None:
        self.request = request
        self.deadline = deadline  # by the loop's clock: its client has timed out then
        self.message: Any = None  # of the route's kind
        self._channel = channel
        self._done = False

    @property
    def host(self) -> str:
        """The address of the client, without a port."""
        return self._channel.host

    @property
    def peer(self) -> str:
        """ "host:port" that the request came from."""
        return self._channel.remote

    @property
    def tls(self) -> bool:
        return self._channel.tls

    @property
    def answered(self) -> bool:
        return self._done

    def answer(self, message: Answer) -> None:
        """Answer with the method's message, or its bytes."""
        body = message if isinstance(message, bytes) else message.SerializeToString()
        self.answer_frame(encode_response(self.request.serial, self.request.method, body))

    def answer_frame(self, frame: bytes) -> None:
        """Answer with a whole frame with the request's serial."""
        if not self._done:
            self._done = True
            self._channel.answered(self, frame)

    def fail(self, exception: str, text: str, status: int = ERROR) -> None:
        """Answer with an exception."""
        frame = encode_failure(self.request.serial, status, exception, text, self.request.version)
        self.answer_frame(frame)
