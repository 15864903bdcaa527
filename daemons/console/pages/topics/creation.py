"""Creating topics."""

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations.subjects import topics
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.subject_changes import CLUSTER, check_name, created, plan_new
from mq.daemons.console.pages.topics import settings_form as form
from mq.daemons.console.route import N_, Change, Field, Outcome, Permission, Plan, Values
from mq.daemons.console.template_filters import quoted
from mq.protocol.bodies import TopicConfig
from mq.protocol.names import check_topic


async def _new(call: Call) -> Values:
    return {
        "cluster": next(iter(asked.clusters(call)), ""),
        **{"read_queues": 8, "write_queues": 8, "perm": "6"},
    }


def _check_new(call: Call, values: Values) -> None:
    check_name(call, values, "topic", check_topic)
    form.check(call, values)
    asked.masters_there(call, values["cluster"])


def _new_config(values: Values) -> TopicConfig:
    return TopicConfig(
        topic_name=values["topic"],
        read_queue_nums=values["read_queues"],
        write_queue_nums=values["write_queues"],
        perm=int(values["perm"]),
        order=values["order"],
        attributes=form.attributes(values),
    )


async def _plan_new(call: Call, values: Values) -> Plan:
    return plan_new(
        call,
        values,
        "topic",
        call.cluster.snapshot.topic(values["topic"]),
        made=N_("Topic %(topic)s is created at %(count)s brokers: %(brokers)s."),
        overwritten=N_(
            "A topic of this name exists at %(brokers)s: it is changed to the values below."
        ),
        command=form.command(values, values["topic"]),
    )


async def _perform_new(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Create it as updateTopic -c does."""
    names = asked.masters_there(call, values["cluster"])
    try:
        made = await topics.make_in_cluster(Admin(session), values["cluster"], _new_config(values))
    except MQError as error:
        return asked.raised(error, names)
    link = f"/topics/{quoted(values['topic'])}"
    return created(made.done, made.failures, names, call.text("has the topic"), link)


ROUTES = (
    Change(
        "/new/topic",
        Permission.ADMINISTER,
        N_("Create a topic"),
        "",
        (
            Field("topic", N_("Topic"), required=True, limit=127),
            *(CLUSTER, *form.FIELDS),
        ),
        _plan_new,
        _perform_new,
        initial=_new,
        check=_check_new,
    ),
)
