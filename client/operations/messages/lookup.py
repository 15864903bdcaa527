"""Finding single messages: by id, by key, by their place in a queue."""

from typing import TYPE_CHECKING

from mq.client.errors import MQError
from mq.client.operations.errors import NextStep, NotFound
from mq.client.pull_consumer import PullConsumer, PullResult
from mq.protocol.bodies import MessageQueue
from mq.protocol.compression import MAX_DECOMPRESSED
from mq.protocol.host import address_text
from mq.protocol.message import restore_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mq.client.admin import Admin
    from mq.client.caller import Caller
    from mq.client.operations.messages.finding import IdMatches, Reach
    from mq.protocol.message import StoredMessage

_END_OF_TIME = 2**63 - 1
# Bytes of bodies, decompressed, in one answer: what a few crafted kilobytes can grow to has an end.
MOST_BYTES = 128 * 1024 * 1024


def _restore(messages: "Iterable[StoredMessage]") -> None:
    """Decompress bodies as long as there is room; the others stay as stored, and say so."""
    left = MOST_BYTES
    for message in messages:
        restore_body(message, min(left, MAX_DECOMPRESSED))
        left = max(0, left - len(message.body))


async def at_offset(session: "Caller", queue: MessageQueue, offset: int) -> PullResult:
    """The message at an offset, the first of the result's.

    Raises NotFound that says what the queue holds, and what `PullConsumer.pull` raises.
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
    """The messages of a topic that have a unique id, or the one of an offset id, of whatever topic.
    Raises NotFound; MQError where none has any, and some brokers do not answer.

    An offset id names an address: only brokers that the name server knows are asked.
    """
    return await _found(admin, message_id, topic)


async def anywhere(
    admin: "Admin", message_id: str, sees: "Callable[[str], bool]", reach: "Reach"
) -> "IdMatches":
    """As `by_id`, in all topics that `sees` is true of, as far as `reach` says."""
    return await _found(admin, message_id, None, sees=sees, reach=reach)


async def _found(
    admin: "Admin", message_id: str, topic: str | None, **keywords: "Any"
) -> "IdMatches":
    # It needs an event loop, which the others do not.
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
    """The messages that have a key, oldest first; at most `count` of each broker. The error of a
    broker is raised, or appended to `failures`, and then what the others have found is returned.

    Raises RouteNotFound, MQError.
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
    """As `by_key`, with bodies as they are stored."""
    found = await admin.find_by_key(
        topic, key, count, begin, end, decompress=False, failures=failures
    )
    await name_brokers(admin, found)
    return found


async def name_brokers(admin: "Admin", messages: "Iterable[StoredMessage]") -> None:
    """Have messages say which broker they are of, as far as routes tell."""
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
    """Brokers of IPv6 register themselves with or without the brackets."""
    return address.replace("[", "").replace("]", "")
