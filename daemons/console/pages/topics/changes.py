"""Changes of topics: create, settings, delete, where groups go on."""

from typing import Any

from mq.client.admin import Admin
from mq.client.caller import Caller
from mq.client.errors import MQError
from mq.client.operations import cluster
from mq.client.operations.errors import NotFound
from mq.client.operations.subjects import topics
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
from mq.protocol.bodies import TopicConfig
from mq.protocol.flags import permission_text
from mq.protocol.names import IllegalName, check_topic

MOST_QUEUES = 65_536  # what an id of a queue is counted to in brokers of either release
_TYPES = ("NORMAL", "DELAY", "FIFO", "TRANSACTION", "MIXED")  # TopicMessageType

_QUEUES = (
    Field("read_queues", N_("Read queues"), "integer", required=True),
    Field("write_queues", N_("Write queues"), "integer", required=True),
    Field(
        "perm",
        N_("Permission"),
        "choice",
        required=True,
        choices=(
            ("6", N_("read and write")),
            ("4", N_("read only")),
            ("2", N_("write only")),
        ),
    ),
    Field("order", N_("Ordered: its queues stay while a broker is away"), "flag"),
)
_ATTRIBUTES = Field(
    "attributes",
    N_("Other attributes"),
    help=N_("Of RocketMQ 5: +key=value sets one, -key removes one, with commas."),
)
_TYPE = Field(
    "message_type",
    N_("Messages"),
    "choice",
    choices=_TYPES,
    help=N_("Of RocketMQ 5, which refuses others; empty: as the broker has it."),
)
_CLUSTER = Field("cluster", N_("Cluster"), "choice", required=True, choices=asked.clusters)


def _check_queues(call: Call, values: Values) -> None:
    for name in ("read_queues", "write_queues"):
        if not 1 <= values[name] <= MOST_QUEUES:
            raise BadField(name, call.text("Expected 1 to %(most)s.", most=MOST_QUEUES))
    if values["attributes"]:
        topics.parse_attributes(values["attributes"])


def _attributes(values: Values) -> dict[str, str] | None:
    found = topics.parse_attributes(values["attributes"]) if values["attributes"] else {}
    if values["message_type"]:
        found["+message.type"] = values["message_type"]
    return found or None


# Create


async def _new(call: Call) -> Values:
    return {
        "cluster": next(iter(asked.clusters(call)), ""),
        **{"read_queues": 8, "write_queues": 8, "perm": "6"},
    }


def _check_new(call: Call, values: Values) -> None:
    try:
        check_topic(values["topic"])
    except IllegalName as error:
        raise BadField("topic", str(error)) from None
    if not call.may(Permission.ADMINISTER, topic=values["topic"]):
        raise Forbidden(call.text("You may not do this."))
    _check_queues(call, values)
    asked.masters_there(call, values["cluster"])


def _new_config(values: Values) -> TopicConfig:
    return TopicConfig(
        topic_name=values["topic"],
        read_queue_nums=values["read_queues"],
        write_queue_nums=values["write_queues"],
        perm=int(values["perm"]),
        order=values["order"],
        attributes=_attributes(values),
    )


async def plan_new(call: Call, values: Values) -> Plan:
    """Where it is made, and what there is under its name already."""
    names = asked.masters_there(call, values["cluster"])
    there = call.cluster.snapshot.topic(values["topic"])
    warning = ""
    if there is not None:
        line = N_("There is a topic of this name at %(brokers)s: it becomes as written here.")
        warning = call.text(line, brokers=", ".join(there.brokers))
    return Plan(
        (
            call.text(
                "Topic %(topic)s is made at %(count)s brokers: %(brokers)s.",
                topic=values["topic"],
                count=len(names),
                brokers=", ".join(row.name for row in names.values()),
            ),
        ),
        command=_command(values, ("-c", values["cluster"]), values["topic"]),
        warning=warning,
    )


def _command(values: Values, where: tuple[str, str], topic: str) -> tuple[str, ...]:
    words = ["updateTopic", *where, "-t", topic, "-r", str(values["read_queues"])]
    words += ["-w", str(values["write_queues"]), "-p", values["perm"]]
    words += ["-o", "true"] if values["order"] else []
    attributes = _attributes(values)
    if attributes:
        parts = (f"{key}={value}" if value else key for key, value in attributes.items())
        words += ["-a", ",".join(parts)]
    return tuple(words)


