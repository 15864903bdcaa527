"""The status reports of a group's members, and the problems that they show.

The checks are those of ConsumerRunningInfo (analyzeSubscription, analyzeProcessQueue).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.errors import MQError
    from mq.protocol.bodies import ConsumerRunningInfo, MessageQueue, SubscriptionData

_STARTED_FOR_A_WHILE = 2 * 60 * 1000  # ms; younger consumers may not know each other yet
_BLOCKED = 60 * 1000  # ms


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A topic to which members of a group subscribe differently: the expressions by client.

    None stands for a member that does not subscribe to it.
    """

    topic: str
    wanted: tuple[tuple[str, str | None], ...]


async def running(
    admin: "Admin",
    address: str,
    group: str,
    client_ids: Iterable[str],
    *,
    stacks: bool = False,
    seconds: float | None = None,
) -> "tuple[dict[str, ConsumerRunningInfo], dict[str, MQError]]":
    """Return members' status reports, requested through the broker at `address`, and the failures,
    by client.

    With `seconds`, on an event loop, all are queried concurrently and within that time.
    """
    from mq.client.errors import MQError
    from mq.client.operations.cluster import within

    said: dict[str, ConsumerRunningInfo] = {}
    failed: dict[str, MQError] = {}

    async def ask(client_id: str) -> None:
        async def one(each: "Admin", at: str) -> "ConsumerRunningInfo":
            return await each.consumer_running_info(at, group, client_id, stacks=stacks)

        try:
            act = one if seconds is None else within(seconds, one)
            said[client_id] = await act(admin, address)
        except MQError as error:
            failed[client_id] = error

    wanted = list(dict.fromkeys(client_ids))
    await admin.session.all([ask(client_id) for client_id in wanted])
    return (
        {name: said[name] for name in wanted if name in said},
        {name: failed[name] for name in wanted if name in failed},
    )


def holders(infos: "Mapping[str, ConsumerRunningInfo]") -> "dict[MessageQueue, str]":
    """Return the client that owns each queue."""
    return {queue: client for client, info in infos.items() for queue in info.mq_table}


def disagreements(infos: "Mapping[str, ConsumerRunningInfo]") -> list[Disagreement]:
    """Return the topics to which these members do not all subscribe in the same way, in order.

    The group's retry topic is ignored: broadcasting members do not subscribe to it.
    """
    wanted: dict[str, dict[str, str]] = {}
    for client, info in sorted(infos.items()):
        for item in info.subscription_set:
            if not item.topic.startswith(RETRY_PREFIX):
                kind = "" if item.expression_type in ("TAG", "") else f"{item.expression_type} "
                wanted.setdefault(item.topic, {})[client] = kind + item.sub_string
    return [
        Disagreement(topic, tuple((client, by_client.get(client)) for client in sorted(infos)))
        for topic, by_client in sorted(wanted.items())
        if len(by_client) < len(infos) or len(set(by_client.values())) > 1
    ]


def subscriptions(info: "ConsumerRunningInfo") -> list["SubscriptionData"]:
    """Return the subscriptions in the order of Java's TreeSet."""
    return sorted(info.subscription_set, key=lambda item: f"{item.topic}@{item.sub_string}")


def same_subscriptions(infos: dict[str, "ConsumerRunningInfo"], now: int) -> bool:
    """Whether the members of a group subscribe to the same topics and tags (analyzeSubscription).

    Members that have run for less than two minutes pass, because they may not know each other yet.
    `infos` are by client id, in order; `now` is in ms.
    """
    first = infos[min(infos)]
    if not _pushes(first) or now - _started(first) <= _STARTED_FOR_A_WHILE:
        return True
    wanted = {
        frozenset((i.topic, i.sub_string) for i in one.subscription_set) for one in infos.values()
    }
    return len(wanted) == 1 and bool(first.subscription_set)


def _pushes(info: "ConsumerRunningInfo") -> bool:
    return info.properties.get("PROP_CONSUME_TYPE") == "CONSUME_PASSIVELY"


def _started(info: "ConsumerRunningInfo") -> int:
    try:
        return int(info.properties["PROP_CONSUMER_START_TIMESTAMP"])
    except (KeyError, ValueError):
        return 0


def stuck(client_id: str, info: "ConsumerRunningInfo", now: int) -> list[str]:
    """Return the queues on which a consumer makes no progress, a sentence each
    (analyzeProcessQueue).
    """
    if not _pushes(info):
        return []
    ordered = info.properties.get("PROP_CONSUMEORDERLY", "").lower() == "true"
    found = []
    for queue in sorted(info.mq_table):
        held = info.mq_table[queue]
        where = (
            f"{client_id} MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
            f"queueId={queue.queue_id}]"
        )
        if ordered and not held.locked:
            found.append(f"{where} can't lock for a while, {now - held.last_lock_timestamp}ms")
        elif ordered and held.droped and held.try_unlock_times > 0:
            found.append(f"{where} unlock {held.try_unlock_times} times, still failed")
        elif not ordered and held.cached_msg_count > 0:
            idle = now - held.last_consume_timestamp
            if idle > _BLOCKED:
                found.append(f"{where} can't consume for a while, maybe blocked, {idle}ms")
    return found


def document(info: "ConsumerRunningInfo") -> dict[str, Any]:
    """Return a consumer's report for JSON and YAML, with queues as list items."""
    queues = [
        {
            **{"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id},
            **info.mq_table[queue].to_plain(),
        }
        for queue in sorted(info.mq_table)
    ]
    popped = [
        {
            **{"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id},
            **held.to_plain(),
        }
        for queue, held in sorted((info.mq_pop_table or {}).items(), key=lambda item: item[0])
    ]
    return {
        "properties": dict(sorted(info.properties.items())),
        "subscriptions": [
            {
                "topic": item.topic,
                "subString": item.sub_string,
                "expressionType": item.expression_type,
                "tags": sorted(item.tags_set),
            }
            for item in subscriptions(info)
        ],
        "queues": queues,
        "popQueues": popped,
        "status": {topic: item.to_plain() for topic, item in sorted(info.status_table.items())},
        "jstack": info.jstack,
    }
