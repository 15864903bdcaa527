"""Static topics, whose queues can move between 5.x brokers transparently for consumers.

Formats: UpdateStaticTopicSubCommand and RemappingStaticTopicSubCommand of 5.3. mqadmin's -mf has no
effect: it reads an option -f that does not exist.
"""

import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import inputs
from mq.cli.parameters import Topic
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import CommandError, UsageError, legal
from mq.cli.runtime.options import Truth, one_of, subject
from mq.cli.runtime.release import OlderBroker
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster, local_files
from mq.client.operations.columns import number, text
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.operations.static_mapping import Configs
    from mq.client.operations.wire import Clusters
    from mq.protocol.bodies import TopicRemappingDetailWrapper as Plan

COMMANDS = {
    "topic": (
        "updateStaticTopic",
        "remappingStaticTopic",
    )
}

Clustered = Annotated[
    str | None,
    typer.Option(
        "-c", "--clusters", metavar="CLUSTER[,…]", help="On the brokers of these clusters."
    ),
]
Brokers = Annotated[
    str | None, typer.Option("-b", "--brokers", metavar="NAME[,…]", help="On these brokers.")
]
MapFile = Annotated[
    str | None,
    typer.Option(
        "-mf",
        "--mapFile",
        metavar="FILE",
        help="Plan to carry out: the .after file of an earlier run; -: standard input.",
    ),
]
Force = Annotated[
    Truth,
    typer.Option("-fr", "--forceReplace", help="With -mf: replace a newer mapping, too."),
]

_COLUMNS = (
    number("queueId", "Queue"),
    text("brokerName", "Broker"),
    number("physicalQueueId", "Queue of the broker"),
    text("formerBrokerName", "Former broker"),
    number("logicOffset", "First offset"),
)
_TOTALS = (
    text("before", "The file with the old mapping"),
    text("after", "The file with the new mapping"),
)


@writes
@one_of("clusters", "brokers")
@gives(_COLUMNS, totals=_TOTALS)
@subject("topic")
async def update_static_topic(
    call: Call,
    topic: Topic,
    total_queue_num: Annotated[
        int,
        typer.Option(
            "-qn", "--totalQueueNum", metavar="N", help="Number of queues over all brokers."
        ),
    ],
    clusters: Clustered = None,
    brokers: Brokers = None,
    map_file: MapFile = None,
    force_replace: Force = Truth.FALSE,
) -> Result:
    """Create a static topic, or give it more queues (5.x brokers).

    It writes the old and the new mapping to files in the temporary directory. If some brokers could
    not be reached, repeat the command with -mf and the new one.

    Examples:
        mq updateStaticTopic Ledger -qn 8 -c DefaultCluster
                                        create a static topic
        mq updateStaticTopic Ledger -qn 12 -c DefaultCluster --dry-run
                                        later: show the change to twelve
    """
    from mq.client.operations import static_mapping, static_topic
    from mq.protocol.names import check_topic

    legal(check_topic, topic)
    if total_queue_num < 1:
        raise UsageError(f"-qn/--totalQueueNum: {total_queue_num}")

    def grown(targets: set[str], configs: "Configs", now: int) -> "Plan":
        return static_mapping.grown(topic, total_queue_num, targets | set(configs), configs, now)

    plan, files = await _map(
        *(call, topic, clusters, brokers, map_file),
        grown,
        partial(static_topic.put_all, force=bool(force_replace)),
        may_be_new=True,
    )
    words = ("old", "new")
    return _result(plan, files, words)


