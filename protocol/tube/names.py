"""Names that TubeMQ accepts, and limits of requests.

The functions return the name without surrounding blanks, as the original does, and raise
IllegalName, whose text is sent to the client. (TBaseConstants, PBParameterUtils.)
"""

import re
from collections.abc import Callable, Iterable

from mq.protocol.tube.errors import IllegalName

MAX_TOPIC = 64
MAX_GROUP = 1024
MAX_CLIENT_ID = 1024
MAX_HOST = 256
MAX_SESSION_KEY = 1024
MAX_FILTER_ITEM = 256
MAX_FILTER_ITEMS = 500  # of one topic
MAX_TOPICS = 1024  # of one client

MIB = 1024 * 1024
#: The bytes of body and attributes of a message: the default of a cluster, and the bounds of its
#: setting. A broker adds the last for the header of a message.
DEFAULT_MESSAGE_SIZE = 1 * MIB
MIN_MESSAGE_SIZE = 1 * MIB
MAX_MESSAGE_SIZE = 20 * MIB
MESSAGE_HEADER_SIZE = 10 * 1024

#: Partition ids are the store's number times this, plus the partition's number within it.
STORE_BASE = 10_000

#: The brokers' own topic: the history of groups' offsets.
OFFSET_HISTORY_TOPIC = "__offset_history__"

#: The type of functions that check one name.
Check = Callable[[str], str]

_TOPIC = re.compile(r"[a-zA-Z]\w+", re.ASCII)
_GROUP = re.compile(r"[a-zA-Z][\w-]+", re.ASCII)
_FILTER_ITEM = re.compile(r"[_A-Za-z0-9]+")
# An id is part of other strings ("id@group#partition") and of logs. The original checks only its
# length; all its clients use these characters.
_CLIENT_ID = re.compile(r"[\w.:%-]+", re.ASCII)
_HOST = re.compile(r"[\w.:%\[\]-]+", re.ASCII)


def check_topic(text: str) -> str:
    """Raises IllegalName unless it is a valid topic name."""
    name = _present(text, "topicName", MAX_TOPIC)
    if not _TOPIC.fullmatch(name):
        raise _illegal(
            name,
            "topicName",
            "a letter, then letters, digits and underscores; two characters at least",
        )
    return name


def check_group(text: str) -> str:
    """Raises IllegalName unless it is a valid consumer group name."""
    name = _present(text, "groupName", MAX_GROUP)
    if not _GROUP.fullmatch(name):
        raise _illegal(
            name,
            "groupName",
            "a letter, then letters, digits, underscores and hyphens; two characters at least",
        )
    return name


def check_client_id(text: str) -> str:
    """Raises IllegalName unless it is a valid client id."""
    name = _present(text, "clientId", MAX_CLIENT_ID)
    if not _CLIENT_ID.fullmatch(name):
        raise _illegal(name, "clientId", "letters, digits, underscores, hyphens, dots and colons")
    return name


def check_host(text: str) -> str:
    """Raises IllegalName unless it is a valid host name or address."""
    name = _present(text, "hostName", MAX_HOST)
    if not _HOST.fullmatch(name):
        raise _illegal(name, "hostName", "the name or address of a host")
    return name


def check_session_key(text: str) -> str:
    """Raises IllegalName unless it is a valid session key of a bound group."""
    name = _present(text, "sessionKey", MAX_SESSION_KEY)
    if not name.isprintable():
        raise _illegal(name, "sessionKey", "printable characters")
    return name


def check_filter_items(items: Iterable[str]) -> frozenset[str]:
    """Raises IllegalName unless these are valid filter items of one topic; blank ones are
    ignored.
    """
    kept = frozenset(item.strip() for item in items) - {""}
    if len(kept) > MAX_FILTER_ITEMS:
        raise IllegalName(f"{len(kept)} filter items: a topic may have {MAX_FILTER_ITEMS}")
    for item in kept:
        _present(item, "filterItem", MAX_FILTER_ITEM)
        if not _FILTER_ITEM.fullmatch(item):
            raise _illegal(item, "filterItem", "letters, digits and underscores")
    return kept


def check_topics(topics: Iterable[str]) -> frozenset[str]:
    """Raises IllegalName unless a client may use all these topics; blank ones are ignored."""
    kept = frozenset(topic.strip() for topic in topics) - {""}
    if len(kept) > MAX_TOPICS:
        raise IllegalName(f"{len(kept)} topics: a client may have {MAX_TOPICS}")
    return frozenset(check_topic(topic) for topic in kept)


def partition_ids(stores: int, partitions: int) -> list[int]:
    """Return the ids of a topic's partitions at a broker with this number of stores and of
    partitions in each.
    """
    return [store * STORE_BASE + number for store in range(stores) for number in range(partitions)]


def _present(text: str, what: str, limit: int) -> str:
    name = text.strip()
    if not name:
        raise IllegalName(f"{what} is blank")
    if len(name) > limit:
        raise IllegalName(f"{what} has {len(name)} characters: {limit} are allowed")
    return name


def _illegal(name: str, what: str, expected: str) -> IllegalName:
    shown = name if len(name) <= 100 else f"{name[:100]}…"
    return IllegalName(f"{what} {shown!r} is not legal: {expected}")
