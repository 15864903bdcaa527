"""What is known of a request beside its number: what it does, who answers it, whom a broker lets
ask it.

Each code of `mq.protocol.codes` has it in its row. What a row does not say is the strictest: it
writes, and it is for administrators only.
"""

from enum import Enum, Flag, unique
from typing import NamedTuple


@unique
class RequestKind(Enum):
    """What a request does to the peer that answers it."""

    READ = "read"  # changes nothing, or, as a pull, nothing but what it is told to
    WRITE = "write"
    SEND = "send"  # writes a message, and is answered with the message's place
    PRESENCE = "presence"  # says that a client comes or goes: written down, but no change asked for


class Role(Flag):
    """Who answers a request."""

    NOBODY = 0
    BROKER = 1
    NAME_SERVER = 2
    CLIENT = 4
    CONTROLLER = 8
    SNODE = 16
    FILTER_SERVER = 32


@unique
class NamedIn(Enum):
    """Where a broker finds the topic or group that a right is about."""

    HEADER = "header"
    BODY = "body"
    MESSAGE = "message"  # the stored one that is named: its handler asks, when it has read it


class Right(NamedTuple):
    """What an account must be allowed: to send to (PUB), or to read from (SUB) a topic or group."""

    permission: str  # "PUB" or "SUB"
    resource: str  # "topic" or "group"
    named_in: NamedIn
    attribute: str = ""  # of the header, in which the name stands

    def __str__(self) -> str:
        return f"{self.permission} {self.resource}"


class Row(NamedTuple):
    """What stands behind a code's name. `rights` are what a broker wants of an account, all of
    them; None: of a broker it may be asked by administrators only. A name server lets everyone
    read, and writers write. A snode wants of an account what a broker does; of the dialect of
    snodes `rights` are what a snode wants, for a broker speaks that with administrators only.
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

# The rights that requests need, by what they ask for.
ANY_ACCOUNT: tuple[Right, ...] = ()
SEND_TO_TOPIC = (Right("PUB", "topic", NamedIn.HEADER, "topic"),)
READ_TOPIC = (_TOPIC,)
AS_GROUP = (_GROUP,)
READ_TOPIC_AS_GROUP = (_TOPIC, _GROUP)
AS_GROUP_NAMED = (Right("SUB", "group", NamedIn.HEADER, "group_name"),)
#: A member may create its group: so does this request.
CONFIG_OF_GROUP = (Right("SUB", "group", NamedIn.HEADER, "group"),)
GROUP_IN_BODY = (_GROUP_IN_BODY,)
TOPIC_AND_GROUP_IN_BODY = (Right("SUB", "topic", NamedIn.BODY), _GROUP_IN_BODY)
READ_MESSAGE = (_TOPIC_OF_MESSAGE,)
SEND_BACK = (_TOPIC_OF_MESSAGE, Right("SUB", "group", NamedIn.HEADER, "group"))
END_OWN_TRANSACTION = (Right("PUB", "topic", NamedIn.MESSAGE),)
