"""TubeMQ's clusters: brokers, topics, groups and offsets, as their administrators see them."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, of_tube, writes
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.option_groups import option_group
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row, flag, number, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mq.client.tube.admin import TubeAdmin
    from mq.protocol.tube.strings import Address

COMMANDS = {
    "tube": (
        "tube brokers",
        "tube topics",
        "tube create-topic",
        "tube delete-topic",
        "tube groups",
        "tube offsets",
        "tube set-offsets",
        "tube clone-offsets",
    )
}

DEFAULT_MASTERS = "127.0.0.1:8715"
INDEX_RECORD = 28  # bytes of the index that a message takes: offsets count these

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
TopicFilter = Annotated[
    str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Only of this topic.")
]
Group = Annotated[str, typer.Option("-g", "--group", metavar="GROUP", help="Consumer group.")]
Brokers = Annotated[
    str | None,
    typer.Option("-b", "--brokers", metavar="ID[,…]", help="Only these brokers, by their ids."),
]


@option_group
class Authority:
    """Who changes something."""

    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="The cluster's confModAuthToken. Default: MQ_TUBE_TOKEN.",
        ),
    ] = None
    user: Annotated[
        str, typer.Option("--user", metavar="NAME", help="Who is said to have changed it.")
    ] = "mq"


def masters_of(call: Call) -> "tuple[Address, ...]":
    """The masters that a command is for. Raises UsageError for what are none."""
    from mq.protocol.tube.errors import MalformedText
    from mq.protocol.tube.strings import parse_addresses

    given = call.given_masters or call.environment.variables.get("MQ_TUBE_MASTERS")
    given = given or DEFAULT_MASTERS
    try:
        if not all(":" in item for item in given.split(",") if item.strip()):
            raise MalformedText(given, "a master is HOST:PORT")
        return parse_addresses(given)
    except MalformedText as error:
        raise UsageError(f"-n/--masters: {error}") from None


def _admin(call: Call, authority: Authority | None = None) -> "TubeAdmin":
    from mq.client.tube.admin import TubeAdmin

    token = ""
    if authority is not None:
        token = call.environment.variables.get("MQ_TUBE_TOKEN", "")
        if authority.token_file is not None:
            with open(authority.token_file, encoding="utf-8") as file:
                token = file.read(4096).strip()
    return TubeAdmin(
        masters_of(call),
        web_port=call.web_port,
        token=token,
        user="mq" if authority is None else authority.user,
        timeout=call.timeout,
    )


def _ids(brokers: str | None) -> list[int]:
    """Ids of brokers. Raises UsageError."""
    found = [item.strip() for item in (brokers or "").split(",") if item.strip()]
    if not all(item.isascii() and item.isdigit() and len(item) < 11 for item in found):
        raise UsageError(f"-b/--brokers {brokers}: ids are numbers", hint="see: mq tube brokers")
    return [int(item) for item in found]


_BROKERS = (
    number("brokerId", "Broker"),
    text("address", "Address"),
    number("webPort", "Web port"),
    text("manageStatus", "Set to"),
    text("runStatus", "State"),
    text("subStatus", "Doing"),
    flag("acceptPublish", "Writes"),
    flag("acceptSubscribe", "Reads"),
)


@of_tube
@gives(_BROKERS)
def tube_brokers(call: Call) -> Result:
    """List the brokers of a TubeMQ cluster, and what they do."""
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
        for one in _admin(call).brokers()
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
    number("maxMessageMegabytes", "Largest (MiB)"),
)


@of_tube
@gives(_TOPICS)
def tube_topics(call: Call, topic: TopicFilter = None) -> Result:
    """List the topics of a TubeMQ cluster, with the brokers that have them.

    Partitions are running when their broker has told its master of them: some seconds after a topic
    was made.
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
        for one in _admin(call).topics(topic or "")
    ]
    if topic is not None and not rows:
        raise _not_found(topic)
    return Result(_TOPICS, sorted(rows))


def _not_found(topic: str) -> CommandError:
    return CommandError(
        f"there is no topic {topic}",
        hint="list what there is: mq tube topics",
        status=Status.NOT_FOUND,
    )


_CHANGED = (text("topic", "Topic"), number("brokerId", "Broker"), text("what", "Done"))


