"""Setting a group to other offsets of a topic, from the page of the topic or of the group."""

from collections.abc import Mapping
from typing import Any

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations.errors import NotFound
from mq.client.operations.offsets import reset
from mq.client.operations.offsets.reset import OffsetReset, PlannedReset
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.guarded_session import Forbidden
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.broker_queries import DEADLINE
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import N_, Field, Outcome, Permission, Plan, Sheet, Values
from mq.protocol.bodies import MessageQueue

FIELDS = (
    Field(
        "to",
        N_("Continue at"),
        "choice",
        required=True,
        choices=(
            ("time", N_("a time")),
            ("earliest", N_("the oldest message")),
            ("latest", N_("the end: skip the lag")),
            ("offset", N_("an offset of one queue")),
        ),
    ),
    Field("time", N_("Time"), "moment", help=N_("For “a time”: 2026-11-23 14:05, or -15m.")),
    Field(
        "broker",
        N_("Broker"),
        "choice",
        choices=asked.master_names,
        help=N_("With a queue: only at this broker. Empty: all queues."),
    ),
    Field("queue", N_("Queue"), "integer"),
    Field("offset", N_("Offset"), "integer", help=N_("For “an offset”.")),
    Field("back", N_("Only move back, skip nothing"), "flag"),
    Field(
        "offline",
        N_("Set only the offsets at the brokers"),
        "flag",
        help=N_("Running consumers overwrite them: stop them first."),
    ),
)


def check(call: Call, values: Values) -> None:
    """Raises BadField for values that cannot be combined, Forbidden without permission."""
    topic, group = subjects(call, values)
    needs = Permission.OPERATE
    if not (call.may(needs, topic=topic) and call.may(needs, group=group)):
        raise Forbidden(call.text("You may not do this."))
    one_queue = values["broker"] is not None or values["queue"] is not None
    if one_queue and (values["broker"] is None or values["queue"] is None):
        raise BadField("queue", call.text("A broker and a queue must be given together."))
    if values["to"] == "offset" and (not one_queue or values["offset"] is None):
        raise BadField("offset", call.text("An offset needs a broker, a queue and the offset."))
    if values["to"] == "time" and values["time"] is None:
        raise BadField("time", call.text("Missing time."))
    for name in ("queue", "offset"):
        if values[name] is not None and values[name] < 0:
            raise BadField(name, call.text("This must not be below 0."))
    if one_queue and values["offline"]:
        raise BadField("offline", call.text("This is only possible for all queues."))
    if one_queue and values["back"]:
        raise BadField("back", call.text("This is only possible for all queues."))


def subjects(call: Call, values: Values) -> tuple[str, str]:
    """Return the topic and the group, from the address or the form."""
    return (
        call.path.get("topic") or values["topic"],
        call.path.get("group") or values["group"],
    )


def _wanted(call: Call, values: Values) -> OffsetReset:
    topic, group = subjects(call, values)
    timestamps: Mapping[str, int] = {"earliest": 0, "latest": reset.TO_THE_END, "offset": 0}
    timestamp = values["time"] if values["to"] == "time" else timestamps[values["to"]]
    return OffsetReset(topic, group, timestamp, force=not values["back"])


async def plan(call: Call, values: Values) -> Plan:
    """Plan each queue with its old and new offset, and the numbers of skipped and repeated
    messages.
    """
    wanted = _wanted(call, values)
    if values["queue"] is not None:
        queue = MessageQueue(wanted.topic, values["broker"], values["queue"])
        given = values["offset"] if values["to"] == "offset" else None
        address = _address(call, values)
        rows = [await reset.foresee_queue(call.admin, address, wanted, queue, given)]
        problems: tuple[asked.MissingPart, ...] = ()
    else:
        rows, failed = await reset.foresee(call.admin, wanted, DEADLINE, offline=values["offline"])
        problems = asked.silent(failed, asked.heads(call))
        if failed and not rows:
            raise next(iter(failed.values()))
    skipped, again = sum(row.skipped for row in rows), sum(row.again for row in rows)
    lines = (
        call.text(
            "Group %(group)s moves to other offsets in topic %(topic)s, in %(count)s queues.",
            group=wanted.group,
            topic=wanted.topic,
            count=len(rows),
        ),
        call.text("%(count)s messages are skipped: the group never consumes them.", count=skipped),
        call.text("%(count)s messages are delivered again.", count=again),
        *(f"{one.subject}: {one.text}" for one in problems),
    )
    warning = (
        call.text("Skipped messages are not delivered again automatically.") if skipped else ""
    )
    table = Sheet(
        tuple(
            call.text(name)
            for name in (
                *(N_("Broker"), N_("Queue"), N_("Old offset"), N_("New offset")),
                *(N_("Oldest"), N_("End"), N_("Skipped"), N_("Again")),
            )
        ),
        [_cells(row) for row in rows],
        call.text("Queues"),
    )
    return Plan(lines, (table,), _command(values, wanted), warning)


def _cells(row: PlannedReset) -> tuple[Any, ...]:
    return (
        *(row.broker_name, row.queue_id, row.old, row.new),
        *(row.first, row.end, row.skipped, row.again),
    )


def _command(values: Values, wanted: OffsetReset) -> tuple[str, ...]:
    when = "now" if wanted.timestamp == reset.TO_THE_END else str(wanted.timestamp)
    name = "resetOffsetByTimeOld" if values["offline"] else "resetOffsetByTime"
    words = [name, "-g", wanted.group, "-t", wanted.topic, "-s", when]
    if values["back"]:
        words += ["-f", "false"]
    if values["queue"] is not None:
        words += ["-b", values["broker"], "-q", str(values["queue"])]
        if values["to"] == "offset":
            words += ["-o", str(values["offset"])]
    return tuple(words)


def _address(call: Call, values: Values) -> str:
    address = call.cluster.broker_address(values["broker"])
    if address is None:
        raise NotFound(call.text("There is no broker %(name)s.", name=values["broker"]))
    return address


async def perform(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Notify the consumers, or set the offsets if none is connected; a result per queue."""
    wanted = _wanted(call, values)
    admin = Admin(session)
    if values["queue"] is not None:
        address = _address(call, values)
        given = values["offset"] if values["to"] == "offset" else None
        where = (address, wanted.topic, values["queue"])
        if given is None and wanted.timestamp == reset.TO_THE_END:
            given = await admin.max_offset(*where)
        target = await reset.offset_at(admin, *where, wanted.timestamp, given)
        moved = [
            await reset.one_queue(
                admin, address, wanted.topic, wanted.group, values["queue"], target
            )
        ]
        return [_outcome(call, row) for row in moved]
    try:
        if values["offline"]:
            moved, failures = await reset.at_brokers(admin, wanted)
        else:
            # As in the preview: only online consumers can answer that no consumer is there.
            moved, failures, *_ = await reset.all_queues(admin, wanted, pretending=True)
    except MQError as error:
        return asked.raised(error, asked.heads(call))
    return [
        *(_outcome(call, row) for row in moved),
        *asked.failed(failures, asked.heads(call)),
    ]


def _outcome(call: Call, row: reset.ResetOutcome) -> Outcome:
    text = call.text("continues at %(offset)s", offset=row.offset)
    return Outcome(f"{row.broker_name} {row.queue_id}", True, text)
