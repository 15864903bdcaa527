"""Properties of requests: what they do, who answers them, and the rights that brokers require.

Each code of `mq.protocol.codes` has them in its row. The defaults are the strictest: a write, for
administrators only.
"""

from enum import Enum, Flag, unique
from typing import NamedTuple


@unique
class RequestKind(Enum):
    """The effect of a request on the peer that answers it."""

    READ = "read"  # changes nothing, or only what it carries, as a pull
    WRITE = "write"
    SEND = "send"  # writes a message, and is answered with its position
    # reports that a client comes or goes: recorded, but no change is requested
    PRESENCE = "presence"


class Role(Flag):
    """A component that answers a request."""

    NOBODY = 0
    BROKER = 1
    NAME_SERVER = 2
    CLIENT = 4
    CONTROLLER = 8
    SNODE = 16
    FILTER_SERVER = 32


@unique
class NamedIn(Enum):
    """Where a broker finds the topic or group of a right."""

    HEADER = "header"
    BODY = "body"
    MESSAGE = "message"  # in the stored message: the handler checks it after reading the message


class Right(NamedTuple):
    """A permission that an account needs: to send to (PUB), or to read from (SUB) a topic or
    group.
    """

    permission: str  # "PUB" or "SUB"
    resource: str  # "topic" or "group"
    named_in: NamedIn
    attribute: str = ""  # of the header, with the name

    def __str__(self) -> str:
        return f"{self.permission} {self.resource}"


class Row(NamedTuple):
    """The properties of a request code.

    `rights` are all the rights that a broker requires of an account; None: administrators only. A
    name server lets everyone read, and only writers write. A snode requires the same rights as a
    broker; in the dialect of snodes `rights` apply to snodes only, because a broker accepts that
    dialect only from administrators.
    """

    number: int
    kind: RequestKind = RequestKind.WRITE
    answered_by: Role = Role.NOBODY
    rights: tuple[Right, ...] | None = None
    body: str = ""  # its class in mq.protocol.bodies; "" for none, for text and for messages
    release: str = ""  # "" for every release


READ, WRITE, SEND, PRESENCE = RequestKind
BROKER, NAME_SERVER, CLIENT, CONTROLLER, SNODE, FILTER_SERVER = Role
NOBODY = Role.NOBODY

_TOPIC = Right("SUB", "topic", NamedIn.HEADER, "topic")
_GROUP = Right("SUB", "group", NamedIn.HEADER, "consumer_group")
_GROUP_IN_BODY = Right("SUB", "group", NamedIn.BODY)
_TOPIC_OF_MESSAGE = Right("SUB", "topic", NamedIn.MESSAGE)

# The rights of requests, by their purpose.
ANY_ACCOUNT: tuple[Right, ...] = ()
SEND_TO_TOPIC = (Right("PUB", "topic", NamedIn.HEADER, "topic"),)
READ_TOPIC = (_TOPIC,)
AS_GROUP = (_GROUP,)
READ_TOPIC_AS_GROUP = (_TOPIC, _GROUP)
AS_GROUP_NAMED = (Right("SUB", "group", NamedIn.HEADER, "group_name"),)
#: A member may create its group, and so may this request.
CONFIG_OF_GROUP = (Right("SUB", "group", NamedIn.HEADER, "group"),)
GROUP_IN_BODY = (_GROUP_IN_BODY,)
TOPIC_AND_GROUP_IN_BODY = (Right("SUB", "topic", NamedIn.BODY), _GROUP_IN_BODY)
READ_MESSAGE = (_TOPIC_OF_MESSAGE,)
SEND_BACK = (_TOPIC_OF_MESSAGE, Right("SUB", "group", NamedIn.HEADER, "group"))
END_OWN_TRANSACTION = (Right("PUB", "topic", NamedIn.MESSAGE),)
