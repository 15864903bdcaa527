"""Deletion of consumer groups."""

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations import cluster
from mq.client.operations.subjects import groups
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.subject_changes import CLUSTER, first_cluster
from mq.daemons.console.route import N_, Change, Field, Outcome, Permission, Plan, Values


async def _home(call: Call) -> Values:
    known = call.cluster.snapshot.group(call.path["group"])
    return {"cluster": first_cluster(call, known), "clean_offset": False}


async def plan_delete(call: Call, values: Values) -> Plan:
    """Plan the deletion: lost messages, and members that are still connected."""
    group = call.path["group"]
    names = asked.masters_there(call, values["cluster"])
    known = call.cluster.snapshot.group(group)
    lines = [
        call.text(
            "Consumer group %(group)s is deleted from cluster %(cluster)s, with its retry and "
            "dead letter topics.",
            group=group,
            cluster=values["cluster"],
        )
    ]
    for topic in (f"%RETRY%{group}", f"%DLQ%{group}"):
        row = call.cluster.snapshot.topic(topic)
        if row is None or row.stored == 0:
            continue
        line = N_("%(count)s messages of %(topic)s are lost.")
        if row.stored is None:
            line = N_("All messages of %(topic)s are lost; their number is not known yet.")
        lines.append(call.text(line, count=row.stored, topic=topic))
    line = N_("Its offsets stay: if it is created again, it continues there.")
    if values["clean_offset"]:
        line = N_("Its offsets are deleted, too.")
    lines.append(call.text(line))
    lines += [f"{row.name}: {row.problem}" for row in names.values() if row.problem]
    warning = ""
    if known is not None and known.members:
        line = N_("%(count)s members are connected: they may create it again at once.")
        warning = call.text(line, count=known.members)
    command = ["deleteSubGroup", "-c", values["cluster"], "-g", group]
    command += ["-r", "true"] if values["clean_offset"] else []
    return Plan(tuple(lines), (), tuple(command), warning)


async def perform_delete(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Perform deleteSubGroup -c at the masters of one cluster."""
    names = asked.masters_there(call, values["cluster"])
    admin = Admin(session)
    try:
        info = await cluster.clusters(session)
        removed = await groups.remove_group(
            admin,
            cluster.masters(info, values["cluster"]),
            call.path["group"],
            values["cluster"],
            clean_offset=values["clean_offset"],
        )
    except MQError as error:
        return asked.raised(error, names)
    found = asked.done(removed.done, names, call.text("deleted"))
    for topic, deletion in removed.topics:
        text = call.text("%(topic)s deleted", topic=topic)
        found += asked.done([address for _, address, _ in deletion.rows], names, text)
    known = call.cluster.snapshot.group(call.path["group"])
    return [
        *found,
        *asked.failed(removed.failures, names),
        *asked.away(call, names, info, known.brokers if known else None),
    ]


def _group_of(call: Call, values: Values) -> str:
    return call.path["group"]


ROUTES = (
    Change(
        "/groups/{group}/delete",
        Permission.ADMINISTER,
        N_("Delete a consumer group"),
        "group",
        (CLUSTER, Field("clean_offset", N_("Delete its offsets, too"), "flag")),
        plan_delete,
        perform_delete,
        initial=_home,
        destroys=_group_of,
    ),
)
