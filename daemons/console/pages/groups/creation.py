"""Creation of consumer groups."""

from mq.client.admin import Admin
from mq.client.operations import cluster
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.groups import settings_form as form
from mq.daemons.console.pages.subject_changes import CLUSTER, check_name, created, plan_new
from mq.daemons.console.route import N_, Change, Field, Outcome, Permission, Plan, Values
from mq.daemons.console.template_filters import quoted
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


async def _plan_new(call: Call, values: Values) -> Plan:
    return plan_new(
        call,
        values,
        "group",
        call.cluster.snapshot.group(values["group"]),
        made=N_("Consumer group %(group)s is created at %(count)s brokers: %(brokers)s."),
        overwritten=N_(
            "A group of this name exists at %(brokers)s: it is changed to the values below."
        ),
        command=form.command(values, values["group"]),
    )


async def _perform_new(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Perform updateSubGroup -c."""
    names = asked.masters_there(call, values["cluster"])
    config = form.changed(SubscriptionGroupConfig(group_name=values["group"]), values)
    done, failed = await cluster.outcomes(
        Admin(session), names, lambda admin, at: admin.update_subscription_group(at, config)
    )
    link = f"/groups/{quoted(values['group'])}"
    lines = map(str, failed.values())
    return created(done, lines, names, call.text("has the group"), link)


ROUTES = (
    Change(
        "/new/group",
        Permission.ADMINISTER,
        N_("Create a consumer group"),
        "",
        (Field("group", N_("Consumer group"), required=True, limit=255), CLUSTER, *form.FIELDS),
        _plan_new,
        _perform_new,
        initial=_new,
        check=_check_new,
    ),
)
