"""Changing settings of topics."""

from typing import Any

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations.errors import NotFound
from mq.client.operations.subjects import topics
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.subject_changes import CLUSTER, settings_at
from mq.daemons.console.pages.topics import settings_form as form
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import N_, Change, Field, Outcome, Permission, Plan, Values
from mq.protocol.bodies import TopicConfig
from mq.protocol.flags import permission_text


async def _brokers_with(call: Call, values: Values) -> dict[str, BrokerRow]:
    """Return the masters of the cluster that have the topic, or the named one."""
    topic = call.path["topic"]
    found = asked.masters_there(call, values["cluster"])
    if values["broker"]:
        found = {at: row for at, row in found.items() if row.name == values["broker"]}
        if not found:
            line = N_("No master of the cluster is named %(name)s.")
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
    return await settings_at(admin, names, lambda each, at: topics.settings(each, at, topic))


async def _as_it_is(call: Call) -> Values:
    """Return the settings of the first broker that has the topic and answers."""
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
    """Keep all settings that are not in the form: the unit flags, the filter type, attributes."""
    return TopicConfig(
        topic_name=config.topic_name,
        read_queue_nums=values["read_queues"],
        write_queue_nums=values["write_queues"],
        perm=int(values["perm"]),
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=values["order"],
        attributes=form.attributes(values),
    )


async def plan_settings(call: Call, values: Values) -> Plan:
    """Plan the settings before and after, per broker."""
    topic = call.path["topic"]
    names = await _brokers_with(call, values)
    done, failed = await _now(call.admin, topic, names)
    rows: list[tuple[Any, ...]] = []
    shrinks = False
    for address, config in done.items():
        name = names[address].name
        if config is None:
            rows.append((name, call.text("the topic does not exist"), "", ""))
            continue
        shrinks |= values["read_queues"] < config.read_queue_nums
        for label, before, after in _differences(config, _changed(config, values)):
            rows.append((name, label, before, after))
    lines = [call.text("Settings of topic %(topic)s change as below.", topic=topic)]
    if not rows:
        lines = [call.text("Nothing changes: all brokers have these settings already.")]
    lines += [f"{names[at].name}: {error}" for at, error in failed.items()]
    warning = N_("Queues that are no longer read keep their unconsumed messages.")
    return Plan(
        tuple(lines),
        (asked.settings_table(call, rows),) if rows else (),
        form.command(values, topic, next(iter(names)) if values["broker"] else None),
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
    """Change them as updateTopic -b does at each broker, and keep settings that are not in the
    form.
    """
    topic = call.path["topic"]
    admin = Admin(session)
    names = await _brokers_with(call, values)
    done, failed = await _now(admin, topic, names)
    found = asked.failed(map(str, failed.values()), names)
    # One after the other: each adds its part to the name server's order configuration of the topic.
    for address, config in done.items():
        if config is None:
            line = call.text("the topic does not exist")
            found.append(Outcome(f"{names[address].name} ({address})", False, line))
            continue
        try:
            await topics.make_at_broker(admin, address, _changed(config, values))
        except MQError as error:
            found += asked.failed([str(error)], names)
        else:
            found += asked.done([address], names, call.text("has the settings"))
    return found


ROUTES = (
    Change(
        "/topics/{topic}/settings",
        Permission.OPERATE,
        N_("Change the settings of a topic"),
        "topic",
        (
            CLUSTER,
            Field(
                "broker",
                N_("Broker"),
                "choice",
                choices=asked.master_names,
                help=N_("Only at this broker. Empty: all that have the topic."),
            ),
            *form.FIELDS,
        ),
        plan_settings,
        perform_settings,
        initial=_as_it_is,
        check=form.check,
    ),
)