@writes
@one_of("clusters", "brokers")
@gives(_COLUMNS, totals=_TOTALS)
@subject("topic")
async def remapping_static_topic(
    call: Call,
    topic: Topic,
    clusters: Clustered = None,
    brokers: Brokers = None,
    map_file: MapFile = None,
    force_replace: Force = Truth.FALSE,
) -> Result:
    """Move the queues of a static topic to other brokers (5.x brokers).

    Afterwards only the given brokers accept messages for the queues. Earlier messages stay where
    they are and are read from there. It writes the old and the new mapping to files in the
    temporary directory.

    Examples:
        mq remappingStaticTopic Ledger -b broker-a  move all queues to one broker
        mq remappingStaticTopic Ledger -c DefaultCluster --dry-run
                                                    show the requests, send none
    """
    from mq.client.operations import static_mapping, static_topic

    plan, files = await _map(
        *(call, topic, clusters, brokers, map_file),
        partial(static_mapping.remapped, topic),
        partial(static_topic.remap, force=bool(force_replace)),
    )
    words = ("old", "old")  # mqadmin's text says old for both
    return _result(plan, files, words)


async def _map(
    call: Call,
    topic: str,
    clusters: str | None,
    brokers: str | None,
    map_file: str | None,
    make: Callable[[set[str], "Configs", int], "Plan"],
    put: Callable[["Admin", "Plan", dict[str, str]], Awaitable[None]],
    *,
    may_be_new: bool = False,
) -> tuple["Plan", list[Path]]:
    """Apply the mapping of a file, or one made from the given brokers, the current mapping and the
    time.

    Returns the mapping and the files to which it was written. Raises NotFound for a topic that no
    broker has, unless it ``may_be_new``.
    """
    from mq.client.operations import static_mapping, static_topic

    files: list[Path] = []
    async with call.admin() as admin:
        info = await cluster.clusters(admin.session)
        if map_file is not None:
            content = inputs.content(call.environment, map_file)
            plan = static_topic.read_plan(content, inputs.called(map_file), topic)
        else:
            now = int(call.environment.clock() * 1000)
            targets = _targets(info, clusters, brokers)
            with _since_5(call):
                configs = await static_topic.known(admin, info, topic)
            if not configs and not may_be_new:
                raise NotFound(f"no broker has topic {topic}", hint="see: mq topicList")
            files.append(_write_plan(call, static_mapping.before(topic, configs, now), "before"))
            plan = make(targets, configs, now)
            files.append(_write_plan(call, plan, "after"))
        static_topic.complete(info, plan)
        masters = static_topic.masters(info, plan)
        with _repeatable(call, map_file or str(files[-1])), _since_5(call):
            await put(admin, plan, masters)
    return plan, files


@contextmanager
def _repeatable(call: Call, file: str) -> Iterator[None]:
    """Explain how to continue if a broker fails halfway: the others have the new mapping."""
    from mq.client.errors import MQError

    try:
        yield
    except OlderBroker:
        raise
    except MQError as error:
        raise CommandError(
            f"not all brokers have the new mapping: {error}",
            hint=f"continue with: mq {call.name} … -mf {file}",
            status=Status.PARTLY,
        ) from error


@contextmanager
def _since_5(call: Call) -> Iterator[None]:
    from mq.client.errors import RequestNotSupported

    try:
        yield
    except RequestNotSupported as error:
        raise OlderBroker(error.address, call.name) from None


def _targets(info: "Clusters", clusters: str | None, brokers: str | None) -> set[str]:
    """Return the broker names of the options. Raises NotFound for an unknown broker."""
    from mq.client.operations import static_topic

    if brokers is not None:
        names = {part.strip() for part in brokers.split(",") if part.strip()}
    else:
        parts = [part.strip() for part in (clusters or "").split(",") if part.strip()]
        names = {name for part in parts for name in cluster.broker_names(info, part)}
    for name in sorted(names):
        static_topic.master(info, name)
    if not names:
        raise UsageError("no broker given", hint="separate names with commas: -b broker-a,broker-b")
    return names


def _write_plan(call: Call, plan: "Plan", suffix: str) -> Path:
    path = Path(tempfile.gettempdir(), f"{plan.topic}-{plan.epoch}.{suffix}")
    if call.dry_run:
        call.would("write", path)
    else:
        local_files.replace(path, plan.encode())
    return path


def _result(plan: "Plan", files: list[Path], words: tuple[str, str]) -> Result:
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
