"""Shared by the pages of messages: reading messages for a user, and their rows in lists."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote
from weakref import WeakKeyDictionary

from mq.client.operations.errors import NotFound
from mq.client.operations.messages.body_view import first_line
from mq.client.operations.messages.search import Hit
from mq.daemons.console.call import Call
from mq.daemons.console.guarded_session import Forbidden
from mq.daemons.console.permissions import Permission
from mq.protocol.names import holds_messages_of_others
from mq.protocol.properties import PropertyKey

if TYPE_CHECKING:
    from mq.client.transport.session import Session
    from mq.daemons.console.clusters import Cluster
    from mq.protocol.message import StoredMessage

AT_ONCE = 4  # searches per cluster
# Properties that name the origin or the destination topic of a message.
_ORIGINS = (PropertyKey.RETRY_TOPIC, PropertyKey.DLQ_ORIGIN_TOPIC, PropertyKey.REAL_TOPIC)

_searching: "WeakKeyDictionary[Cluster, asyncio.Semaphore]" = WeakKeyDictionary()


def turn(cluster: "Cluster") -> asyncio.Semaphore:
    """Return the semaphore for searches of a cluster: each may be expensive for its brokers."""
    return _searching.setdefault(cluster, asyncio.Semaphore(AT_ONCE))


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message in a list, with the names of `mq queryMsgByKey -o json`; times are in ms since
    1970.

    ``body`` is its first line, None if the user may not see it."""

    message_id: str
    offset_id: str
    topic: str
    tags: str | None
    keys: str | None
    broker_name: str
    queue_id: int
    queue_offset: int
    born_time: int
    store_time: int
    size: int
    body: str | None

    @property
    def path(self) -> str:
        """The path of its page."""
        return message_path(self.topic, self.broker_name, self.queue_id, self.queue_offset)


def message_path(topic: str, broker: str, queue: int, offset: int) -> str:
    """Return the path of a message's page by its position, below the cluster."""
    return f"/messages/{quote(topic, safe='')}/{quote(broker, safe='')}/{queue}/{offset}"


def rows(hits: Iterable[Hit], *, bodies: bool) -> tuple[MessageRow, ...]:
    """Return messages for a list."""
    return tuple(row(hit.message, hit.size, bodies=bodies) for hit in hits)


def row(message: "StoredMessage", size: int | None = None, *, bodies: bool) -> MessageRow:
    """Return a message for a list. ``size`` is that of its body, if the body was cut."""
    properties = message.properties
    body = bytes(message.body)
    return MessageRow(
        message.message_id,
        message.offset_id,
        message.topic,
        properties.get("TAGS"),
        properties.get("KEYS"),
        message.broker_name,
        message.queue_id,
        message.queue_offset,
        message.born_timestamp,
        message.store_timestamp,
        len(body) if size is None else size,
        first_line(body) if bodies else None,
    )


def sees_bodies(call: Call, topic: str) -> bool:
    """Return whether the user may see the bodies of a topic's messages."""
    return call.may(Permission.BODIES, topic=topic)


def check_bodies(call: Call, topic: str) -> None:
    """Raises Forbidden if the user may not see the bodies of a topic's messages."""
    if not sees_bodies(call, topic):
        raise Forbidden(call.text("You may not see the contents of messages."))


def session_for(call: Call, topic: str) -> "Session":
    """Return the session for reading messages of a topic.

    A user who may not see bodies is shown none, so for such a user the page reads the other parts
    of messages with its own session. Raises NotFound for a topic that contains messages of
    others."""
    if holds_messages_of_others(topic):
        raise NotFound(
            call.text("Topic %(topic)s is internal to brokers.", topic=topic),
            hint=call.text(
                "See the pages of delayed messages and of transactions for its messages."
            ),
        )
    return call.caller if sees_bodies(call, topic) else call.cluster.session


def visible(call: Call, messages: "Iterable[StoredMessage]") -> "list[StoredMessage]":
    """Return the messages of topics that the user may read and that are not internal.

    An offset id may belong to any message, including one in an internal topic of the brokers."""
    return [
        message
        for message in messages
        if call.sees_topic(message.topic) and not holds_messages_of_others(message.topic)
    ]


def without_hidden(call: Call, message: "StoredMessage") -> "StoredMessage":
    """Return the message without properties that name topics which the user may not see.

    A dead letter belongs to its group, and names the topic that it comes from."""
    for name in _ORIGINS:
        origin = message.properties.get(name)
        if origin is not None and not call.sees_topic(origin):
            del message.properties[name]
    return message


def topic_names(call: Call) -> tuple[str, ...]:
    """Return the topics that the user may see, those of users first: for fields with choices."""
    found = [item for item in call.cluster.snapshot.topics if call.sees_topic(item.name)]
    kinds = {"retry": 1, "dlq": 1, "system": 2}
    found.sort(key=lambda item: (kinds.get(item.kind, 0), item.name))
    return tuple(item.name for item in found)
