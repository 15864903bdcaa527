"""Changes of consumer groups: create, settings, pause and resume, delete, other offsets."""

from collections.abc import Callable
from typing import Any

from mq.client.admin import Admin
from mq.client.caller import Caller
from mq.client.errors import MQError
from mq.client.operations import cluster
from mq.client.operations.errors import NotFound
from mq.client.operations.subjects import groups, topics
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow
from mq.daemons.console.guarded_session import Forbidden
from mq.daemons.console.pages import brokers_asked as asked
from mq.daemons.console.pages import resets
from mq.daemons.console.pages.brokers_asked import DEADLINE
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import (
    N_,
    Change,
    Field,
    Outcome,
    Permission,
    Plan,
    Query,
    Sheet,
    Values,
)
from mq.daemons.console.showing import quoted
from mq.protocol.bodies import GroupRetryPolicy, SubscriptionGroupConfig
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.names import IllegalName, check_group

_Changing = Callable[[SubscriptionGroupConfig], SubscriptionGroupConfig]

MOST_RETRIES = 10_000
MOST_QUEUES = 1000

_CLUSTER = Field("cluster", N_("Cluster"), "choice", required=True, choices=asked.clusters)
_SETTINGS = (
    Field("retry_max_times", N_("Retries before dead letters"), "integer", required=True),
    Field("retry_queue_nums", N_("Queues of its retry topic"), "integer", required=True),
    Field("consume_enable", N_("May consume"), "flag"),
    Field("consume_broadcast_enable", N_("May broadcast"), "flag"),
    Field("consume_from_min_enable", N_("May begin at the oldest"), "flag"),
    Field(
        "notify_consumer_ids_changed_enable",
        N_("Members are told when others come and go"),
        "flag",
    ),
    Field("broker_id", N_("Id of the broker to read from"), "integer", required=True),
    Field(
        "which_broker_when_consume_slowly",
        N_("Id of the broker for those far behind"),
        "integer",
        required=True,
    ),
    Field(
        "consume_message_orderly",
        N_("In order"),
        "choice",
        choices=(("true", N_("yes")), ("false", N_("no"))),
        help=N_("Of RocketMQ 5; empty: as the broker has it."),
    ),
    Field(
        "group_retry_policy",
        N_("Delays of retries"),
        help=N_(
            "Of RocketMQ 5, as JSON in ms: "
            '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}'
        ),
    ),
    Field(
        "attributes",
        N_("Other attributes"),
        help=N_("Of RocketMQ 5: +key=value sets one, -key removes one, with commas."),
    ),
)
_PLAIN = (
    *("retry_max_times", "retry_queue_nums", "consume_enable", "consume_broadcast_enable"),
    *("consume_from_min_enable", "notify_consumer_ids_changed_enable", "broker_id"),
    "which_broker_when_consume_slowly",
)


def _check_settings(call: Call, values: Values) -> None:
    limits = {"retry_max_times": (-1, MOST_RETRIES), "retry_queue_nums": (0, MOST_QUEUES)}
    limits |= dict.fromkeys(("broker_id", "which_broker_when_consume_slowly"), (0, 2**31 - 1))
    for name, (least, most) in limits.items():
        if not least <= values[name] <= most:
            line = call.text("Expected %(least)s to %(most)s.", least=least, most=most)
            raise BadField(name, line)
    if values["attributes"]:
        topics.parse_attributes(values["attributes"])
    _policy(values)


def _policy(values: Values) -> GroupRetryPolicy | None:
    if not values["group_retry_policy"]:
        return None
    try:
        return GroupRetryPolicy.decode(values["group_retry_policy"].encode())
    except RemoteProtocolError as error:
        raise BadField("group_retry_policy", str(error)) from None


def _with(config: SubscriptionGroupConfig, values: Values) -> SubscriptionGroupConfig:
    """The settings with what the form has. Attributes are changes: without any they stay."""
    kept: dict[str, Any] = {**config.__dict__, **{name: values[name] for name in _PLAIN}}
    kept["attributes"] = None
    if values["attributes"]:
        kept["attributes"] = topics.parse_attributes(values["attributes"])
    if values["consume_message_orderly"]:
        kept["consume_message_orderly"] = values["consume_message_orderly"] == "true"
    policy = _policy(values)
    if policy is not None:
        kept["group_retry_policy"] = policy
    return SubscriptionGroupConfig(**kept)


async def _now(
    admin: Admin, group: str, names: dict[str, BrokerRow]
) -> tuple[dict[str, SubscriptionGroupConfig | None], dict[str, MQError]]:
    return await cluster.outcomes(
        admin,
        names,
        cluster.within(DEADLINE, lambda each, at: groups.settings(each, at, group)),
    )