@of_tube
@gives(_CHANGED)
@writes
def tube_create_topic(
    call: Call,
    topic: Topic,
    brokers: Brokers = None,
    partitions: Annotated[
        int, typer.Option("-p", "--partitions", metavar="N", help="In each store of each broker.")
    ] = 1,
    stores: Annotated[
        int, typer.Option("--stores", metavar="N", help="Stores, each with files of its own.")
    ] = 1,
    *,
    authority: Authority,
) -> Result:
    """Create a topic on brokers of a TubeMQ cluster: on all that are set up, or on some.

    Brokers are told at once, consumers and producers a minute later: first those, then these.
    """
    _check_topic(topic)
    if partitions < 1 or stores < 1:
        raise UsageError("-p/--partitions and --stores are at least 1")
    admin = _admin(call, authority)
    ids = list(admin.broker_addresses(_ids(brokers)))
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
def tube_delete_topic(
    call: Call, topic: Topic, brokers: Brokers = None, *, authority: Authority
) -> Result:
    """Delete a topic of a TubeMQ cluster, with its messages: everywhere, or on some brokers.

    It is closed first, then marked, then removed by its brokers, as an administrator would do it
    step by step. Where it was marked before, the rest is done.
    """
    admin = _admin(call, authority)
    found = admin.topics(topic)
    wanted = _ids(brokers)
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
    # What is closed or marked already refuses to be it again: the last step decides.
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
    """What of a change was refused."""
    from mq.client.tube.admin import Outcome

    try:
        change()
    except Outcome as outcome:
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


_GROUPS = (text("group", "Group"), text("topics", "Topics"), number("members", "Members"))
_MEMBERS = (text("consumerId", "Member"), text("partition", "Partition"))


@of_tube
@gives(_GROUPS, _MEMBERS)
def tube_groups(
    call: Call,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", metavar="GROUP", help="Its members, and what each has."),
    ] = None,
    topic: TopicFilter = None,
) -> Result:
    """List the consumer groups of a TubeMQ cluster that have members now.

    With -g its members, each with the partitions that it has, as BROKER:TOPIC:PARTITION.
    """
    admin = _admin(call)
    if group is None:
        found = admin.query("admin_query_sub_info", topicName=topic or "").get("data", [])
        rows: list[Row] = [
            (
                str(one["consumeGroup"]),
                ",".join(sorted(map(str, one.get("topicSet", [])))),
                int(one.get("consumerNum", 0)),
            )
            for one in found
        ]
        return Result(_GROUPS, sorted(rows))
    detail = admin.query("admin_query_consume_group_detail", consumeGroup=group, groupName=group)
    rows = []
    for member in detail.get("data", []):
        held = [
            f"{str(at['brokerAddr']).partition(':')[0]}:{at['topicName']}:{at['partId']}"
            for at in member.get("parInfo", [])
        ]
        rows += [(str(member.get("consumerId", "")), partition) for partition in held or ["-"]]
    if not rows:
        raise CommandError(
            f"no member of group {group} is there",
            hint="groups that were there: mq tube offsets -g GROUP",
            status=Status.NOT_FOUND,
        )
    return Result(_MEMBERS, sorted(rows))


_OFFSETS = (
    number("brokerId", "Broker"),
    text("group", "Group"),
    text("topic", "Topic"),
    number("partitionId", "Partition"),
    number("offset", "Offset"),
    number("end", "End"),
    number("behind", "Behind"),
    number("pending", "Pending"),
)


@of_tube
@gives(_OFFSETS)
def tube_offsets(
    call: Call,
    group: Annotated[
        str | None, typer.Option("-g", "--group", metavar="GROUP", help="Only this group's.")
    ] = None,
    topic: TopicFilter = None,
    brokers: Brokers = None,
) -> Result:
    """Show where consumer groups of a TubeMQ cluster are in their partitions.

    Offsets are positions in a broker's index: 28 for each message, which all partitions of a store
    share. `Behind` is how many of these are left, messages of other partitions included; `Pending`
    what was given and is not confirmed.
    """
    from mq.client.errors import MQError

    admin = _admin(call)
    rows: list[Row] = []
    failures: list[str] = []
    for number_, address in sorted(admin.broker_addresses(_ids(brokers)).items()):
        try:
            answer = admin.query_broker(
                address, "admin_query_offset", groupName=group or "", topicName=topic or ""
            )
        except MQError as error:
            failures.append(f"broker {number_}: {error}")
            continue
        rows += _offset_rows(number_, answer)
    result = Result(_OFFSETS, sorted(rows), failures=failures)
    if failures and not rows:
        result.status = Status.UNAVAILABLE
    return result


