"""Deleting topics."""

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations import cluster
from mq.client.operations.subjects import topics
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.broker_queries import DEADLINE
from mq.daemons.console.pages.subject_changes import CLUSTER, first_cluster
from mq.daemons.console.route import N_, Change, Outcome, Permission, Plan, Sheet, Values


async def _home(call: Call) -> Values:
    return {"cluster": first_cluster(call, call.cluster.snapshot.topic(call.path["topic"]))}


async def plan_delete(call: Call, values: Values) -> Plan:
    """Describe what is lost."""
    topic = call.path["topic"]
    names = asked.masters_there(call, values["cluster"])
    known = call.cluster.snapshot.topic(topic)
    done, failed = await topics.status(call.admin, names, topic, DEADLINE)
    stored = sum(row.max_offset - row.min_offset for row in done)
    lines = [
        call.text(
            "Topic %(topic)s is deleted from cluster %(cluster)s: %(count)s messages are lost.",
            topic=topic,
            cluster=values["cluster"],
            count=stored,
        )
    ]
    others = set(asked.clusters_of(call, known.brokers) if known else ()) - {values["cluster"]}
    if others:
        line = N_("It remains in %(clusters)s.")
        lines.append(call.text(line, clusters=", ".join(sorted(others))))
    lines += [f"{names[at].name}: {error}" for at, error in failed.items()]
    groups = [
        (name, row.lag if row else None)
        for name in (known.groups if known else ())
        if call.sees_group(name)
        for row in [call.cluster.snapshot.group(name)]
    ]
    table = Sheet((call.text("Group"), call.text("Lag")), groups, call.text("Consumers"))
    return Plan(
        tuple(lines),
        (table,) if groups else (),
        ("deleteTopic", "-c", values["cluster"], "-t", topic),
        call.text("Its messages cannot be restored."),
    )


async def perform_delete(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Delete it as deleteTopic -c does: at the masters of one cluster, then at the name servers."""
    names = asked.masters_there(call, values["cluster"])
    topic = call.path["topic"]
    admin = Admin(session)
    try:
        info = await cluster.clusters(session)
        targets = cluster.masters(info, values["cluster"])
        removed = await topics.remove(admin, targets, topic, values["cluster"])
    except MQError as error:
        return asked.raised(error, names)
    addresses = [address for _, address, _ in removed.rows]
    known = call.cluster.snapshot.topic(topic)
    return [
        *asked.done(addresses, names, call.text("deleted")),
        *asked.failed(removed.failures, names),
        *asked.away(call, names, info, known.brokers if known else None),
    ]


ROUTES = (
    Change(
        "/topics/{topic}/delete",
        Permission.ADMINISTER,
        N_("Delete a topic"),
        "topic",
        (CLUSTER,),
        plan_delete,
        perform_delete,
        initial=_home,
        destroys=lambda call, values: call.path["topic"],
    ),
)
