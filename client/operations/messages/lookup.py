"""Finds single messages by id, by key, or by queue offset."""

from typing import TYPE_CHECKING

from mq.client.errors import MQError
from mq.client.operations.errors import NextStep, NotFound
from mq.client.pull.pull_consumer import PullConsumer, PullResult
from mq.protocol.bodies import MessageQueue
from mq.protocol.compression import MAX_DECOMPRESSED
from mq.protocol.host import address_text
from mq.protocol.message import restore_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mq.client.admin import Admin
    from mq.client.operations.messages.finding import IdMatches, Reach
    from mq.client.transport.caller import Caller
    from mq.protocol.message import StoredMessage

_END_OF_TIME = 2**63 - 1
# Bytes of decompressed bodies in one answer: bounds the expansion of a few crafted kilobytes.
MOST_BYTES = 128 * 1024 * 1024


def _restore(messages: "Iterable[StoredMessage]") -> None:
    """Decompress bodies within the limit; the others stay as stored and are marked as such."""
    left = MOST_BYTES
    for message in messages:
        restore_body(message, min(left, MAX_DECOMPRESSED))
        left = max(0, left - len(message.body))


async def at_offset(session: "Caller", queue: MessageQueue, offset: int) -> PullResult:
    """Return a result whose first message is the one at an offset.

    Raises NotFound with the offsets that the queue holds, and what `PullConsumer.pull` raises.
    """
    result = await PullConsumer(session).pull(queue, offset, max_count=1, decompress=False)
    _restore(result.messages)
    if result.messages and result.messages[0].queue_offset == offset:
        return result
    where = f"{queue.topic}:{queue.broker_name}:{queue.queue_id}"
    raise NotFound(
        f"no message at offset {offset} of {where}, "
        f"which holds {result.min_offset} to {result.max_offset - 1}"
        if result.max_offset > result.min_offset
        else f"{where} is empty",
        hint=NextStep.LOOK_AT_QUEUES,
        subject=queue.topic,
    )


async def by_id(admin: "Admin", message_id: str, topic: str) -> "IdMatches":
    """Return the messages of a topic with a unique id, or the message of an offset id, in any
    topic.

    Raises NotFound, and MQError if there are none and some brokers do not answer. An offset id
    contains an address: only brokers that the name server knows are queried.
    """
    return await _found(admin, message_id, topic)


async def anywhere(
    admin: "Admin", message_id: str, sees: "Callable[[str], bool]", reach: "Reach"
) -> "IdMatches":
    """Like `by_id`, in all topics for which `sees` is true, within `reach`."""
    return await _found(admin, message_id, None, sees=sees, reach=reach)


async def _found(
    admin: "Admin", message_id: str, topic: str | None, **keywords: "Any"
) -> "IdMatches":
    # It needs an event loop, unlike the others.
    from mq.client.operations.messages import finding

    found = await finding.find(admin, message_id, topic, decompress=False, **keywords)
    _restore(found.messages)
    await name_brokers(admin, found.messages)
    return found


async def by_key(
    admin: "Admin",
    topic: str,
    key: str,
    count: int = 64,
    begin: int = 0,
    end: int = _END_OF_TIME,
    failures: list[MQError] | None = None,
) -> "list[StoredMessage]":
    """Return the messages with a key, oldest first; at most `count` per broker.

    The error of a broker is raised, or appended to `failures` if given; then the messages of the
    others are returned. Raises RouteNotFound, MQError.
    """
    found = await stored_by_key(admin, topic, key, count, begin, end, failures)
    _restore(found)
    return found


async def stored_by_key(
    admin: "Admin",
    topic: str,
    key: str,
    count: int = 64,
    begin: int = 0,
    end: int = _END_OF_TIME,
    failures: list[MQError] | None = None,
) -> "list[StoredMessage]":
    """Like `by_key`, with bodies as stored."""
    found = await admin.find_by_key(
        topic, key, count, begin, end, decompress=False, failures=failures
    )
    await name_brokers(admin, found)
    return found


async def name_brokers(admin: "Admin", messages: "Iterable[StoredMessage]") -> None:
    """Set the broker names of messages, as far as routes contain them."""
    for topic in {message.topic for message in messages if not message.broker_name}:
        try:
            route = await admin.session.route(topic)
        except MQError:
            continue
        names = {
            _plain(address): broker.broker_name
            for broker in route.broker_datas
            for address in broker.broker_addrs.values()
        }
        for message in messages:
            if message.topic == topic:
                message.broker_name = names.get(_plain(address_text(message.store_host)), "")


def _plain(address: str) -> str:
    """Remove the brackets: brokers register IPv6 addresses with or without them."""
    return address.replace("[", "").replace("]", "")
