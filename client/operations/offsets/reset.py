"""Moves a consumer group to other offsets, as resetOffsetByTime and skipAccumulatedMessage do.

A broker notifies the connected consumers; if there are none, the offsets at the broker are set,
queue by queue (DefaultMQAdminExtImpl.resetOffsetByTimestamp and …Old).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mq.client.machine import clock
from mq.client.operations import cluster, java_order
from mq.client.operations.errors import NextStep, NotFound, Unavailable
from mq.client.operations.offsets.bounds import bounds

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.errors import MQError
    from mq.protocol.bodies import BrokerData, MessageQueue, TopicRouteData

TO_THE_END = -1  # as a timestamp


class OffsetReset(NamedTuple):
    """A requested reset. `timestamp` is in ms or TO_THE_END. Without `force` offsets are only moved
    back. `route_topic` has the brokers of a light topic, which has no route of its own.
    """

    topic: str
    group: str
    timestamp: int
    force: bool = True
    for_cpp: bool = False
    route_topic: str | None = None


class ResetOutcome(NamedTuple):
    """The result of a queue. If consumers are connected only the new offset is known."""

    broker_name: str
    queue_id: int
    broker_offset: int | None
    consumer_offset: int | None
    timestamp_offset: int | None
    offset: int


class ResetDone(NamedTuple):
    """The moved queues, the failures, whether consumers were notified, and the addresses of brokers
    without members of the group.
    """

    moved: list[ResetOutcome]
    failures: list[str]
    told: bool
    without: list[str]


@dataclass(frozen=True, slots=True)
class PlannedReset:
    """The effect of a reset on a queue: the group continues at `new` instead of `old`.

    `old` is None if the group has no offset: it then starts as its consumers are configured.
    `first` and `end` bound the queue. Of the messages in between, `skipped` are never consumed, and
    `again` are redelivered.
    """

    broker_name: str
    queue_id: int
    old: int | None
    new: int
    first: int
    end: int
    skipped: int
    again: int


async def all_queues(admin: "Admin", wanted: OffsetReset, *, pretending: bool = False) -> ResetDone:
    """Notify the consumers, or set the offsets if no consumer is connected.

    With `pretending`, in a dry run, no broker reports that no consumer is connected: so each one is
    queried first.
    """
    from mq.client.errors import ConsumerNotOnline, RemoteSystemError

    route = await _route(admin, wanted)
    brokers, counts = _brokers(route), _read_queue_counts(route)

    async def tell(each: "Admin", address: str) -> dict["MessageQueue", int] | None:
        if pretending and not (
            await _is_online(each, address, wanted.group) or await is_of_5(each, address)
        ):
            return None
        queues = _queues(wanted.topic, brokers[address].broker_name, counts)
        try:
            return await each.reset_offset(
                address,
                wanted.topic,
                wanted.group,
                await _time_to_tell(each, address, queues, wanted.timestamp),
                force=wanted.force,
                for_cpp=wanted.for_cpp,
            )
        except ConsumerNotOnline:
            return None

    try:
        done, failures = await cluster.at_each(admin, brokers, tell)
    except RemoteSystemError as error:
        if f"consumer group <{wanted.group}>" not in error.remark:
            raise
        raise NotFound(  # Java's broker means that the group has no offset in some queue
            f"group {wanted.group} has not consumed all queues of topic {wanted.topic} yet",
            hint=NextStep.RESET_AT_BROKERS,
        ) from None
    if None in done.values():
        rows, failures = await at_brokers(admin, wanted)
        failures += _unheard(wanted.group, done)
        without = [address for address, table in done.items() if table is None]
        return ResetDone(rows, failures, False, without)
    moved: dict[MessageQueue, int] = {}
    parts = []
    for table_ in done.values():
        assert table_ is not None
        moved.update(table_)
        parts.append(java_order.hash_order(table_, java_order.queue_hash))
    order = java_order.merged_order(parts, java_order.queue_hash)
    rows = [
        ResetOutcome(queue.broker_name, queue.queue_id, None, None, None, moved[queue])
        for queue in order
    ]
    return ResetDone(rows, failures, True, [])


def _unheard(group: str, told: "Mapping[str, dict[MessageQueue, int] | None]") -> Iterator[str]:
    """Return a line for each broker without members if another one has notified some: it may have
    just started.
    """
    if any(table is not None for table in told.values()):
        for address, table in told.items():
            if table is None:
                yield (
                    f"{address}: no member of group {group} is connected to it yet, and to other "
                    "brokers some are: they may overwrite what was set; reset again in a minute"
                )


async def _time_to_tell(
    admin: "Admin", address: str, queues: "Iterable[MessageQueue]", timestamp: int
) -> int:
    """Return the time for a reset of connected consumers.

    This is TO_THE_END for a future time that is after all messages, because Java's brokers before
    5.0 would redeliver the last message of each queue.
    """
    if timestamp <= clock.milliseconds():
        return timestamp
    for queue in queues:
        end = await admin.max_offset(address, queue.topic, queue.queue_id)
        if await _target(admin, address, queue, timestamp) < end:
            return timestamp
    return TO_THE_END


def _queues(topic: str, broker_name: str, counts: Mapping[str, int]) -> "list[MessageQueue]":
    from mq.protocol.bodies import MessageQueue

    every = range(counts.get(broker_name, 0))
    return [MessageQueue(topic, broker_name, number) for number in every]


async def at_brokers(admin: "Admin", wanted: OffsetReset) -> tuple[list[ResetOutcome], list[str]]:
    """Set the offsets at the brokers. Returns the results and the failures."""
    route = await _route(admin, wanted)
    brokers, queues = _brokers(route), _read_queue_counts(route)

    async def at_broker(each: "Admin", address: str) -> list[ResetOutcome]:
        name = brokers[address].broker_name
        return await _at_broker(each, address, name, queues.get(name, 0), wanted)

    done, failures = await cluster.at_each(admin, brokers, at_broker)
    return [row for rows in done.values() for row in rows], failures


def _route_topic(wanted: OffsetReset) -> str:
    from mq.protocol.names import LMQ_PREFIX

    timer = wanted.topic == "rmq_sys_wheel_timer"
    if wanted.route_topic and (timer or wanted.topic.startswith(LMQ_PREFIX)):
        return wanted.route_topic
    return wanted.topic


async def _route(admin: "Admin", wanted: OffsetReset) -> "TopicRouteData":
    return await admin.topic_route(_route_topic(wanted))


def _brokers(route: "TopicRouteData") -> dict[str, "BrokerData"]:
    """Return the brokers of the topic by the address to query."""
    return {cluster.any_address(broker): broker for broker in route.broker_datas}


def _read_queue_counts(route: "TopicRouteData") -> dict[str, int]:
    """Return the number of readable queues of the topic by broker name."""
    return {item.broker_name: item.read_queue_nums for item in route.queue_datas}


async def _at_broker(
    admin: "Admin", address: str, name: str, queue_count: int, wanted: OffsetReset
) -> list[ResetOutcome]:
    """Reset every queue that the group has consumed; all queues of the topic if it has consumed
    none.
    """
    from mq.protocol.bodies import MessageQueue

    stats = (await admin.consume_stats(address, wanted.group)).offset_table
    known = [
        (queue, stats[queue].broker_offset, stats[queue].consumer_offset)
        for queue in java_order.hash_order(stats, java_order.queue_hash)
        if queue.topic == wanted.topic
    ]
    if not known:
        every = [MessageQueue(wanted.topic, name, number_) for number_ in range(queue_count)]
        offsets = await bounds(admin, address, wanted.topic, every)
        known = [(queue, offsets[queue].max_offset, offsets[queue].min_offset) for queue in every]
    return [await _move(admin, address, *item, wanted) for item in known]


async def _move(
    admin: "Admin",
    address: str,
    queue: "MessageQueue",
    broker_offset: int,
    consumer_offset: int,
    wanted: OffsetReset,
) -> ResetOutcome:
    where = queue.topic, queue.queue_id
    target = await _target(admin, address, queue, wanted.timestamp)
    offset = consumer_offset
    if wanted.force or target <= consumer_offset:
        await admin.update_consumer_offset(address, wanted.group, *where, target)
        offset = target
    name = queue.broker_name
    return ResetOutcome(name, queue.queue_id, broker_offset, consumer_offset, target, offset)


async def _target(admin: "Admin", address: str, queue: "MessageQueue", timestamp: int) -> int:
    """Return the offset of the first message of that time or later, or the end of the queue."""
    from mq.client.operations.offsets.by_time import first_at
    from mq.client.pull.pull_consumer import PullConsumer

    if timestamp == TO_THE_END:
        return await admin.max_offset(address, queue.topic, queue.queue_id)
    consumer = PullConsumer(admin.session)
    return await first_at(admin, consumer, address, queue, timestamp)


async def offset_at(
    admin: "Admin", address: str, topic: str, queue_id: int, timestamp: int, given: int | None
) -> int:
    """Return the given offset, or the one for a time, in a queue."""
    from mq.protocol.bodies import MessageQueue

    if given is not None:
        return given
    name = await _broker_name(admin, address, topic)
    return await _target(admin, address, MessageQueue(topic, name, queue_id), timestamp)


async def _broker_name(admin: "Admin", address: str, topic: str) -> str:
    """Return the name of the broker at `address`; "" if the topic's route lacks it."""
    brokers = (await admin.topic_route(topic)).broker_datas
    return next((item.broker_name for item in brokers if address in item.broker_addrs.values()), "")


