"""Static topics, whose queues move between 5.x brokers without consumers noticing.

Formats: UpdateStaticTopicSubCommand and RemappingStaticTopicSubCommand of 5.3. mqadmin's -mf does
nothing: it looks for an option -f that it does not have.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.parameters import Topic
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import CommandError, UsageError, legal
from mq.cli.runtime.options import Truth, one_of
from mq.cli.runtime.release import OlderBroker, since_5
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row, number, text
from mq.client.operations import cluster, local_files
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.operations.static_mapping import Configs
    from mq.client.operations.wire import Clusters
    from mq.protocol.bodies import TopicConfigAndQueueMapping, TopicRemappingDetailWrapper

COMMANDS = {
    "topic": (
        "updateStaticTopic",
        "remappingStaticTopic",
    )
}

Clustered = Annotated[
    str | None,
    typer.Option("-c", "--clusters", metavar="CLUSTER[,…]", help="On the brokers of these."),
]
Brokers = Annotated[
    str | None, typer.Option("-b", "--brokers", metavar="NAME[,…]", help="On these brokers.")
]
MapFile = Annotated[
    str | None,
    typer.Option("-mf", "--mapFile", metavar="FILE", help="Do what this plan says (.after)."),
]
Force = Annotated[
    Truth,
    typer.Option("-fr", "--forceReplace", help="With -mf: also over a newer mapping."),
]

_COLUMNS = (
    number("queueId", "Queue"),
    text("brokerName", "Broker"),
    number("physicalQueueId", "Queue there"),
    text("formerBrokerName", "Formerly at"),
    number("logicOffset", "Begins at"),
)
_TOTALS = (
    text("before", "The file with the old mapping"),
    text("after", "The file with the new mapping"),
)


@writes
@one_of("clusters", "brokers")
@gives(_COLUMNS, totals=_TOTALS)
async def update_static_topic(
    call: Call,
    topic: Topic,
    total_queue_num: Annotated[
        int, typer.Option("-qn", "--totalQueueNum", metavar="N", help="Queues over all brokers.")
    ],
    clusters: Clustered = None,
    brokers: Brokers = None,
    map_file: MapFile = None,
    force_replace: Force = Truth.FALSE,
) -> Result:
    """Create a static topic, or give it more queues (5.x brokers).

    The old mapping and the new one are written to files in the temporary folder. With the new one
    and -mf the command can be repeated when some brokers could not be reached.
    """
    from mq.client.operations import static_mapping
    from mq.protocol.names import check_topic

    legal(check_topic, topic)
    if total_queue_num < 1:
        raise UsageError(f"-qn/--totalQueueNum: {total_queue_num}")
    files: list[Path] = []
    async with call.admin() as admin:
        info = await cluster.clusters(admin.session)
        if map_file is not None:
            plan = _read_plan(map_file, topic)
        else:
            now = int(call.environment.clock() * 1000)
            targets = _targets(info, clusters, brokers)
            configs = await _known(admin, info, topic, call)
            files.append(_write_plan(call, static_mapping.before(topic, configs, now), "before"))
            wanted = targets | set(configs)
            plan = static_mapping.grown(topic, total_queue_num, wanted, configs, now)
            files.append(_write_plan(call, plan, "after"))
        _complete(info, plan)
        masters = _masters(info, plan)
        with _repeatable(call, map_file or str(files[-1])):
            for broker, config in plan.broker_config_map.items():
                await _put(admin, masters[broker], config, bool(force_replace), call)
    words = ("old", "new")
    return _result(plan, files, words)


@writes
@one_of("clusters", "brokers")
@gives(_COLUMNS, totals=_TOTALS)
async def remapping_static_topic(
    call: Call,
    topic: Topic,
    clusters: Clustered = None,
    brokers: Brokers = None,
    map_file: MapFile = None,
    force_replace: Force = Truth.FALSE,
) -> Result:
    """Move the queues of a static topic to other brokers (5.x brokers).

    The brokers named lead the queues afterwards, and no others. What was written before stays where
    it is and is read from there. The old mapping and the new one are written to files in the
    temporary folder.
    """
    from mq.client.operations import static_mapping

    files: list[Path] = []
    async with call.admin() as admin:
        info = await cluster.clusters(admin.session)
        if map_file is not None:
            plan = _read_plan(map_file, topic)
        else:
            now = int(call.environment.clock() * 1000)
            targets = _targets(info, clusters, brokers)
            configs = await _known(admin, info, topic, call)
            if not configs:
                raise NotFound(f"no broker has topic {topic}", hint="see: mq topicList")
            files.append(_write_plan(call, static_mapping.before(topic, configs, now), "before"))
            plan = static_mapping.remapped(topic, targets, configs, now)
            files.append(_write_plan(call, plan, "after"))
        _complete(info, plan)
        masters = _masters(info, plan)
        with _repeatable(call, map_file or str(files[-1])):
            await _remap(admin, plan, masters, bool(force_replace), call)
    words = ("old", "old")  # mqadmin calls both of them old
    return _result(plan, files, words)


@contextmanager
def _repeatable(call: Call, file: str) -> Iterator[None]:
    """Say how to go on when a broker fails in the middle: the others have the new mapping."""
    from mq.client.errors import MQError

    try:
        yield
    except OlderBroker:
        raise
    except MQError as error:
        raise CommandError(
            f"not all brokers have the new mapping: {error}",
            hint=f"go on with it: mq {call.name} … -mf {file}",
            status=Status.PARTLY,
        ) from error


def _targets(info: "Clusters", clusters: str | None, brokers: str | None) -> set[str]:
    """The broker names that are meant. Raises NotFound for one that is not there."""
    if brokers is not None:
        names = {part.strip() for part in brokers.split(",") if part.strip()}
    else:
        parts = [part.strip() for part in (clusters or "").split(",") if part.strip()]
        names = {name for part in parts for name in cluster.broker_names(info, part)}
    for name in sorted(names):
        _master(info, name)
    if not names:
        raise UsageError("no broker named", hint="write them with commas: -b broker-a,broker-b")
    return names


def _master(info: "Clusters", broker: str) -> str:
    from mq.protocol.names import MASTER_ID

    known = info.broker_addr_table.get(broker)
    if known is None or MASTER_ID not in known.broker_addrs:
        raise NotFound(f"broker {broker} has no master now", hint="see: mq clusterList")
    return known.broker_addrs[MASTER_ID]


def _masters(info: "Clusters", plan: "TopicRemappingDetailWrapper") -> dict[str, str]:
    """The address of every broker of a plan: all have to be there before anything is changed."""
    return {broker: _master(info, broker) for broker in plan.broker_config_map}


async def _known(admin: "Admin", info: "Clusters", topic: str, call: Call) -> "Configs":
    """What every broker has of the topic. Raises the first one's error: all have to be asked."""
    found: Configs = {}
    for broker in sorted(info.broker_addr_table):
        ask = since_5(call.name, lambda each, address: each.static_topic(address, topic))
        config = await ask(admin, _master(info, broker))
        if config is None:
            continue
        if config.mapping_detail is None:
            raise CommandError(
                f"topic {topic} is an ordinary one at broker {broker}",
                hint="a static topic needs a name that no broker has",
                status=Status.BAD_DATA,
            )
        found[broker] = config
    return found