def _offset_rows(broker_id: int, answer: dict[str, Any]) -> list[Row]:
    return [
        (
            broker_id,
            str(one["groupName"]),
            str(sub["topicName"]),
            int(at["partitionId"]),
            int(at["curOffset"]),
            int(at["offsetMax"]),
            max(int(at["offsetLag"]), 0) // INDEX_RECORD,
            max(int(at["flightOffset"]), 0) // INDEX_RECORD,
        )
        for one in answer.get("dataSet", [])
        for sub in one.get("subInfo", [])
        for at in sub.get("offsets", [])
        if int(at["curOffset"]) >= 0
    ]


_SET = (number("brokerId", "Broker"), text("group", "Group"), text("what", "Done"))


@of_tube
@gives(_SET)
@writes
def tube_set_offsets(
    call: Call,
    group: Group,
    to: Annotated[
        str,
        typer.Argument(
            metavar="WHERE",
            help="`end`, or BROKER:TOPIC:PARTITION=OFFSET, several with commas between.",
        ),
    ],
    topic: TopicFilter = None,
    brokers: Brokers = None,
    *,
    authority: Authority,
) -> Result:
    """Set where a consumer group of a TubeMQ cluster is: at the end of a topic, or at offsets.

    Members that run go on where they are: stop them first. Offsets that a broker does not have any
    more, or yet, become its first or last.
    """
    from mq.protocol.tube.errors import MalformedText
    from mq.protocol.tube.strings import RequiredPartitions

    if to == "end":
        if topic is None:
            raise UsageError("-t/--topic is required: the end of which topic?")
        wanted = None
    else:
        try:
            wanted = RequiredPartitions.parse(to).offsets
        except MalformedText as error:
            raise UsageError(f"WHERE: {error}", hint="see: mq tube offsets") from None
    admin = _admin(call, authority)
    ids = _ids(brokers) if wanted is None else sorted({key.broker_id for key, _ in wanted})
    done: list[Row] = []
    failures: list[str] = []
    for number_, address in admin.broker_addresses(ids).items():
        if wanted is None:
            more: dict[str, object] = {"manualSet": False, "topicName": topic}
            what = f"end of {topic}"
        else:
            mine = {str(key): offset for key, offset in wanted if key.broker_id == number_}
            more = {"manualSet": True, "offsetJsonInfo": json.dumps(mine)}
            what = ", ".join(f"{key}={offset}" for key, offset in mine.items())
        if call.dry_run:
            call.would("set offsets", f"broker {number_}", f"{group}: {what}")
            continue
        failures += _at_broker(
            admin, number_, address, "admin_set_offset", {"groupName": group, **more}
        )
        done.append((number_, group, what))
    return _outcome(done, failures)


@of_tube
@gives(_SET)
@writes
def tube_clone_offsets(
    call: Call,
    group: Group,
    to: Annotated[str, typer.Argument(metavar="GROUP[,…]", help="Groups that go where it is.")],
    topic: TopicFilter = None,
    brokers: Brokers = None,
    *,
    authority: Authority,
) -> Result:
    """Have consumer groups of a TubeMQ cluster go on where another one is."""
    targets = [one.strip() for one in to.split(",") if one.strip()]
    if not targets:
        raise UsageError(f"GROUP {to!r}: it names no group")
    admin = _admin(call, authority)
    done: list[Row] = []
    failures: list[str] = []
    for number_, address in admin.broker_addresses(_ids(brokers)).items():
        if call.dry_run:
            call.would("set offsets", f"broker {number_}", f"{to}: those of {group}")
            continue
        parameters = {"srcGroup": group, "sourceGroupName": group}
        parameters |= {"tgtGroup": to, "targetGroupName": to, "topicName": topic or ""}
        failures += _at_broker(admin, number_, address, "admin_clone_offset", parameters)
        done += [(number_, one, f"as {group}") for one in targets]
    return _outcome(done, failures)


def _at_broker(
    admin: "TubeAdmin", broker: int, address: "Address", method: str, parameters: dict[str, Any]
) -> list[str]:
    from mq.client.errors import MQError

    try:
        admin.change_broker(address, method, **parameters)
    except MQError as error:
        return [f"broker {broker}: {error}"]
    return []


def _outcome(done: list[Row], failures: list[str]) -> Result:
    failed = {line.split(":")[0].removeprefix("broker ") for line in failures}
    rows = [row for row in done if str(row[0]) not in failed]
    result = Result(_SET, rows, failures=failures)
    if failures and not rows:
        result.status = Status.UNAVAILABLE
    return result
