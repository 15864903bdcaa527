"""Static topics of 5.x: which logical queue is which queue of which broker, now and before.

A logical queue is a list of items, oldest first; the last one is its leader, to which messages are
written now. Each broker stores the lists of the queues that it leads or has led. All brokers of a
topic have the same epoch and number of queues. No I/O (TopicQueueMappingUtils of 5.3).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

from mq.client.operations.errors import BadData
from mq.protocol.bodies import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
    TopicRemappingDetailWrapper,
)

Configs = dict[str, TopicConfigAndQueueMapping]  # by broker name
Items = list[LogicQueueMappingItem]

CREATE = "CREATE_OR_UPDATE"
REMAP = "REMAPPING"
# An epoch is a time in ms. A new one is at least this much later than the old one.
_EPOCH_STEP = 1000


class Inconsistent(BadData):
    """The brokers do not agree about a topic, or the request is impossible. The text gives the
    reason.
    """


def epoch_and_count(topic: str, configs: Configs) -> tuple[int, int]:
    """Return the epoch and count of all brokers (checkNameEpochNumConsistence). Raises Inconsistent
    if they differ.
    """
    found: tuple[str, int, int] | None = None
    for broker, config in configs.items():
        mapping = _mapping(broker, config)
        if mapping.bname != broker:
            raise Inconsistent(f"broker {broker} has the mapping of broker {mapping.bname}")
        if mapping.dirty:
            raise Inconsistent(f"the mapping at broker {broker} is dirty")
        if not topic == config.topic_name == mapping.topic:
            raise Inconsistent(f"broker {broker} has a mapping of topic {mapping.topic}")
        facts = (mapping.scope, mapping.epoch, mapping.total_queues)
        if found is not None and facts != found:
            raise Inconsistent(
                f"broker {broker} has scope, epoch and count of queues {facts}, others have {found}"
            )
        found = facts
    assert found is not None
    return found[1], found[2]


def _mapping(broker: str, config: TopicConfigAndQueueMapping) -> TopicQueueMappingDetail:
    if config.mapping_detail is None:
        raise Inconsistent(f"topic {config.topic_name} is not a static one at broker {broker}")
    return config.mapping_detail


def queues(configs: Configs) -> dict[int, Items]:
    """Return the items of each logical queue, as its leader has them, by id.

    Raises Inconsistent for a state that no sequence of changes can lead to
    (checkAndBuildMappingItems).
    """
    found: dict[int, Items] = {}
    count = 0
    for broker, config in configs.items():
        mapping = _mapping(broker, config)
        count = max(count, mapping.total_queues)
        for queue_id, items in mapping.hosted_queues.items():
            _check_items(queue_id, items)
            if items[-1].bname != broker:
                continue
            if queue_id in found:
                raise Inconsistent(f"queue {queue_id} is led by more than one broker")
            found[queue_id] = items
    if sorted(found) != list(range(count)):
        raise Inconsistent(f"{count} queues are declared, but {sorted(found)} exist")
    used = Counter((item.bname, item.queue_id) for items in found.values() for item in items)
    for (broker_name, queue_id), times in used.items():
        if times > 1:
            raise Inconsistent(f"queue {queue_id} of broker {broker_name} is used {times} times")
    _check_brokers_queues(configs)
    return {queue_id: found[queue_id] for queue_id in sorted(found)}


def _check_items(queue_id: int, items: Items) -> None:
    """Check that generations and offsets increase; only the last item's logical offset may be
    undecided.
    """
    if not items:
        raise Inconsistent(f"queue {queue_id} has no items")
    for item in items:
        if item.start_offset < 0 or item.gen < 0 or item.queue_id < 0:
            raise Inconsistent(f"queue {queue_id} has a negative number")
        if item.end_offset != -1 and item.end_offset < item.start_offset:
            raise Inconsistent(f"an item of queue {queue_id} ends before it begins")
        if item is not items[-1] and item.logic_offset < 0:
            raise Inconsistent(f"an old item of queue {queue_id} has no logical offset")
    for older, newer in pairwise(items):
        length = max(0, older.end_offset - older.start_offset)
        if newer.gen <= older.gen or (
            newer.logic_offset != -1 and newer.logic_offset <= older.logic_offset + length
        ):
            raise Inconsistent(f"the items of queue {queue_id} do not rise")


def _check_brokers_queues(configs: Configs) -> None:
    for broker, config in configs.items():
        if config.read_queue_nums < config.write_queue_nums:
            raise Inconsistent(f"broker {broker} has fewer queues to read than to write")
        for queue_id, items in _mapping(broker, config).hosted_queues.items():
            for item in items:
                holder = configs.get(item.bname or "")
                if item.start_offset != 0:
                    raise Inconsistent(f"queue {queue_id} does not begin at 0 at {item.bname}")
                if holder is None or item.queue_id >= holder.write_queue_nums:
                    raise Inconsistent(
                        f"queue {queue_id} was queue {item.queue_id} of broker {item.bname}, which "
                        "has no such queue"
                    )


def before(topic: str, configs: Configs, now: int) -> TopicRemappingDetailWrapper:
    """Return the existing state as a plan that changes nothing, to be kept in a file."""
    epoch = epoch_and_count(topic, configs)[0] if configs else now
    return TopicRemappingDetailWrapper(
        topic=topic, type=CREATE, epoch=epoch, broker_config_map=configs
    )


def grown(
    topic: str, count: int, targets: Iterable[str], configs: Configs, now: int
) -> TopicRemappingDetailWrapper:
    """Return a plan that extends the topic to `count` queues, adding new ones where there are
    fewest.

    Changes `configs`. Raises Inconsistent, also if `count` is not larger than the existing number
    (createTopicConfigMapping).
    """
    epoch = now
    known: dict[int, Items] = {}
    if configs:
        epoch = max(epoch_and_count(topic, configs)[0] + _EPOCH_STEP, now)
        known = queues(configs)
    if count <= len(known):
        raise Inconsistent(
            f"topic {topic} has {len(known)} queues: a static topic can only get more of them"
        )
    load = Counter(dict.fromkeys(targets, 0))
    load.update(items[-1].bname or "" for items in known.values())
    for queue_id in range(len(known), count):
        broker = min(sorted(load), key=lambda name: load[name])
        load[broker] += 1
        item = _append_queue(topic, configs, broker)
        mapping = _mapping(broker, configs[broker])
        mapping.hosted_queues[queue_id] = [item]
    return _plan(topic, CREATE, epoch, count, configs)


def _append_queue(topic: str, configs: Configs, broker: str) -> LogicQueueMappingItem:
    """Add a queue to a broker, as the start of a logical queue."""
    config = configs.setdefault(broker, empty(topic, broker))
    config.write_queue_nums += 1
    config.read_queue_nums += 1
    return LogicQueueMappingItem(queue_id=config.write_queue_nums - 1, bname=broker)


def empty(topic: str, broker: str, count: int = 0, epoch: int = 0) -> TopicConfigAndQueueMapping:
    """Return the topic at a broker that has no queue of it."""
    return TopicConfigAndQueueMapping(
        topic_name=topic,
        read_queue_nums=0,
        write_queue_nums=0,
        mapping_detail=TopicQueueMappingDetail(
            topic=topic, bname=broker, total_queues=count, epoch=epoch
        ),
    )


def _plan(
    topic: str,
    kind: str,
    epoch: int,
    count: int,
    configs: Configs,
    moves: Mapping[str, set[str]] | None = None,
) -> TopicRemappingDetailWrapper:
    for broker, config in configs.items():
        mapping = _mapping(broker, config)
        mapping.epoch = epoch
        mapping.total_queues = count
    epoch_and_count(topic, configs)
    queues(configs)
    found = moves or {}
    return TopicRemappingDetailWrapper(
        topic=topic,
        type=kind,
        epoch=epoch,
        broker_config_map=configs,
        broker_to_map_in=found.get("in", set()),
        broker_to_map_out=found.get("out", set()),
    )


def remapped(
    topic: str, targets: Iterable[str], configs: Configs, now: int
) -> TopicRemappingDetailWrapper:
    """Return a plan by which only `targets` lead the queues, evenly.

    Changes `configs`. The logical offsets of moved queues are undecided (-1): they are determined
    when the old leaders accept no more messages. Raises Inconsistent (remappingStaticTopic).
    """
    epoch, count = epoch_and_count(topic, configs)
    known = queues(configs)
    leaders = {queue_id: items[-1].bname or "" for queue_id, items in known.items()}
    moves: dict[str, set[str]] = {"in": set(), "out": set()}
    for queue_id, broker in _shared_out(leaders, targets).items():
        if leaders[queue_id] == broker:
            continue
        moves["in"].add(broker)
        moves["out"].add(leaders[queue_id])
        item = _append_queue(topic, configs, broker)
        item.gen = known[queue_id][-1].gen + 1
        item.logic_offset = -1
        # One list for both: updates of the new leader's item apply to the old leader, too.
        items = [*known[queue_id], item]
        for holder in (broker, leaders[queue_id]):
            _mapping(holder, configs[holder]).hosted_queues[queue_id] = items
    return _plan(topic, REMAP, max(epoch + _EPOCH_STEP, now), count, configs, moves)


def _shared_out(leaders: Mapping[int, str], targets: Iterable[str]) -> dict[int, str]:
    """Return the new leader of each queue. A broker gives queues away or gets some, never both."""
    held = Counter(leaders.values())
    # The remainder goes to the brokers that have most queues already: then fewer move.
    names = sorted(set(targets), key=lambda name: (-held[name], name))
    size, more = divmod(len(leaders), len(names))
    room = {name: size + (index < more) for index, name in enumerate(names)}
    shared: dict[int, str] = {}
    waiting = []
    for queue_id, leader in leaders.items():
        if room.get(leader, 0) > 0:
            room[leader] -= 1
            shared[queue_id] = leader
        else:
            room.pop(leader, None)
            waiting.append(queue_id)
    for name in sorted(room):
        for _ in range(room[name]):
            shared[waiting.pop(0)] = name
    return shared


def logical_offset(old_leader: LogicQueueMappingItem, max_offset: int, block: int = 10_000) -> int:
    """Return the start of the next leader of a queue: after everything that the old one may have
    written.

    It is rounded up to blocks, with half a block to spare (blockSeqRoundUp). Raises Inconsistent
    for an old leader whose queue ends before its start.
    """
    if max_offset < old_leader.start_offset:
        raise Inconsistent(
            f"queue {old_leader.queue_id} of broker {old_leader.bname} ends before it begins"
        )
    end = old_leader.logic_offset + max_offset - old_leader.start_offset
    blocks, rest = divmod(end, block)
    return (blocks + (1 if rest < block // 2 else 2)) * block
