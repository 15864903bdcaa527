"""Errors of data that a peer of TubeMQ sent or that is to be sent.

RemoteProtocolError
├── FrameError         bytes that are not a frame: the rest cannot be read, so close
├── MalformedRpc       a frame whose envelope or message cannot be read: answer FATAL
├── MalformedText      one of the strings within messages
└── MalformedPayload   a payload that contradicts its flag: drop the message
ValueError
└── IllegalName        a topic, group, id or filter item that TubeMQ refuses
RemoteFailure          the response is an exception
"""

from mq.protocol.errors import RemoteProtocolError

STANDBY = "StandbyException"


class FrameError(RemoteProtocolError):
    """These bytes are not a frame."""


class MalformedRpc(RemoteProtocolError):
    """A frame without a readable request, response or message.

    ``version`` is the protocol version of the request, if it was read: the response depends on it.
    """

    def __init__(self, why: str, version: int = 3) -> None:
        super().__init__(why)
        self.version = version


class MalformedText(RemoteProtocolError):
    """A malformed string within a message."""

    def __init__(self, text: str, why: str) -> None:
        shown = text if len(text) <= 200 else f"{text[:200]}…"
        super().__init__(f"{shown!r}: {why}")
        self.text = text


class MalformedPayload(RemoteProtocolError):
    """The payload of a message contradicts its flag or its checksum."""


class IllegalName(ValueError):
    """A name that is refused, with the reason."""


class RemoteFailure(Exception):
    """The server responded with an exception.

    Its text is as in clients of the original: the name of the exception, "#" and its message.
    """

    def __init__(self, status: int, exception: str, text: str) -> None:
        super().__init__(f"{exception}#{text}")
        self.status = status  # ResponseHeader.Status: ERROR or FATAL
        self.exception = exception  # as received: a Java class with its package
        self.text = text

    @property
    def name(self) -> str:
        """The exception without its package, which depends on the protocol version."""
        return self.exception.rpartition(".")[2]

    @property
    def standby(self) -> bool:
        """Whether this master is not the active one (the original searches the text for it)."""
        return STANDBY in str(self)
