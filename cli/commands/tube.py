"""`mq tube brokers` and topic commands: the administration of TubeMQ clusters."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, of_tube, writes
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.cli.tube_clients import Authority, Brokers, Topic, TopicFilter, admin_of, ids_of
from mq.client.operations.columns import flag, number, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mq.client.tube.admin import TubeAdmin

COMMANDS = {"tube": ("tube brokers", "tube topics", "tube create-topic", "tube delete-topic")}

_BROKERS = (
    number("brokerId", "Broker"),
    text("address", "Address"),
    number("webPort", "Web port"),
    text("manageStatus", "Target state"),
    text("runStatus", "State"),
    text("subStatus", "Step"),
    flag("acceptPublish", "Writes"),
    flag("acceptSubscribe", "Reads"),
)


@of_tube
@gives(_BROKERS)
def tube_brokers(call: Call) -> Result:
    """List the brokers of a TubeMQ cluster, with their state.

    Examples:
        mq tube brokers  every broker
        mq tube brokers --masters 10.0.0.5:8715 -o json
                         of another cluster
    """
    rows: list[Row] = [
        (
            int(one["brokerId"]),
            f"{one['brokerIp']}:{one['brokerPort']}",
            int(one.get("brokerWebPort", 0)),
            str(one.get("manageStatus", "-")),
            str(one.get("runStatus", "-")),
            str(one.get("subStatus", "-")),
            _is_true(one.get("acceptPublish")),
            _is_true(one.get("acceptSubscribe")),
        )
        for one in admin_of(call).brokers()
    ]
    return Result(_BROKERS, sorted(rows))


def _is_true(value: Any) -> bool:
    return str(value).lower() == "true"


_TOPICS = (
    text("topic", "Topic"),
    text("brokers", "Brokers"),
    number("configuredPartitions", "Partitions"),
    number("runningPartitions", "Running"),
    flag("acceptPublish", "Writes"),
    flag("acceptSubscribe", "Reads"),
    number("maxMessageMegabytes", "Max size (MiB)"),
)


@of_tube
@gives(_TOPICS)
@subject("topic")
def tube_topics(call: Call, topic: TopicFilter = None) -> Result:
    """List the topics of a TubeMQ cluster, with the brokers that have them.

    Partitions are running when their broker has reported them to its master: some seconds after a
    topic is created.

    Examples:
        mq tube topics                 every topic
        mq tube topics Orders -o json  one of them
    """
    rows: list[Row] = [
        (
            str(one["topicName"]),
            ",".join(sorted({str(at["brokerId"]) for at in one.get("topicInfo", [])}, key=int)),
            int(one.get("totalCfgNumPart", 0)),
            int(one.get("totalRunNumPartCount", 0)),
            _is_true(one.get("isSrvAcceptPublish")),
            _is_true(one.get("isSrvAcceptSubscribe")),
            int(one.get("maxMsgSizeInMB", 0)),
        )
        for one in admin_of(call).topics(topic or "")
    ]
    if topic is not None and not rows:
        raise _not_found(topic)
    return Result(_TOPICS, sorted(rows))


def _not_found(topic: str) -> CommandError:
    return CommandError(
        f"no topic {topic}",
        hint="list topics: mq tube topics",
        status=Status.NOT_FOUND,
    )


_CHANGED = (text("topic", "Topic"), number("brokerId", "Broker"), text("what", "Result"))


@of_tube
@gives(_CHANGED)
@writes
@subject("topic")
def tube_create_topic(
    call: Call,
    topic: Topic,
    brokers: Brokers = None,
    partitions: Annotated[
        int,
        typer.Option(
            "-p",
            "--partitions",
            metavar="N",
            help="Number of partitions in each store of each broker.",
        ),
    ] = 1,
    stores: Annotated[
        int,
        typer.Option("--stores", metavar="N", help="Number of stores, each with its own files."),
    ] = 1,
    *,
    authority: Authority,
) -> Result:
    """Create a topic on brokers of a TubeMQ cluster: on all that are set up, or on some.

    Brokers are notified at once, consumers and then producers about a minute later.

    Examples:
        mq tube create-topic Invoices -p 3            create a topic of three partitions
        mq tube create-topic Invoices -b 1 --dry-run  show the requests to the master
    """
    _check_topic(topic)
    if partitions < 1 or stores < 1:
        raise UsageError("-p/--partitions and --stores must be at least 1")
    admin = admin_of(call, authority)
    ids = list(admin.broker_addresses(ids_of(brokers)))
    if not ids:
        raise CommandError("no broker is set up in this cluster", status=Status.UNAVAILABLE)
    if call.dry_run:
        call.would("create topic", topic, f"at brokers {_joined(ids)}")
        return Result(_CHANGED)
    failures = _tried(
        lambda: admin.change(
            "admin_add_new_topic_record",
            adds=True,
            topicName=topic,
            brokerId=_joined(ids),
            numPartitions=partitions,
            numTopicStores=stores,
            acceptPublish=True,
            acceptSubscribe=True,
        )
    )
    failures += _reload(admin, ids)
    return _changed(topic, ids, "created", failures)


@of_tube
@gives(_CHANGED)
@destroys("delete topic {topic} with all its messages")
@subject("topic")
def tube_delete_topic(
    call: Call, topic: Topic, brokers: Brokers = None, *, authority: Authority
) -> Result:
    """Delete a topic of a TubeMQ cluster, with its messages: everywhere, or on some brokers.

    It closes the topic, marks it, and lets its brokers remove it, as an administrator would step by
    step. If the topic is marked already, it does the rest.

    Examples:
        mq tube delete-topic Invoices            delete a topic; asks on a terminal
        mq tube delete-topic Invoices --dry-run  show the requests to the master
    """
    admin = admin_of(call, authority)
    found = admin.topics(topic)
    wanted = ids_of(brokers)
    ids = sorted(
        int(at["brokerId"])
        for one in found
        if one["topicName"] == topic
        for at in one.get("topicInfo", [])
        if not wanted or int(at["brokerId"]) in wanted
    )
    if not ids:
        raise _not_found(topic)
    if call.dry_run:
        call.would("delete topic", topic, f"at brokers {_joined(ids)}")
        return Result(_CHANGED)
    failures: list[str] = []
    where: dict[str, Any] = {"topicName": topic, "brokerId": _joined(ids)}
    # A topic that is closed or marked already refuses these steps: the last step decides.
    _tried(
        lambda: admin.change(
            "admin_modify_topic_info", acceptPublish=False, acceptSubscribe=False, **where
        )
    )
    _reload(admin, ids)
    _tried(lambda: admin.change("admin_delete_topic_info", **where))
    failures += _tried(lambda: admin.change("admin_remove_topic_info", **where))
    failures += _reload(admin, ids)
    return _changed(topic, ids, "deleted", failures)


def _check_topic(topic: str) -> None:
    from mq.protocol.tube.errors import IllegalName
    from mq.protocol.tube.names import check_topic

    try:
        check_topic(topic)
    except IllegalName as error:
        raise UsageError(str(error)) from None


def _tried(change: Any) -> list[str]:
    """Make a change and return its failures."""
    from mq.client.tube.admin import ChangesFailed

    try:
        change()
    except ChangesFailed as outcome:
        return list(outcome.failures)
    return []


def _reload(admin: "TubeAdmin", ids: "Sequence[int]") -> list[str]:
    return _tried(lambda: admin.change("admin_reload_broker_configure", brokerId=_joined(ids)))


def _joined(ids: "Sequence[int]") -> str:
    return ",".join(map(str, ids))


def _changed(topic: str, ids: "Sequence[int]", what: str, failures: list[str]) -> Result:
    failed = {number for number in ids for line in failures if f"broker {number}:" in line}
    rows: list[Row] = [(topic, number, what) for number in ids if number not in failed]
    result = Result(_CHANGED, rows, failures=failures)
    if not rows:
        result.status = Status.UNAVAILABLE
    return result