# Create


async def _new(call: Call) -> Values:
    usual = SubscriptionGroupConfig(consume_from_min_enable=False, consume_broadcast_enable=False)
    return {
        "cluster": next(iter(asked.clusters(call)), ""),
        **{name: getattr(usual, name) for name in _PLAIN},
    }


def _check_new(call: Call, values: Values) -> None:
    try:
        check_group(values["group"])
    except IllegalName as error:
        raise BadField("group", str(error)) from None
    if not call.may(Permission.ADMINISTER, group=values["group"]):
        raise Forbidden(call.text("You may not do this."))
    _check_settings(call, values)
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
    command = _command(values, values["group"])
    return Plan((line,), command=command, warning=warning)


def _command(values: Values, group: str) -> tuple[str, ...]:
    words = ["updateSubGroup", "-c", values["cluster"], "-g", group]
    for option, name in (("-s", "consume_enable"), ("-m", "consume_from_min_enable")):
        words += [option, str(values[name]).lower()]
    words += ["-d", str(values["consume_broadcast_enable"]).lower()]
    words += ["-q", str(values["retry_queue_nums"]), "-r", str(values["retry_max_times"])]
    words += ["-i", str(values["broker_id"])]
    words += ["-w", str(values["which_broker_when_consume_slowly"])]
    words += ["-a", str(values["notify_consumer_ids_changed_enable"]).lower()]
    for option, name in (
        *(("-o", "consume_message_orderly"), ("-p", "group_retry_policy")),
        ("--attributes", "attributes"),
    ):
        words += [option, values[name]] if values[name] else []
    return tuple(words)


