"""What the pages on messages share: how messages are read for a user, and how they are shown."""

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
    from mq.client.session import Session
    from mq.daemons.console.clusters import Cluster
    from mq.protocol.message import StoredMessage

AT_ONCE = 4  # searches, of one cluster
# Properties that name the topic which a message came from, or is meant for.
_ORIGINS = (PropertyKey.RETRY_TOPIC, PropertyKey.DLQ_ORIGIN_TOPIC, PropertyKey.REAL_TOPIC)

_searching: "WeakKeyDictionary[Cluster, asyncio.Semaphore]" = WeakKeyDictionary()


def turn(cluster: "Cluster") -> asyncio.Semaphore:
    """Searches of a cluster wait here for each other: each may cost its brokers a lot."""
    return _searching.setdefault(cluster, asyncio.Semaphore(AT_ONCE))


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message in a list, named as `mq queryMsgByKey -o json` names its parts; times are in ms
    since 1970. ``body`` is its first line, None for who may not see it."""

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
        """Its page."""
        return message_path(self.topic, self.broker_name, self.queue_id, self.queue_offset)


def message_path(topic: str, broker: str, queue: int, offset: int) -> str:
    """The page of a message by its place, below the cluster."""
    return f"/messages/{quote(topic, safe='')}/{quote(broker, safe='')}/{queue}/{offset}"


def rows(hits: Iterable[Hit], *, bodies: bool) -> tuple[MessageRow, ...]:
    """Messages for a list."""
    return tuple(row(hit.message, hit.size, bodies=bodies) for hit in hits)


def row(message: "StoredMessage", size: int | None = None, *, bodies: bool) -> MessageRow:
    """A message for a list. ``size`` is of its body, where that was cut."""
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
    """Whether the user may see what messages of a topic hold."""
    return call.may(Permission.BODIES, topic=topic)


def check_bodies(call: Call, topic: str) -> None:
    """Raises Forbidden for who may not see what messages of a topic hold."""
    if not sees_bodies(call, topic):
        raise Forbidden(call.text("You may not see what messages hold."))


def session_for(call: Call, topic: str) -> "Session":
    """What messages of a topic are read through. Who may not see bodies is shown none, so the page
    reads for him what is around them. Raises NotFound for a topic that holds messages of others."""
    if holds_messages_of_others(topic):
        raise NotFound(
            call.text("Topic %(topic)s is the brokers' own.", topic=topic),
            hint=call.text("What waits in it is on the pages of what waits and of transactions."),
        )
    return call.caller if sees_bodies(call, topic) else call.cluster.session


def visible(call: Call, messages: "Iterable[StoredMessage]") -> "list[StoredMessage]":
    """Those whose topic the user may look at, and is for looking at: an offset id names whatever
    lies there, also what waits in the brokers' own topics."""
    return [
        message
        for message in messages
        if call.sees_topic(message.topic) and not holds_messages_of_others(message.topic)
    ]


def without_hidden(call: Call, message: "StoredMessage") -> "StoredMessage":
    """The message without properties that name topics which the user may not look at: a dead letter
    is its group's, and tells which topic it comes from."""
    for name in _ORIGINS:
        origin = message.properties.get(name)
        if origin is not None and not call.sees_topic(origin):
            del message.properties[name]
    return message


def topic_names(call: Call) -> tuple[str, ...]:
    """Topics that the user may look at, the users' own first: for fields to choose from."""
    found = [item for item in call.cluster.snapshot.topics if call.sees_topic(item.name)]
    kinds = {"retry": 1, "dlq": 1, "system": 2}
    found.sort(key=lambda item: (kinds.get(item.kind, 0), item.name))
    return tuple(item.name for item in found)
