"""Consumer groups: their settings, progress and end, broker by broker.

Each acts on brokers that its caller names, those of one cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mq.client.errors import RouteNotFound
from mq.client.operations import cluster
from mq.client.operations.consumption import consume_stats
from mq.client.operations.errors import NotFound
from mq.client.operations.subjects.drift import SettingRow, compare
from mq.client.operations.subjects.topics import TopicDeletion, remove
from mq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.errors import MQError
    from mq.protocol.bodies import MessageQueue, OffsetWrapper, SubscriptionGroupConfig


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is in a queue; `last_consumed` in ms, None where nothing was.

    `client` holds the queue, as far as members could be asked.
    """

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    diff: int
    last_consumed: int | None
    client: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """A group's queues over the brokers that answered, and messages a second that it consumes."""

    queues: tuple[QueueProgress, ...]
    consume_tps: float

    @property
    def lag(self) -> int:
        """Messages that wait, over all queues."""
        return sum(queue.diff for queue in self.queues)


@dataclass(frozen=True, slots=True)
class GroupDeletion:
    """What a group's end came to: brokers without it, and its topics, each with what failed."""

    done: tuple[str, ...]
    topics: tuple[tuple[str, TopicDeletion], ...]
    failures: tuple[str, ...]


def progress_rows(
    offsets: "dict[MessageQueue, OffsetWrapper]", holders: "dict[MessageQueue, str]"
) -> list[QueueProgress]:
    """The queues by topic, broker and number; `holders` are clients by the queue that they hold."""
    return [
        QueueProgress(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            item.broker_offset,
            item.consumer_offset,
            item.broker_offset - item.consumer_offset,
            item.last_timestamp if item.last_timestamp > 0 else None,
            holders.get(queue),
        )
        for queue, item in sorted(offsets.items())
    ]


async def progress(
    admin: "Admin",
    addresses: Iterable[str],
    group: str,
    seconds: float,
    *,
    topic: str | None = None,
) -> "tuple[Progress, dict[str, MQError]]":
    """How far a group is at these brokers, and what failed, by address, within `seconds`."""
    done, failed = await cluster.outcomes(
        admin,
        addresses,
        cluster.within(seconds, lambda each, address: each.consume_stats(address, group, topic)),
    )
    offsets: dict[Any, Any] = {}
    for stats in done.values():
        offsets.update(stats.offset_table)
    tps = sum(stats.consume_tps for stats in done.values())
    return Progress(tuple(progress_rows(offsets, {})), tps), failed


def held_by(told: Progress, holders: "Mapping[MessageQueue, str]") -> Progress:
    """The same with the client that holds each queue."""
    clients = {(queue.topic, queue.broker_name, queue.queue_id): c for queue, c in holders.items()}
    rows = (
        replace(row, client=clients.get((row.topic, row.broker_name, row.queue_id)))
        for row in told.queues
    )
    return Progress(tuple(rows), told.consume_tps)


async def settings(admin: "Admin", address: str, group: str) -> "SubscriptionGroupConfig | None":
    """How a group is set at a broker; None where it has none.

    It is asked for all groups. One of 4.9 cannot tell of one, and one of 5.x with
    autoCreateSubscriptionGroup, which is Java's default, makes the group that it is asked about
    (AdminBrokerProcessor.getSubscriptionGroup): to look would bring a deleted one back.
    """
    return (await admin.subscription_groups(address)).subscription_group_table.get(group)


def compared(configs: "Mapping[str, SubscriptionGroupConfig]") -> tuple[SettingRow, ...]:
    """The settings of a group by broker, side by side, but for what is not set."""
    plain = {name: dict(config.to_plain()) for name, config in configs.items()}
    for values in plain.values():
        values.pop("groupName", None)
    return compare(
        {
            name: {key: value for key, value in values.items() if value not in (None, {}, [])}
            for name, values in plain.items()
        }
    )


async def exists(admin: "Admin", group: str) -> bool:
    """Whether there is anything of a group: a topic of its own, its settings or its offsets.

    Raises MQError where no broker has it and one does not say.
    """
    topics = (await admin.topic_list()).topic_list
    if topics & {RETRY_PREFIX + group, DEAD_LETTER_PREFIX + group}:
        return True
    info = await cluster.clusters(admin.session)
    found, failed = await cluster.outcomes(
        admin, cluster.homes(info), lambda each, address: settings(each, address, group)
    )
    if any(config is not None for config in found.values()):
        return True
    for error in failed.values():
        raise error
    try:
        await consume_stats(admin, group)
    except (NotFound, RouteNotFound):
        return False
    return True


async def remove_group(
    admin: "Admin",
    targets: Iterable[str],
    group: str,
    cluster_name: str | None,
    *,
    clean_offset: bool = False,
) -> GroupDeletion:
    """Delete a group at brokers and, when it is gone from all, its retry and dead letter topics
    in the cluster named; the offsets too if asked."""
    addresses = list(targets)
    done, failures = await cluster.at_each(
        admin,
        addresses,
        lambda each, address: each.delete_subscription_group(
            address, group, clean_offset=clean_offset
        ),
    )
    topics = []
    if cluster_name and not failures:
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            name = prefix + group
            topics.append((name, await remove(admin, addresses, name, cluster_name)))
    every = [*failures, *(line for _, removed in topics for line in removed.failures)]
    return GroupDeletion(tuple(done), tuple(topics), tuple(every))