async def perform_new(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """As updateSubGroup -c."""
    names = asked.masters_there(call, values["cluster"])
    config = _with(SubscriptionGroupConfig(group_name=values["group"]), values)
    done, failed = await cluster.outcomes(
        Admin(session), names, lambda admin, at: admin.update_subscription_group(at, config)
    )
    link = f"/groups/{quoted(values['group'])}"
    return [
        *(
            Outcome(one.target, True, one.text, link)
            for one in asked.done(done, names, call.text("has the group"))
        ),
        *asked.failed(map(str, failed.values()), names),
    ]


# Settings


async def _as_it_is(call: Call) -> Values:
    """The settings at the first broker that has the group and answers."""
    group = call.path["group"]
    known = call.cluster.snapshot.group(group)
    names = asked.heads(call, known.brokers if known and known.brokers else None)
    done, _ = await _now(call.admin, group, names)
    for address, config in done.items():
        if config is not None:
            orderly = config.consume_message_orderly
            return {
                "cluster": names[address].cluster,
                **{name: getattr(config, name) for name in _PLAIN},
                "consume_message_orderly": None if orderly is None else str(orderly).lower(),
            }
    raise NotFound(call.text("There is no consumer group %(name)s.", name=group))


async def _planned(call: Call, values: Values, change: _Changing) -> tuple[list[str], list[Sheet]]:
    """Lines and a table of what changes, broker by broker."""
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
                continue  # they stay
            if before.get(name) != after.get(name):
                row = (names[address].name, name, before.get(name), after.get(name))
                rows.append(tuple("" if one is None else str(one) for one in row))
    lines = [f"{names[at].name}: {error}" for at, error in failed.items()]
    if absent:
        line = N_("The group is not at %(brokers)s, and stays so.")
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
    """Broker by broker: what is, and what will be."""
    lines, tables = await _planned(call, values, lambda config: _with(config, values))
    group = call.path["group"]
    first = call.text("Settings of consumer group %(group)s change as below.", group=group)
    return Plan(tuple([first, *lines] if tables else lines), tuple(tables), _command(values, group))


async def perform_settings(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """As updateSubGroup -b at each broker, keeping there what the form does not have."""
    text = call.text("has the settings")
    return await _write(call, values, session, lambda config: _with(config, values), text)


# Pause and resume


def _enabled(value: bool) -> _Changing:
    def change(config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        kept = {**config.__dict__, "consume_enable": value, "attributes": None}
        return SubscriptionGroupConfig(**kept)

    return change


async def plan_pause(call: Call, values: Values) -> Plan:
    """Whom it stops, and what is behind already."""
    return await _plan_enabling(call, values, False)


async def plan_resume(call: Call, values: Values) -> Plan:
    """What goes on."""
    return await _plan_enabling(call, values, True)


async def _plan_enabling(call: Call, values: Values, value: bool) -> Plan:
    group = call.path["group"]
    lines, tables = await _planned(call, values, _enabled(value))
    known = call.cluster.snapshot.group(group)
    first = N_("Consumer group %(group)s goes on where it stopped.")
    warning = ""
    if not value:
        first = N_("Consumer group %(group)s gets no more messages; its offsets stay.")
        if known is not None and known.members:
            line = N_("%(count)s members are connected; what they hold they still consume.")
            warning = call.text(line, count=known.members)
    return Plan(
        (call.text(first, group=group), *lines),
        tuple(tables),
        (),  # updateSubGroup would set all other settings as well
        warning,
    )


async def perform_pause(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Take consumeEnable away, and leave all else."""
    return await _write(call, values, session, _enabled(False), call.text("paused"))


async def perform_resume(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Give consumeEnable back, and leave all else."""
    return await _write(call, values, session, _enabled(True), call.text("goes on"))


# Delete


async def _home(call: Call) -> Values:
    known = call.cluster.snapshot.group(call.path["group"])
    homes = asked.clusters_of(call, known.brokers) if known else asked.clusters(call)
    return {"cluster": next(iter(homes), ""), "clean_offset": False}


async def plan_delete(call: Call, values: Values) -> Plan:
    """What is lost, and who is still there."""
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
        if row is not None and row.stored:
            line = N_("%(count)s messages of %(topic)s are lost.")
            lines.append(call.text(line, count=row.stored, topic=topic))
    kept = N_("Its offsets stay: if it is made again it goes on where it was.")
    gone = N_("Its offsets are forgotten, too.")
    # Apart: a release of Babel takes any string within the call for a text.
    forgets = values["clean_offset"]
    lines.append(call.text(gone if forgets else kept))
    lines += [f"{row.name}: {row.problem}" for row in names.values() if row.problem]
    warning = ""
    if known is not None and known.members:
        line = N_("%(count)s members are connected: they may make it again at once.")
        warning = call.text(line, count=known.members)
    command = ["deleteSubGroup", "-c", values["cluster"], "-g", group]
    command += ["-r", "true"] if values["clean_offset"] else []
    return Plan(tuple(lines), (), tuple(command), warning)


async def perform_delete(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """As deleteSubGroup -c: at the masters of one cluster."""
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
    for topic, gone in removed.topics:
        text = call.text("%(topic)s deleted", topic=topic)
        found += asked.done([address for _, address, _ in gone.rows], names, text)
    known = call.cluster.snapshot.group(call.path["group"])
    return [
        *found,
        *asked.failed(removed.failures, names),
        *asked.away(call, names, info, known.brokers if known else None),
    ]


# Where it goes on


async def _topic_asked(call: Call) -> Values:
    return {"topic": call.query["topic"], "to": "time"}


def _group_of(call: Call, values: Values) -> str:
    return call.path["group"]


_IN_CLUSTER = (_CLUSTER,)

ROUTES = (
    Change(
        "/new/group",
        Permission.ADMINISTER,
        N_("Create a consumer group"),
        "",
        (Field("group", N_("Consumer group"), required=True, limit=255), _CLUSTER, *_SETTINGS),
        plan_new,
        perform_new,
        initial=_new,
        check=_check_new,
    ),
    Change(
        "/groups/{group}/settings",
        Permission.OPERATE,
        N_("Change the settings of a consumer group"),
        "group",
        (_CLUSTER, *_SETTINGS),
        plan_settings,
        perform_settings,
        initial=_as_it_is,
        check=_check_settings,
    ),
    Change(
        "/groups/{group}/pause",
        Permission.OPERATE,
        N_("Pause a consumer group"),
        "group",
        _IN_CLUSTER,
        plan_pause,
        perform_pause,
        initial=_home,
    ),
    Change(
        "/groups/{group}/resume",
        Permission.OPERATE,
        N_("Let a consumer group go on"),
        "group",
        _IN_CLUSTER,
        plan_resume,
        perform_resume,
        initial=_home,
    ),
    Change(
        "/groups/{group}/delete",
        Permission.ADMINISTER,
        N_("Delete a consumer group"),
        "group",
        (_CLUSTER, Field("clean_offset", N_("Forget how far it has come, too"), "flag")),
        plan_delete,
        perform_delete,
        initial=_home,
        destroys=_group_of,
    ),
    Change(
        "/groups/{group}/reset",
        Permission.OPERATE,
        N_("Reset the offsets of a consumer group"),
        "group",
        (Field("topic", N_("Topic"), required=True, limit=255), *resets.FIELDS),
        resets.plan,
        resets.perform,
        initial=_topic_asked,
        query=(Query("topic", default="", about=N_("The topic that the form begins with.")),),
        check=resets.check,
    ),
)
