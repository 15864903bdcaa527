"""Creating consumer groups."""

from mq.client.admin import Admin
from mq.client.caller import Caller
from mq.client.operations import cluster
from mq.daemons.console.call import Call
from mq.daemons.console.pages import brokers_asked as asked
from mq.daemons.console.pages.groups import settings_form as form
from mq.daemons.console.pages.subject_changes import CLUSTER, check_name, linked
from mq.daemons.console.route import N_, Change, Field, Outcome, Permission, Plan, Values
from mq.daemons.console.showing import quoted
from mq.protocol.bodies import SubscriptionGroupConfig
from mq.protocol.names import check_group


async def _new(call: Call) -> Values:
    usual = SubscriptionGroupConfig(consume_from_min_enable=False, consume_broadcast_enable=False)
    return {
        "cluster": next(iter(asked.clusters(call)), ""),
        **{name: getattr(usual, name) for name in form.PLAIN},
    }


def _check_new(call: Call, values: Values) -> None:
    check_name(call, values, "group", check_group)
    form.check(call, values)
    asked.masters_there(call, values["cluster"])


async def plan_new(call: Call, values: Values) -> Plan:
    """Where it is made."""
    names = asked.masters_there(call, values["cluster"])
    there = call.cluster.snapshot.group(values["group"])
    warning = ""
    if there is not None:
        line = N_("There is a group of this name at %(brokers)s: it becomes as written here.")
        warning = call.text(line, brokers=", ".join(there.brokers))
    line = call.text(
        "Consumer group %(group)s is made at %(count)s brokers: %(brokers)s.",
        group=values["group"],
        count=len(names),
        brokers=", ".join(row.name for row in names.values()),
    )
    command = form.command(values, values["group"])
    return Plan((line,), command=command, warning=warning)


async def perform_new(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """As updateSubGroup -c."""
    names = asked.masters_there(call, values["cluster"])
    config = form.changed(SubscriptionGroupConfig(group_name=values["group"]), values)
    done, failed = await cluster.outcomes(
        Admin(session), names, lambda admin, at: admin.update_subscription_group(at, config)
    )
    link = f"/groups/{quoted(values['group'])}"
    return [
        *linked(asked.done(done, names, call.text("has the group")), link),
        *asked.failed(map(str, failed.values()), names),
    ]


ROUTES = (
    Change(
        "/new/group",
        Permission.ADMINISTER,
        N_("Create a consumer group"),
        "",
        (Field("group", N_("Consumer group"), required=True, limit=255), CLUSTER, *form.FIELDS),
        plan_new,
        perform_new,
        initial=_new,
        check=_check_new,
    ),
)