async def one_queue(
    admin: "Admin", address: str, topic: str, group: str, queue_id: int, offset: int
) -> ResetOutcome:
    """Move a group to an offset of one queue.

    A broker of 5.x notifies connected consumers. An older one cannot do so for a single queue: then
    no consumer may be connected (Unavailable), because it would overwrite the offset.
    """
    tells = await is_of_5(admin, address)
    if not tells and await _is_online(admin, address, group):
        raise Unavailable(
            f"consumers of group {group} are connected, and the broker at {address} is older than "
            "RocketMQ 5: it cannot tell them about one queue",
            hint=NextStep.RESET_WHOLE_TOPIC,
        )
    old = await admin.query_consumer_offset(address, group, topic, queue_id)
    end = await admin.max_offset(address, topic, queue_id)
    await admin.update_consumer_offset(address, group, topic, queue_id, offset)
    if tells:
        await admin.reset_queue(address, topic, group, queue_id, offset)
    name = await _broker_name(admin, address, topic)
    return ResetOutcome(name, queue_id, end, old, offset, offset)


async def foresee(
    admin: "Admin", wanted: OffsetReset, seconds: float, *, offline: bool = False
) -> tuple[list[PlannedReset], "dict[str, MQError]"]:
    """Predict the effect of `all_queues`, or with `offline` of `at_brokers`, without changing
    anything.

    Returns the predictions of brokers that answer within `seconds`, and the failures by address.
    Raises RouteNotFound.
    """

    route = await _route(admin, wanted)
    brokers, counts = _brokers(route), _read_queue_counts(route)
    written = {item.broker_name: item.write_queue_nums for item in route.queue_datas}

    async def look(each: "Admin", address: str) -> list[PlannedReset]:
        name = brokers[address].broker_name
        every = _queues(wanted.topic, name, counts)
        offsets = await bounds(each, address, wanted.topic, every)
        # For all its topics: queried for one, brokers return 0 if the group has no offset.
        stats = (await each.consume_stats(address, wanted.group)).offset_table
        known = {queue: stats[queue].consumer_offset for queue in stats if queue in offsets}
        # A broker that notifies the consumers, or is of 5.x, resets the queues of the topic.
        told = not offline and (
            await _is_online(each, address, wanted.group) or await is_of_5(each, address)
        )
        timestamp = wanted.timestamp
        if told:
            timestamp = await _time_to_tell(each, address, every, timestamp)
        queues, force = sorted(known or offsets), wanted.force
        if told and await _resets_by_itself(each, address):
            queues, force = sorted(offsets), True
        elif told:  # queues that are only read keep their offsets
            queues = [queue for queue in every if queue.queue_id < written.get(name, 0)]
        found = []
        for queue in queues:
            first, end = offsets[queue].min_offset, offsets[queue].max_offset
            new = end
            if timestamp != TO_THE_END:
                # If it notifies consumers, the broker searches; otherwise `at_brokers` does.
                new = await (
                    each.search_offset(address, wanted.topic, queue.queue_id, timestamp)
                    if told
                    else _target(each, address, queue, timestamp)
                )
            old = known.get(queue)
            if not force and old is not None:
                new = min(new, old)
            found.append(planned(queue.broker_name, queue.queue_id, old, new, first, end))
        return found

    done, failed = await cluster.outcomes(admin, brokers, cluster.within(seconds, look))
    return [row for rows in done.values() for row in rows], failed


