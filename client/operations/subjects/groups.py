"""Consumer groups: their settings, progress and deletion, broker by broker.

Each function acts on brokers that its caller names, those of one cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mq.client.errors import RouteNotFound
from mq.client.operations import cluster
from mq.client.operations.columns import number, text, time
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
    """The progress of a group in a queue; `last_consumed` is in ms, None if nothing was consumed.

    `client` owns the queue, as far as members could be queried.
    """

    topic: str = text("topic", "Topic").field()
    broker_name: str = text("brokerName", "Broker").field()
    queue_id: int = number("queueId", "Queue").field()
    broker_offset: int = number("brokerOffset", "Broker offset").field()
    consumer_offset: int = number("consumerOffset", "Consumer offset").field()
    diff: int = number("diff", "Lag").field()
    last_consumed: int | None = time("lastConsumed", "Last consumed").field()
    client: str | None = text("client", "Client").field(default=None)


@dataclass(frozen=True, slots=True)
class Progress:
    """A group's queues at the brokers that answered, and its consumption rate in messages per
    second.
    """

    queues: tuple[QueueProgress, ...]
    consume_tps: float

    @property
    def lag(self) -> int:
        """The lag over all queues."""
        return sum(queue.diff for queue in self.queues)


@dataclass(frozen=True, slots=True)
class GroupDeletion:
    """The result of deleting a group: brokers without it, and its topics, each with the
    failures.
    """

    done: tuple[str, ...]
    topics: tuple[tuple[str, TopicDeletion], ...]
    failures: tuple[str, ...]


def progress_rows(
    offsets: "dict[MessageQueue, OffsetWrapper]", holders: "dict[MessageQueue, str]"
) -> list[QueueProgress]:
    """Return the queues by topic, broker and number; `holders` maps queues to the clients that own
    them.
    """
    return [
        QueueProgress(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            item.broker_offset,
            item.consumer_offset,
            item.lag,
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
    """Return the progress of a group at these brokers, and the failures by address, within
    `seconds`.
    """
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
    """Return the same with the client that owns each queue."""
    clients = {(queue.topic, queue.broker_name, queue.queue_id): c for queue, c in holders.items()}
    rows = (
        replace(row, client=clients.get((row.topic, row.broker_name, row.queue_id)))
        for row in told.queues
    )
    return Progress(tuple(rows), told.consume_tps)


async def settings(admin: "Admin", address: str, group: str) -> "SubscriptionGroupConfig | None":
    """Return the settings of a group at a broker; None if it has none.

    The broker is queried for all groups: a 4.9 broker cannot return a single one, and a 5.x broker
    with autoCreateSubscriptionGroup, which is Java's default, creates the group that it is queried
    for (AdminBrokerProcessor.getSubscriptionGroup), which would restore a deleted group.
    """
    return (await admin.subscription_groups(address)).subscription_group_table.get(group)


def compared(configs: "Mapping[str, SubscriptionGroupConfig]") -> tuple[SettingRow, ...]:
    """Compare the settings of a group between brokers, without unset ones."""
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
    """Whether anything of a group exists: one of its topics, its settings or its offsets.

    Raises MQError if no broker has it and one does not answer.
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
    """Delete a group at brokers and, after success at all of them, its retry and dead letter topics
    in the named cluster; with `clean_offset` also its offsets.
    """
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
