"""The history of a message, derived from where it is stored, the offsets and members of groups,
their retry topics and dead letters, and client traces.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mq.client.errors import ConsumerNotOnline, MQError, RouteNotFound
from mq.client.operations import cluster, java_order, wire
from mq.client.operations.messages import dead_letters
from mq.client.operations.messages.dead_letter_copies import MARK
from mq.client.operations.messages.finding import unsaid
from mq.client.operations.messages.traces import entries
from mq.client.operations.messages.unpacking import unpacked
from mq.client.operations.plurals import counted
from mq.protocol import names
from mq.protocol.bodies import MessageModel
from mq.protocol.host import address_text
from mq.protocol.properties import PropertyKey

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.trace.entries import Pub, SubAfter
    from mq.protocol.bodies import ConsumerConnection
    from mq.protocol.message import StoredMessage

_MOST_TRACES = 64


class Event(NamedTuple):
    """An event in a message's history, or the status of a message in a group; `time` is in ms, or
    None.
    """

    time: int | None
    event: str
    group: str | None
    where: str | None
    detail: str


async def history(admin: "Admin", message: "StoredMessage") -> tuple[list[Event], list[str]]:
    """Return everything that is known about a message, by time, then a line for each group; and the
    failures.

    There is a failure for each unreadable trace, and for each broker that did not report its
    groups, traces or copies. The status in a group is unknown if a copy may have been missed.
    """
    events = list(_stored(message))
    groups, failures = await _groups(admin, message)
    all_known = not failures
    traces, unread = await _traces(admin, message.message_id)
    failures += unread
    events += [_traced(record) for record in traces if _is_of(record, message, groups)]
    address = address_text(message.store_host)
    verdicts = []
    for group in groups:
        returned, unseen = await _returned(admin, group, message)
        events += returned
        failures += unseen
        if unseen and not any(event.event == "dead letter" for event in returned):
            verdicts.append(
                _unknown(group, "not all of its retries and dead letters could be searched")
            )
            continue
        verdicts.append(await _verdict(admin, address, group, message, returned, failures))
    delayed, unseen = await _delayed(admin, address, message)
    events += delayed
    failures += unseen
    events.sort(key=lambda event: event.time or 0)
    if not verdicts:
        unsaid = _unknown(None, "not all brokers of the topic say which groups read it")
        verdicts = [_nobody(message) if all_known else unsaid]
    return events + verdicts, failures


def _unknown(group: str | None, why: str) -> Event:
    return Event(None, "unknown", group, None, why)


def _nobody(message: "StoredMessage") -> Event:
    return Event(None, "no group", None, None, f"no consumer group reads topic {message.topic}")


def _stored(message: "StoredMessage") -> Iterator[Event]:
    place = f"{message.broker_name or address_text(message.store_host)}"
    yield Event(
        message.born_timestamp, "sent", None, address_text(message.born_host), _size(message)
    )
    yield Event(
        message.store_timestamp,
        "stored",
        None,
        place,
        f"topic {message.topic}, queue {message.queue_id}, offset {message.queue_offset}, "
        f"log offset {message.physical_offset}",
    )


def _size(message: "StoredMessage") -> str:
    named = [f"{len(unpacked(message).body)} bytes"]
    if message.tags:
        named.append(f"tag {message.tags}")
    if message.keys:
        named.append(f"keys {' '.join(message.keys)}")
    if resent := message.properties.get(MARK):
        named.append(f"resent from dead letter {resent}")
    return ", ".join(named)


# traces ---------------------------------------------------------------------------------------


async def _traces(admin: "Admin", message_id: str) -> tuple[list["Pub | SubAfter"], list[str]]:
    topic = names.TRACE_TOPIC
    errors: list[MQError] = []
    traces: list[StoredMessage] = []
    try:
        traces = await admin.find_by_key(
            topic, message_id, _MOST_TRACES, decompress=False, failures=errors
        )
    except RouteNotFound:  # few clusters have traces
        pass
    except MQError as error:
        errors.append(error)
    found, failures = entries(traces, message_id)
    return [record for record, _ in found], failures + unsaid(topic, errors)


def _is_of(record: "Pub | SubAfter", message: "StoredMessage", groups: list[str]) -> bool:
    """Whether a trace belongs to the message, and not to one with its id in another topic."""
    if message.topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)):
        return True  # a copy, for which clients write no traces of its own
    topic = getattr(record, "topic", None)
    return topic == message.topic if topic else not groups or record.group in groups


def _traced(record: "Pub | SubAfter") -> Event:
    sent = type(record).__name__ == "Pub"
    event = ("producer: " if sent else "listener: ") + ("done" if record.success else "failed")
    store = getattr(record, "store_host", None)
    return Event(record.timestamp, event, record.group, store, f"took {record.cost} ms (trace)")


# groups ---------------------------------------------------------------------------------------


async def _groups(admin: "Admin", message: "StoredMessage") -> tuple[list[str], list[str]]:
    """Return the groups that brokers of the topic know, and a line for each broker that failed."""
    topic = message.topic
    route = await admin.topic_route(topic)
    found: dict[str, None] = {}
    errors: list[MQError] = []
    for broker in route.broker_datas:
        address = cluster.any_address(broker)
        try:
            found |= dict.fromkeys(await wire.groups_of_topic(admin.session, address, topic))
        except MQError as error:
            errors.append(error)
    return java_order.hash_order(found), unsaid(topic, errors)


async def _returned(
    admin: "Admin", group: str, message: "StoredMessage"
) -> tuple[list[Event], list[str]]:
    """Return the copies in the group's retry topic and among its dead letters, and a line for each
    broker that failed.
    """
    events, failures = [], []
    for topic, name in (
        (names.retry_topic(group), "retry"),
        (names.dead_letter_topic(group), "dead letter"),
    ):
        copies, unseen = await _copies(admin, topic, message.message_id)
        failures += unseen
        for copy in copies:
            if copy.properties.get(PropertyKey.RETRY_TOPIC, message.topic) != message.topic:
                continue  # a copy of a message with the same id in another topic
            place = f"{address_text(copy.store_host)}, queue {copy.queue_id}"
            detail = f"try {copy.reconsume_times}, offset {copy.queue_offset} of {topic}"
            if name == "dead letter":
                limit = await dead_letters.retry_limit(admin, group, failures)
                detail = f"{dead_letters.cause(copy, limit)}, {detail}"
            events.append(Event(copy.store_timestamp, name, group, place, detail))
    return events, failures


async def _copies(
    admin: "Admin", topic: str, message_id: str
) -> "tuple[list[StoredMessage], list[str]]":
    """Return the copies in a topic, if it exists, and a line for each broker that failed."""
    errors: list[MQError] = []
    try:
        found = await admin.find_by_unique_id(topic, message_id, decompress=False, failures=errors)
    except RouteNotFound:
        return [], []
    except MQError as error:
        return [], unsaid(topic, [error])
    return found, unsaid(topic, errors)


async def _delayed(
    admin: "Admin", address: str, message: "StoredMessage"
) -> tuple[list[Event], list[str]]:
    """Return the delayed deliveries of the message itself or of its retries, and a line if that
    query failed.
    """
    topic = names.SCHEDULE_TOPIC
    events = []
    try:
        copies = await admin.query_message(
            address, topic, message.message_id, unique=True, decompress=False
        )
    except MQError as error:
        return [], unsaid(topic, [error])
    for copy in copies:
        if copy.message_id != message.message_id:
            continue
        level = copy.properties.get(PropertyKey.DELAY_LEVEL, "?")
        real = copy.properties.get(PropertyKey.REAL_TOPIC, "?")
        detail = f"delay level {level}, for topic {real}"
        events.append(Event(copy.store_timestamp, "delayed", None, address, detail))
    return events, []


async def _verdict(
    admin: "Admin",
    address: str,
    group: str,
    message: "StoredMessage",
    returned: list[Event],
    failures: list[str],
) -> Event:
    """Return the status of a message in a group; unknown if brokers do not answer, with the reason
    added to `failures`.
    """

    def verdict(event: str, detail: str) -> Event:
        return Event(None, event, group, None, detail)

    if any(event.event == "dead letter" for event in returned):
        return verdict("dead letter", "it was given up")
    connection: ConsumerConnection | None = None
    try:
        connection = await admin.group_connection(group)
    except (ConsumerNotOnline, RouteNotFound):
        connection = None
    except MQError as error:
        failures.append(f"the members of group {group}: {error}")
        return verdict("unknown", "its members could not be asked for")
    if connection is not None and connection.message_model is MessageModel.BROADCASTING:
        return verdict("unknown", "a broadcasting group: each member keeps its own offsets")
    try:
        committed = await admin.query_consumer_offset(
            address, group, message.topic, message.queue_id
        )
    except MQError as error:
        failures.append(f"the offset of group {group}: {error}")
        return verdict("unknown", "its offset could not be asked for")
    online = "" if connection is not None else "; no member is online"
    if returned:
        return verdict("retried", f"it came back {counted(len(returned), 'time')}{online}")
    if committed is None:
        return verdict("waiting", f"the group has read nothing of the queue{online}")
    if committed <= message.queue_offset:
        before = message.queue_offset - committed
        come = counted(before, "message of the queue comes", "messages of the queue come")
        return verdict("waiting", f"{come} before it{online}")
    why = _left_out(connection, message)
    if why:
        return verdict("left out", why)
    return verdict("consumed", f"the group has committed offset {committed} of the queue")


def _left_out(connection: "ConsumerConnection | None", message: "StoredMessage") -> str:
    """Return why the group's current subscription does not match the message; empty if it does."""
    if connection is None:
        return ""
    subscription = connection.subscription_table.get(message.topic)
    if subscription is None:
        return f"the group has committed past it, and does not subscribe to {message.topic} now"
    if subscription.tags_set and "*" not in subscription.tags_set:
        if message.tags not in subscription.tags_set:
            wanted = subscription.sub_string
            return f"its tag {message.tags} is not among those the group wants: {wanted}"
    return ""