async def foresee_queue(
    admin: "Admin", address: str, wanted: OffsetReset, queue: "MessageQueue", given: int | None
) -> PlannedReset:
    """Predict the effect of `one_queue` on a queue of the broker at `address`: to the given offset,
    or to the one of the requested time.
    """
    first = await admin.min_offset(address, queue.topic, queue.queue_id)
    end = await admin.max_offset(address, queue.topic, queue.queue_id)
    old = await admin.query_consumer_offset(address, wanted.group, queue.topic, queue.queue_id)
    new = given if given is not None else await _target(admin, address, queue, wanted.timestamp)
    return planned(queue.broker_name, queue.queue_id, old, new, first, end)


def planned(
    broker_name: str, queue_id: int, old: int | None, new: int, first: int, end: int
) -> PlannedReset:
    """Count the existing messages between the offsets."""

    def kept(offset: int) -> int:
        return min(max(offset, first), end)

    moved = 0 if old is None else kept(new) - kept(old)
    return PlannedReset(broker_name, queue_id, old, new, first, end, max(moved, 0), max(-moved, 0))


async def is_of_5(admin: "Admin", address: str) -> bool:
    """Whether a broker is of RocketMQ 5 or later; false for an unknown version."""
    from mq.protocol.versions import version_number

    release = (await admin.broker_runtime_info(address)).get("brokerVersionDesc", "")
    try:
        return version_number(release) >= version_number("V5_0_0")
    except ValueError:
        return False


async def _resets_by_itself(admin: "Admin", address: str) -> bool:
    """Whether a broker sets offsets itself, of all readable queues and to any value, and notifies
    members when they pull (since 5.1; configurable since 5.2).
    """
    return (await admin.broker_config(address)).get("useServerSideResetOffset") == "true"


async def _is_online(admin: "Admin", address: str, group: str) -> bool:
    """Whether a member is connected to a broker. Raises MQError if the broker does not answer."""
    from mq.client.errors import NoneThere

    try:
        return bool(await admin.consumer_ids(address, group))
    except NoneThere:
        return False