def _complete(info: "Clusters", plan: "TopicRemappingDetailWrapper") -> None:
    """Add the other brokers of the same clusters, without queues: they have to know the topic."""
    from mq.client.operations.static_mapping import empty, epoch_and_count

    configs = plan.broker_config_map
    epoch, count = epoch_and_count(plan.topic or "", configs)
    for names in info.cluster_addr_table.values():
        if not set(names).isdisjoint(configs):
            for name in names:
                if name not in configs:
                    configs[name] = empty(plan.topic or "", name, count, epoch)


async def _put(
    admin: "Admin", address: str, config: "TopicConfigAndQueueMapping", force: bool, call: Call
) -> None:
    async def act(each: "Admin", at: str) -> None:
        await each.create_static_topic(at, config, force=force)

    await since_5(call.name, act)(admin, address)


async def _remap(
    admin: "Admin",
    plan: "TopicRemappingDetailWrapper",
    masters: dict[str, str],
    force: bool,
    call: Call,
) -> None:
    """Carry out a plan in the order that loses nothing (MQAdminUtils.remappingStaticTopic)."""
    configs = plan.broker_config_map
    gaining, losing = sorted(plan.broker_to_map_in), sorted(plan.broker_to_map_out)
    # The new leaders come to be, then the old ones take no more messages.
    for broker in (*gaining, *losing):
        await _put(admin, masters[broker], configs[broker], force, call)
    # Only now it is known where the old ones end.
    for broker in losing:
        await _decide_offsets(admin, plan, broker, masters[broker])
    for broker in (*gaining, *(name for name in configs if name not in {*gaining, *losing})):
        await _put(admin, masters[broker], configs[broker], force, call)


