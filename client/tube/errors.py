"""Errors between a TubeMQ client and its peers.

MQError
  ├── ConnectError, RequestTimeout, BadAnswer, ClientError     see mq.client.errors
  └── TubeError             a master, a broker or this client refused; `code` gives the reason
      ├── NotRegistered     411: the peer does not know this client
      ├── NotAuthenticated  415: user, password or visit token were refused
      ├── GroupForbidden    450, 455: the group may not consume this; a retry changes nothing
      ├── GroupDiffers      424 to 430: the members of the group do not agree
      ├── NothingToRead     404 to 408: no messages now, or no partition is ready
      ├── ConfirmTimeout    2004: the messages can no longer be confirmed
      └── StandbyMaster     501: this master is not the active one
"""

from mq.client.errors import MQError
from mq.protocol.tube.codes import Code

_RETRIABLE = frozenset(
    {
        *(Code.NOT_READY, Code.MOVED, Code.NOT_FOUND, Code.FORBIDDEN, Code.PARTITION_OCCUPIED),
        *(Code.ALL_PARTITION_FROZEN, Code.NO_PARTITION_ASSIGNED, Code.ALL_PARTITION_WAITING),
        *(Code.ALL_PARTITION_INUSE, Code.HB_NO_NODE, Code.DUPLICATE_PARTITION),
        *(Code.SERVER_RECEIVE_OVERFLOW, Code.CLIENT_HIGH_FREQUENCY_REQUEST),
        *(Code.SERVER_CONSUME_SPEED_LIMIT, Code.INTERNAL_SERVER_ERROR, Code.RECEIVED_EXCEPTION),
        *(Code.SERVICE_UNAVAILABLE, Code.INTERNAL_SERVER_ERROR_MSGSET_NULL),
        *(Code.UNSPECIFIED_ABNORMAL, Code.SERVER_STOPPED),
    }
)


class TubeError(MQError):
    """A request was refused.

    `code` is the result code (possibly one that this release does not know), `text` the
    accompanying text, `address` the peer; "" for this client.
    """

    codes: tuple[int, ...] = ()

    def __init__(self, code: int, text: str, address: str = "") -> None:
        self.code = code
        self.text = text
        self.address = address
        who = f"{address}: " if address else ""
        super().__init__(f"{who}{self.code_name}: {text or 'no reason given'}")

    @property
    def code_name(self) -> str:
        """The name of the code, or its number if it has no name."""
        try:
            return Code(self.code).name
        except ValueError:
            return f"code {self.code}"

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """Whether the same request may succeed a moment later."""
        return self.code in _RETRIABLE


class NotRegistered(TubeError):
    """The peer does not know this client, or has evicted it."""

    codes = (Code.HB_NO_NODE,)


class NotAuthenticated(TubeError):
    """The peer requires other credentials, or a newer visit token."""

    codes = (Code.CERTIFICATE_FAILURE,)


class GroupForbidden(TubeError):
    """The group may not consume these topics, or not with these filters."""

    codes = (Code.CONSUME_GROUP_FORBIDDEN, Code.CONSUME_CONTENT_FORBIDDEN)


class GroupDiffers(TubeError):
    """The group has members with different topics, filters, session, or number."""

    codes = (
        *(Code.CLIENT_INCONSISTENT_CONSUMETYPE, Code.CLIENT_INCONSISTENT_TOPICSET),
        *(Code.CLIENT_INCONSISTENT_FILTERSET, Code.CLIENT_INCONSISTENT_SESSIONKEY),
        *(Code.CLIENT_INCONSISTENT_SELECTBIG, Code.CLIENT_INCONSISTENT_SOURCECOUNT),
        Code.CLIENT_DUPLICATE_INDEXID,
    )


class NothingToRead(TubeError):
    """The partition has no message, or no partition can be read now."""

    codes = (
        *(Code.NOT_FOUND, Code.ALL_PARTITION_FROZEN, Code.NO_PARTITION_ASSIGNED),
        *(Code.ALL_PARTITION_WAITING, Code.ALL_PARTITION_INUSE),
    )


class ConfirmTimeout(TubeError):
    """The messages were not confirmed in time, or their partition was revoked; they are
    redelivered.
    """

    codes = (Code.CONFIRM_TIMEOUT,)


class StandbyMaster(TubeError):
    """The master answered with a StandbyException."""


_BY_CODE: dict[int, type[TubeError]] = {
    int(code): error for error in TubeError.__subclasses__() for code in error.codes
}


def for_code(code: int, text: str, address: str = "") -> TubeError:
    """Return the error for a result code, of the matching subclass."""
    return _BY_CODE.get(code, TubeError)(code, text, address)
