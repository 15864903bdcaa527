"""Consumer groups of TubeMQ: their members and offsets."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.parameters import group_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, of_tube, writes
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.cli.tube_clients import Authority, Brokers, Group, TopicFilter, admin_of, ids_of
from mq.client.operations.columns import number, text

if TYPE_CHECKING:
    from mq.client.tube.admin import TubeAdmin
    from mq.protocol.tube.strings import Address

COMMANDS = {"tube": ("tube groups", "tube offsets", "tube set-offsets", "tube clone-offsets")}

INDEX_RECORD = 28  # bytes of an index entry; offsets count bytes of the index

_GROUPS = (text("group", "Group"), text("topics", "Topics"), number("members", "Members"))
_MEMBERS = (text("consumerId", "Member"), text("partition", "Partition"))


@of_tube
@gives(_GROUPS, _MEMBERS)
@subject("group", "topic")
def tube_groups(
    call: Call,
    group: Annotated[
        str | None,
        group_option(text="Show the members of this group, and the partitions of each."),
    ] = None,
    topic: TopicFilter = None,
) -> Result:
    """List the consumer groups of a TubeMQ cluster that have members now.

    With -g it lists the members, each with its partitions as BROKER:TOPIC:PARTITION.

    Examples:
        mq tube groups          groups that have members
        mq tube groups billing  its members and their partitions
    """
    admin = admin_of(call)
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
            f"group {group} has no connected members",
            hint="for groups with offsets: mq tube offsets",
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
    number("behind", "Lag"),
    number("pending", "Pending"),
)


@of_tube
@gives(_OFFSETS)
@subject("group", "topic")
def tube_offsets(
    call: Call,
    group: Annotated[str | None, group_option(text="Only this group.")] = None,
    topic: TopicFilter = None,
    brokers: Brokers = None,
) -> Result:
    """Show the offsets of consumer groups of a TubeMQ cluster.

    Offsets are positions in a broker's index: 28 for each message, shared by all partitions of a
    store. `Lag` is the number of entries up to the end, including those of other partitions;
    `Pending` counts delivered, unconfirmed messages.

    Examples:
        mq tube offsets billing                 offsets of one group
        mq tube offsets billing Orders -o json  in one topic, for a program
    """
    from mq.client.errors import MQError

    admin = admin_of(call)
    rows: list[Row] = []
    failures: list[str] = []
    for number_, address in sorted(admin.broker_addresses(ids_of(brokers)).items()):
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


_SET = (number("brokerId", "Broker"), text("group", "Group"), text("what", "Result"))


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
            help="end, or BROKER:TOPIC:PARTITION=OFFSET, separated by commas.",
        ),
    ],
    topic: TopicFilter = None,
    brokers: Brokers = None,
    *,
    authority: Authority,
) -> Result:
    """Set a consumer group of a TubeMQ cluster to the end of a topic, or to offsets.

    Stop the members first: running ones continue at their own offsets. Offsets outside a broker's
    range become its first or last.

    Examples:
        mq tube set-offsets end -g billing -t Orders  skip the whole lag
        mq tube set-offsets 1:Orders:0=28 -g billing --dry-run
                                                      show what would be set
    """
    from mq.protocol.tube.errors import MalformedText
    from mq.protocol.tube.strings import RequiredPartitions

    if to == "end":
        if topic is None:
            raise UsageError("with end, -t/--topic is required")
        wanted = None
    else:
        try:
            wanted = RequiredPartitions.parse(to).offsets
        except MalformedText as error:
            raise UsageError(f"WHERE: {error}", hint="see: mq tube offsets") from None
    admin = admin_of(call, authority)
    ids = ids_of(brokers) if wanted is None else sorted({key.broker_id for key, _ in wanted})
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
    to: Annotated[str, typer.Argument(metavar="GROUP[,…]", help="Groups to set to its offsets.")],
    topic: TopicFilter = None,
    brokers: Brokers = None,
    *,
    authority: Authority,
) -> Result:
    """Copy the offsets of a consumer group of a TubeMQ cluster to other groups.

    Examples:
        mq tube clone-offsets invoices -g billing  invoices continues at the offsets of billing
        mq tube clone-offsets invoices -g billing --dry-run
                                                   show what would be set
    """
    targets = [one.strip() for one in to.split(",") if one.strip()]
    if not targets:
        raise UsageError(f"GROUP {to!r}: contains no group")
    admin = admin_of(call, authority)
    done: list[Row] = []
    failures: list[str] = []
    for number_, address in admin.broker_addresses(ids_of(brokers)).items():
        if call.dry_run:
            call.would("set offsets", f"broker {number_}", f"{to}: offsets of {group}")
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
