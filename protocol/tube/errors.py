"""What is wrong with what a peer of TubeMQ sent, or is asked for.

RemoteProtocolError
├── FrameError         bytes that are not a frame: nothing after them can be read, so close
├── MalformedRpc       a frame whose envelope or message cannot be read: answer FATAL
├── MalformedText      one of the strings within messages
└── MalformedPayload   a payload that is not as its flag says: drop the message
ValueError
└── IllegalName        a topic, group, id or filter item that no TubeMQ takes
RemoteFailure          the answer is an exception
"""

from mq.protocol.errors import RemoteProtocolError

STANDBY = "StandbyException"


class FrameError(RemoteProtocolError):
    """These bytes are not a frame."""


class MalformedRpc(RemoteProtocolError):
    """A frame that has no request, answer or message in it that can be read.

    ``version`` is the protocol version of the request, as far as it was read: its answer depends
    on it.
    """

    def __init__(self, why: str, version: int = 3) -> None:
        super().__init__(why)
        self.version = version


class MalformedText(RemoteProtocolError):
    """A string within a message that is not laid out as it should be."""

    def __init__(self, text: str, why: str) -> None:
        shown = text if len(text) <= 200 else f"{text[:200]}…"
        super().__init__(f"{shown!r}: {why}")
        self.text = text


class MalformedPayload(RemoteProtocolError):
    """The payload of a message contradicts its flag or its checksum."""


class IllegalName(ValueError):
    """A name that is refused, and why."""


class RemoteFailure(Exception):
    """The server answered with an exception.

    Its text is what clients of the original show: the name of the exception, "#" and its message.
    """

    def __init__(self, status: int, exception: str, text: str) -> None:
        super().__init__(f"{exception}#{text}")
        self.status = status  # ResponseHeader.Status: ERROR or FATAL
        self.exception = exception  # as it came: a Java class with its package
        self.text = text

    @property
    def name(self) -> str:
        """The exception without its package, which depends on the protocol version."""
        return self.exception.rpartition(".")[2]

    @property
    def standby(self) -> bool:
        """Whether this master is not the active one (the original looks in the text for it)."""
        return STANDBY in str(self)