async def _decide_offsets(
    admin: "Admin", plan: "TopicRemappingDetailWrapper", broker: str, address: str
) -> None:
    from mq.client.operations.static_mapping import logical_offset
    from mq.protocol.bodies import MessageQueue

    mapping = plan.broker_config_map[broker].mapping_detail
    assert mapping is not None
    offsets = (await admin.topic_stats(address, plan.topic or "")).offset_table
    for queue_id, items in mapping.hosted_queues.items():
        if len(items) < 2 or items[-1].logic_offset > 0:
            continue
        old = items[-2]
        known = offsets.get(MessageQueue(plan.topic or "", old.bname or "", old.queue_id))
        if known is None:
            raise CommandError(
                f"{address}: no offsets of queue {old.queue_id} of topic {plan.topic}",
                status=Status.UNAVAILABLE,
            )
        items[-1].logic_offset = logical_offset(old, known.max_offset)
        leader = plan.broker_config_map[items[-1].bname or ""].mapping_detail
        assert leader is not None
        leader.hosted_queues[queue_id] = items


def _read_plan(file: str, topic: str) -> "TopicRemappingDetailWrapper":
    """A plan from a file, checked. Raises CommandError and static_mapping.Inconsistent."""
    from mq.client.operations import static_mapping
    from mq.protocol.bodies import TopicRemappingDetailWrapper
    from mq.protocol.errors import RemoteProtocolError

    try:
        plan = TopicRemappingDetailWrapper.decode(local_files.read(Path(file)))
    except RemoteProtocolError as error:
        raise CommandError(f"{file}: {error}", status=Status.BAD_DATA) from None
    if not plan.broker_config_map:
        raise CommandError(f"{file}: a plan without brokers", status=Status.BAD_DATA)
    static_mapping.epoch_and_count(topic, plan.broker_config_map)
    static_mapping.queues(plan.broker_config_map)
    return plan


def _write_plan(call: Call, plan: "TopicRemappingDetailWrapper", suffix: str) -> Path:
    path = Path(tempfile.gettempdir(), f"{plan.topic}-{plan.epoch}.{suffix}")
    if call.dry_run:
        call.would("write", path)
    else:
        local_files.replace(path, plan.encode())
    return path


def _result(
    plan: "TopicRemappingDetailWrapper", files: list[Path], words: tuple[str, str]
) -> Result:
    from mq.client.operations.static_mapping import queues

    rows: list[Row] = []
    for queue_id, items in queues(plan.broker_config_map).items():
        leader = items[-1]
        former = items[-2].bname if len(items) > 1 else None
        rows.append((queue_id, leader.bname, leader.queue_id, former, leader.logic_offset))
    plain = "".join(
        f"The {word} mapping data is written to file {path}\n"
        for word, path in zip(words, files, strict=False)
    )
    totals = dict(zip(("before", "after"), map(str, files), strict=False))
    return Result(_COLUMNS, rows, plain, totals=totals)
