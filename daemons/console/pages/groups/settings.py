"""Changes of consumer groups' settings: all of them, or whether they may consume."""

from collections.abc import Callable
from typing import Any

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations import cluster
from mq.client.operations.errors import NotFound
from mq.client.operations.subjects import groups
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.groups import settings_form as form
from mq.daemons.console.pages.subject_changes import CLUSTER, first_cluster, settings_at
from mq.daemons.console.route import N_, Change, Outcome, Permission, Plan, Sheet, Values
from mq.protocol.bodies import SubscriptionGroupConfig

_Changing = Callable[[SubscriptionGroupConfig], SubscriptionGroupConfig]


async def _now(
    admin: Admin, group: str, names: dict[str, BrokerRow]
) -> tuple[dict[str, SubscriptionGroupConfig | None], dict[str, MQError]]:
    return await settings_at(admin, names, lambda each, at: groups.settings(each, at, group))


async def _as_it_is(call: Call) -> Values:
    """Return the settings at the first broker that has the group and answers."""
    group = call.path["group"]
    known = call.cluster.snapshot.group(group)
    names = asked.heads(call, known.brokers if known and known.brokers else None)
    done, _ = await _now(call.admin, group, names)
    for address, config in done.items():
        if config is not None:
            orderly = config.consume_message_orderly
            return {
                "cluster": names[address].cluster,
                **{name: getattr(config, name) for name in form.PLAIN},
                "consume_message_orderly": None if orderly is None else str(orderly).lower(),
            }
    raise NotFound(call.text("There is no consumer group %(name)s.", name=group))


async def _planned(call: Call, values: Values, change: _Changing) -> tuple[list[str], list[Sheet]]:
    """Return lines and a table of the changes, broker by broker."""
    names = asked.masters_there(call, values["cluster"])
    done, failed = await _now(call.admin, call.path["group"], names)
    rows: list[tuple[Any, ...]] = []
    absent = []
    for address, config in done.items():
        if config is None:
            absent.append(names[address].name)
            continue
        before, after = config.to_plain(), change(config).to_plain()
        for name in {**before, **after}:
            if name == "attributes" and not after.get(name):
                continue  # they stay the same
            if before.get(name) != after.get(name):
                row = (names[address].name, name, before.get(name), after.get(name))
                rows.append(tuple("" if one is None else str(one) for one in row))
    lines = [f"{names[at].name}: {error}" for at, error in failed.items()]
    if absent:
        line = N_("The group does not exist at %(brokers)s, which does not change.")
        lines.append(call.text(line, brokers=", ".join(absent)))
    if not rows:
        lines.insert(0, call.text("Nothing changes: all brokers have these settings already."))
    table = asked.settings_table(call, rows)
    return lines, [table] if rows else []


async def _write(
    call: Call, values: Values, session: Caller, change: _Changing, text: str
) -> list[Outcome]:
    """Change the settings at each master of the cluster that has the group."""
    group = call.path["group"]
    names = asked.masters_there(call, values["cluster"])
    admin = Admin(session)
    now, unread = await _now(admin, group, names)
    configs = {at: change(config) for at, config in now.items() if config is not None}
    if not configs and not unread:
        line = N_("No master of cluster %(cluster)s has consumer group %(group)s.")
        raise NotFound(call.text(line, cluster=values["cluster"], group=group))
    done, failed = await cluster.outcomes(
        admin, configs, lambda each, at: each.update_subscription_group(at, configs[at])
    )
    return [
        *asked.done(done, names, text),
        *asked.failed(map(str, [*unread.values(), *failed.values()]), names),
    ]


async def plan_settings(call: Call, values: Values) -> Plan:
    """Plan the change broker by broker, before and after."""
    lines, tables = await _planned(call, values, lambda config: form.changed(config, values))
    group = call.path["group"]
    first = call.text("Settings of consumer group %(group)s change as below.", group=group)
    return Plan(
        tuple([first, *lines] if tables else lines), tuple(tables), form.command(values, group)
    )


async def perform_settings(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Perform updateSubGroup -b at each broker; settings that are not in the form stay the same."""
    text = call.text("has the settings")
    return await _write(call, values, session, lambda config: form.changed(config, values), text)


# Pause and resume


async def _home(call: Call) -> Values:
    known = call.cluster.snapshot.group(call.path["group"])
    return {"cluster": first_cluster(call, known)}


def _enabled(value: bool) -> _Changing:
    def change(config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        kept = {**config.__dict__, "consume_enable": value, "attributes": None}
        return SubscriptionGroupConfig(**kept)

    return change


async def plan_pause(call: Call, values: Values) -> Plan:
    """Plan the pause: connected members, and the current lag."""
    return await _plan_enabling(call, values, False)


async def plan_resume(call: Call, values: Values) -> Plan:
    """Plan the resumption."""
    return await _plan_enabling(call, values, True)


async def _plan_enabling(call: Call, values: Values, value: bool) -> Plan:
    group = call.path["group"]
    lines, tables = await _planned(call, values, _enabled(value))
    known = call.cluster.snapshot.group(group)
    first = N_("Consumer group %(group)s continues where it stopped.")
    warning = ""
    if not value:
        first = N_("Consumer group %(group)s receives no more messages; its offsets stay.")
        if known is not None and known.members:
            line = N_(
                "%(count)s members are connected; they still consume messages already pulled."
            )
            warning = call.text(line, count=known.members)
    return Plan(
        (call.text(first, group=group), *lines),
        tuple(tables),
        (),  # updateSubGroup would set all other settings, too
        warning,
    )


async def perform_pause(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Disable consumeEnable; other settings stay the same."""
    return await _write(call, values, session, _enabled(False), call.text("paused"))


async def perform_resume(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Enable consumeEnable; other settings stay the same."""
    return await _write(call, values, session, _enabled(True), call.text("resumed"))


ROUTES = (
    Change(
        "/groups/{group}/settings",
        Permission.OPERATE,
        N_("Change the settings of a consumer group"),
        "group",
        (CLUSTER, *form.FIELDS),
        plan_settings,
        perform_settings,
        initial=_as_it_is,
        check=form.check,
    ),
    Change(
        "/groups/{group}/pause",
        Permission.OPERATE,
        N_("Pause a consumer group"),
        "group",
        (CLUSTER,),
        plan_pause,
        perform_pause,
        initial=_home,
    ),
    Change(
        "/groups/{group}/resume",
        Permission.OPERATE,
        N_("Resume a consumer group"),
        "group",
        (CLUSTER,),
        plan_resume,
        perform_resume,
        initial=_home,
    ),
)