async def perform_new(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """As updateTopic -c."""
    names = asked.masters_there(call, values["cluster"])
    try:
        made = await topics.make_in_cluster(Admin(session), values["cluster"], _new_config(values))
    except MQError as error:
        return asked.raised(error, names)
    link = f"/topics/{quoted(values['topic'])}"
    return [
        *(Outcome(one.target, True, one.text, link) for one in _made(call, made, names)),
        *asked.failed(made.failures, names),
    ]


def _made(call: Call, made: topics.Made, names: dict[str, BrokerRow]) -> list[Outcome]:
    return asked.done(made.done, names, call.text("has the topic"))


# Settings


async def _brokers_with(call: Call, values: Values) -> dict[str, BrokerRow]:
    """The masters of the cluster that have the topic, or the one that is named."""
    topic = call.path["topic"]
    found = asked.masters_there(call, values["cluster"])
    if values["broker"]:
        found = {at: row for at, row in found.items() if row.name == values["broker"]}
        if not found:
            line = N_("No master of the cluster is called %(name)s.")
            raise BadField("broker", call.text(line, name=values["broker"]))
        return found
    known = call.cluster.snapshot.topic(topic)
    names = (
        set(known.brokers)
        if known
        else {broker.broker_name for broker in (await call.admin.topic_route(topic)).broker_datas}
    )
    found = {at: row for at, row in found.items() if row.name in names}
    if not found:
        line = N_("No master of cluster %(cluster)s has topic %(topic)s.")
        raise NotFound(call.text(line, cluster=values["cluster"], topic=topic))
    return found


async def _now(
    admin: Admin, topic: str, names: dict[str, BrokerRow]
) -> tuple[dict[str, TopicConfig | None], dict[str, MQError]]:
    return await cluster.outcomes(
        admin,
        names,
        cluster.within(DEADLINE, lambda each, at: topics.settings(each, at, topic)),
    )


async def _as_it_is(call: Call) -> Values:
    """The settings at the first broker that has the topic and answers."""
    topic = call.path["topic"]
    known = call.cluster.snapshot.topic(topic)
    names = asked.heads(call, known.brokers if known else None)
    done, _ = await _now(call.admin, topic, names)
    for address, config in done.items():
        if config is not None:
            return {
                "cluster": names[address].cluster,
                "read_queues": config.read_queue_nums,
                "write_queues": config.write_queue_nums,
                "perm": str(config.perm),
                "order": config.order,
                "message_type": (config.attributes or {}).get("message.type", ""),
            }
    raise NotFound(call.text("There is no topic %(name)s.", name=topic))


def _changed(config: TopicConfig, values: Values) -> TopicConfig:
    """What stays is what the form does not have: the unit flags, the filter type, attributes."""
    return TopicConfig(
        topic_name=config.topic_name,
        read_queue_nums=values["read_queues"],
        write_queue_nums=values["write_queues"],
        perm=int(values["perm"]),
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=values["order"],
        attributes=_attributes(values),
    )


async def plan_settings(call: Call, values: Values) -> Plan:
    """Broker by broker: what is, and what will be."""
    topic = call.path["topic"]
    names = await _brokers_with(call, values)
    done, failed = await _now(call.admin, topic, names)
    rows: list[tuple[Any, ...]] = []
    shrinks = False
    for address, config in done.items():
        name = names[address].name
        if config is None:
            rows.append((name, call.text("the topic is not there"), "", ""))
            continue
        shrinks |= values["read_queues"] < config.read_queue_nums
        for label, before, after in _differences(config, _changed(config, values)):
            rows.append((name, label, before, after))
    lines = [call.text("Settings of topic %(topic)s change as below.", topic=topic)]
    if not rows:
        lines = [call.text("Nothing changes: all brokers have these settings already.")]
    lines += [f"{names[at].name}: {error}" for at, error in failed.items()]
    warning = N_("Queues that are not read any more keep what waits in them, unread.")
    return Plan(
        tuple(lines),
        (asked.settings_table(call, rows),) if rows else (),
        _command(values, ("-c", values["cluster"]), topic),
        call.text(warning) if shrinks else "",
    )


def _differences(old: TopicConfig, new: TopicConfig) -> list[tuple[str, str, str]]:
    pairs = [
        ("readQueueNums", str(old.read_queue_nums), str(new.read_queue_nums)),
        ("writeQueueNums", str(old.write_queue_nums), str(new.write_queue_nums)),
        ("perm", permission_text(old.perm), permission_text(new.perm)),
        ("order", str(old.order).lower(), str(new.order).lower()),
    ]
    for change, value in (new.attributes or {}).items():
        key = change[1:]
        pairs.append((f"attributes {key}", (old.attributes or {}).get(key, ""), value))
    return [pair for pair in pairs if pair[1] != pair[2]]


async def perform_settings(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """As updateTopic -b at each broker, keeping there what the form does not have."""
    topic = call.path["topic"]
    admin = Admin(session)
    names = await _brokers_with(call, values)
    done, failed = await _now(admin, topic, names)
    found = asked.failed(map(str, failed.values()), names)
    # One after the other: each adds itself to what the name server knows of an ordered topic.
    for address, config in done.items():
        if config is None:
            line = call.text("the topic is not there")
            found.append(Outcome(f"{names[address].name} ({address})", False, line))
            continue
        try:
            await topics.make_at_broker(admin, address, _changed(config, values))
        except MQError as error:
            found += asked.failed([str(error)], names)
        else:
            found += asked.done([address], names, call.text("has the settings"))
    return found


# Delete


async def _home(call: Call) -> Values:
    known = call.cluster.snapshot.topic(call.path["topic"])
    homes = asked.clusters_of(call, known.brokers) if known else asked.clusters(call)
    return {"cluster": next(iter(homes), "")}


async def plan_delete(call: Call, values: Values) -> Plan:
    """What is lost."""
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
        line = N_("It stays in %(clusters)s.")
        lines.append(call.text(line, clusters=", ".join(sorted(others))))
    lines += [f"{names[at].name}: {error}" for at, error in failed.items()]
    groups = [
        (name, row.lag if row else None)
        for name in (known.groups if known else ())
        if call.sees_group(name)
        for row in [call.cluster.snapshot.group(name)]
    ]
    table = Sheet((call.text("Group"), call.text("Lag")), groups, call.text("Who reads it"))
    return Plan(
        tuple(lines),
        (table,) if groups else (),
        ("deleteTopic", "-c", values["cluster"], "-t", topic),
        call.text("Its messages cannot be had back."),
    )


async def perform_delete(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """As deleteTopic -c: at the masters of one cluster, then its route at the name servers."""
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


# Where groups go on


async def _skip_all(call: Call, values: Values, session: Caller) -> list[Outcome]:
    return await resets.perform(call, _to_the_end(values), session)


async def _plan_skip(call: Call, values: Values) -> Plan:
    planned = await resets.plan(call, _to_the_end(values))
    command = ("skipAccumulatedMessage", "-g", values["group"], "-t", call.path["topic"])
    return Plan(planned.lines, planned.tables, command, planned.warning)


def _to_the_end(values: Values) -> Values:
    return {
        **{"group": values["group"], "to": "latest", "time": None, "broker": None},
        **{"queue": None, "offset": None, "back": False, "offline": False},
    }


def _check_skip(call: Call, values: Values) -> None:
    resets.check(call, _to_the_end(values))


async def _group_asked(call: Call) -> Values:
    return {"group": call.query["group"], "to": "time"}


_GROUP = Field("group", N_("Consumer group"), required=True, limit=255)
_OF_GROUP = (Query("group", about=N_("The group that the form begins with."), default=""),)

ROUTES = (
    Change(
        "/new/topic",
        Permission.ADMINISTER,
        N_("Create a topic"),
        "",
        (
            Field("topic", N_("Topic"), required=True, limit=127),
            *(_CLUSTER, *_QUEUES, _TYPE, _ATTRIBUTES),
        ),
        plan_new,
        perform_new,
        initial=_new,
        check=_check_new,
    ),
    Change(
        "/topics/{topic}/settings",
        Permission.OPERATE,
        N_("Change the settings of a topic"),
        "topic",
        (
            _CLUSTER,
            Field(
                "broker",
                N_("Broker"),
                "choice",
                choices=asked.master_names,
                help=N_("Only there. Empty: all that have the topic."),
            ),
            *(*_QUEUES, _TYPE, _ATTRIBUTES),
        ),
        plan_settings,
        perform_settings,
        initial=_as_it_is,
        check=_check_queues,
    ),
    Change(
        "/topics/{topic}/delete",
        Permission.ADMINISTER,
        N_("Delete a topic"),
        "topic",
        (_CLUSTER,),
        plan_delete,
        perform_delete,
        initial=_home,
        destroys=lambda call, values: call.path["topic"],
    ),
    Change(
        "/topics/{topic}/reset",
        Permission.OPERATE,
        N_("Reset the offsets of a group in a topic"),
        "topic",
        (_GROUP, *resets.FIELDS),
        resets.plan,
        resets.perform,
        initial=_group_asked,
        query=_OF_GROUP,
        check=resets.check,
    ),
    Change(
        "/topics/{topic}/skip",
        Permission.OPERATE,
        N_("Skip all messages that wait for a group"),
        "topic",
        (_GROUP,),
        _plan_skip,
        _skip_all,
        initial=_group_asked,
        query=_OF_GROUP,
        check=_check_skip,
    ),
)
