"""Brokers: the list; statistics, settings and replication of each; changes of settings."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations import masking
from mq.client.operations.cluster import within
from mq.client.operations.errors import NotFound
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.charts.history_charts import (
    SPAN,
    ChartData,
    ChartLine,
    RenderedChart,
    drawn,
)
from mq.daemons.console.collector.snapshot import BrokerRow, ClusterRow
from mq.daemons.console.history.recording import broker_subject
from mq.daemons.console.pages import one_setting
from mq.daemons.console.pages.broker_queries import DEADLINE
from mq.daemons.console.parsing import choice
from mq.daemons.console.route import (
    N_,
    Change,
    Field,
    Outcome,
    Page,
    Permission,
    Plan,
    Query,
    Route,
    Sheet,
    Values,
)

TABS = ("status", "settings", "replication")


@dataclass(frozen=True, slots=True)
class BrokersData:
    """All brokers by cluster; unknown values are None."""

    at: int | None
    clusters: tuple[ClusterRow, ...]
    brokers: tuple[BrokerRow, ...]


async def brokers(call: Call) -> Page:
    """List the brokers of the cluster."""
    snapshot = call.cluster.snapshot
    sheet = Sheet(
        ("cluster", "brokerName", "brokerId", "brokerAddr", "role", "version", "inTps", "outTps",
         "inToday", "outToday", "inYesterday", "outYesterday", "diskRatio", "seen", "problem"),
        [
            (one.cluster, one.name, one.id, one.address, one.role, one.version, one.in_rate,
             one.out_rate, one.in_today, one.out_today, one.in_yesterday, one.out_yesterday,
             one.disk_used, one.seen, one.problem)
            for one in snapshot.brokers
        ],
    )  # fmt: skip
    return Page(
        "clusters/brokers.html",
        call.text("Brokers"),
        BrokersData(snapshot.at or None, snapshot.clusters, snapshot.brokers),
        command=("clusterList", *_name_servers(call)),
        sheet=sheet,
    )


@dataclass(frozen=True, slots=True)
class Figure:
    """A value of a broker's runtime information, as the broker sends it."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting, secrets masked. ``default`` is that of our broker; None if unknown.

    ``others`` are brokers of the cluster with other values.
    """

    key: str
    value: str
    default: str | None
    changed: bool
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A replica as its master sees it."""

    address: str | None
    acknowledged: int
    behind: int
    bytes_per_second: int
    in_sync: bool


@dataclass(frozen=True, slots=True)
class Replication:
    """The replication status of a broker of release 5; the rows of its replica set have the
    rest."""

    master: bool
    log_end: int
    in_sync: int | None
    replicas: tuple[ReplicaRow, ...]
    master_address: str | None
    bytes_per_second: int | None


@dataclass(frozen=True, slots=True)
class BrokerData:
    """One broker: its row, and the selected part. Parts that were not selected are None, and those
    that the broker did not send: then ``problem`` has the reason."""

    at: int | None
    broker: BrokerRow
    part: str
    runtime: tuple[Figure, ...] | None
    settings: tuple[SettingRow, ...] | None
    replication: Replication | None
    members: tuple[BrokerRow, ...]  # of its replica set
    charts: tuple[ChartData, ...]
    problem: str | None


async def broker(call: Call) -> Page:
    """Show one broker: statistics, settings or replication."""
    row = _row(call)
    part = call.query["part"]
    runtime: tuple[Figure, ...] | None = None
    settings: tuple[SettingRow, ...] | None = None
    replication: Replication | None = None
    problem: str | None = None
    charts: tuple[RenderedChart, ...] = ()
    words: tuple[str, ...] = ("brokerStatus", "-b", row.address)
    try:
        if part == "settings":
            words = ("getBrokerConfig", "-b", row.address)
            settings = await _settings(call, row)
        elif part == "replication":
            words = ("haStatus", "-b", row.address)
            replication = await _replication(call, row)
    except MQError as error:
        problem = str(error)
    if part == "status":
        table = call.cluster.snapshot.runtimes.get(row.address, {})
        runtime = tuple(Figure(key, table[key]) for key in sorted(table)) if table else None
        charts = await _charts(call, row)
    members = tuple(
        one
        for one in call.cluster.snapshot.brokers
        if (one.cluster, one.name) == (row.cluster, row.name)
    )
    data = BrokerData(
        call.cluster.snapshot.at or None, row, part, runtime, settings, replication, members,
        tuple(one.data for one in charts), problem,
    )  # fmt: skip
    pairs = [(one.key, one.value) for one in settings or runtime or ()]
    return Page(
        "clusters/broker.html",
        call.text("Broker %(name)s (%(id)d)", name=row.name, id=row.id),
        data,
        command=(*words, *_name_servers(call)),
        sheet=Sheet(("key", "value"), pairs),
        extra={"charts_drawn": charts, "tabs": TABS},
    )


def _row(call: Call) -> BrokerRow:
    """Return the broker of the path. Raises NotFound."""
    name, given = call.path["name"], call.path["id"]
    row = call.cluster.snapshot.broker(name, int(given)) if given.isdecimal() else None
    if row is None:
        raise NotFound(call.text("no broker %(name)s with the id %(id)s", name=name, id=given))
    return row


async def _settings(call: Call, row: BrokerRow) -> tuple[SettingRow, ...]:
    """Return its settings, compared with those of other answering brokers of its cluster."""
    others = [
        one
        for one in call.cluster.snapshot.brokers
        if one.cluster == row.cluster and one.address != row.address and one.alive
    ][:_COMPARED]
    own, *rest = await asyncio.gather(
        _config(call, row.address),
        *(_config_or_nothing(call, one.address) for one in others),
    )
    return _rows(own, {one.name: table for one, table in zip(others, rest, strict=True)})


_COMPARED = 10  # other brokers whose settings are compared
# Settings that differ at every broker.
_OWN = frozenset(
    ("brokerName", "brokerId", "brokerIP1", "brokerIP2", "listenPort", "haListenPort", "brokerRole",
     "haMasterAddress", "metricsPort", "rocketmqHome", "brokerConfigPath")
)  # fmt: skip


async def _config(call: Call, address: str) -> dict[str, str]:
    return await within(DEADLINE, Admin.broker_config)(call.admin, address)


async def _config_or_nothing(call: Call, address: str) -> dict[str, str]:
    try:
        return await _config(call, address)
    except MQError:
        return {}


def _rows(
    own: Mapping[str, str], others: Mapping[str, Mapping[str, str]]
) -> tuple[SettingRow, ...]:
    defaults = _defaults()
    found = []
    for key, value in sorted(masking.fields(own).items()):
        secret = masking.is_secret(key, own[key])
        default = None if secret else defaults.get(key)
        differ = () if key in _OWN or "path" in key.lower() or secret else tuple(
            name for name, table in others.items() if key in table and table[key] != own[key]
        )  # fmt: skip
        changed = default is not None and default != own[key]
        found.append(SettingRow(key, value, default, changed, differ))
    return tuple(found)


@cache
def _defaults() -> Mapping[str, str]:
    """Return the defaults of our broker, which are Java's."""
    from mq.daemons.broker.config import BrokerSettings

    sections = BrokerSettings().sections
    return {name: value for one in sections for name, value in one.properties()}


async def _replication(call: Call, row: BrokerRow) -> Replication:
    info = await within(DEADLINE, Admin.ha_status)(call.admin, row.address)
    own = info.ha_client_runtime_info
    if not info.master:
        return Replication(
            False, own.max_offset, None, (), own.master_addr, own.transferred_byte_in_second
        )
    replicas = tuple(
        ReplicaRow(
            one.addr, one.slave_ack_offset, one.diff, one.transferred_byte_in_second, one.in_sync
        )
        for one in info.ha_connection_info
    )
    end = info.master_commit_log_max_offset
    return Replication(True, end, info.in_sync_slave_nums, replicas, None, None)


async def _charts(call: Call, row: BrokerRow) -> tuple[RenderedChart, ...]:
    subject = broker_subject(row)

    def wanted(name: str, figure: str, factor: float = 1.0) -> ChartLine:
        return ChartLine(name, "broker", subject, figure, factor)

    rates = [wanted(call.text("in"), "in_rate"), wanted(call.text("out"), "out_rate")]
    return (
        await drawn(
            call, "rates", call.text("Messages per second"), call.text("messages/s"), rates
        ),
        await drawn(call, "disk", call.text("Disk used"), "%",
                    [wanted(call.text("fullest disk"), "disk_used", 100.0)]),
        await drawn(call, "answer", call.text("Response time to the console"), "ms",
                    [wanted(call.text("response"), "response_ms")]),
    )  # fmt: skip


# changes -----------------------------------------------------------------------------------------


async def _setting_plan(call: Call, values: Values) -> Plan:
    row = _row(call)
    key = values["key"]
    own = await call.admin.broker_config(row.address)
    before = own.get(key)
    if before is None:
        raise NotFound(call.text("broker %(name)s has no setting %(key)s", name=row.name, key=key))
    return one_setting.plan(
        call,
        values,
        before,
        (
            N_("%(key)s of broker %(name)s (%(id)d): %(old)s → %(new)s"),
            call.text("The broker saves it in its configuration file."),
        ),
        ("updateBrokerConfig", "-b", row.address, *_name_servers(call)),
        name=row.name,
        id=row.id,
    )


async def _set(call: Call, values: Values, session: Caller) -> list[Outcome]:
    row = _row(call)
    key, value = values["key"], values["value"] or ""
    note = await Admin(session).update_broker_config(row.address, {key: value})
    path = f"/brokers/{call.path['name']}/{row.id}"
    text = call.text("%(key)s changed", key=key) + (f" ({note})" if note else "")
    return [Outcome(f"{row.name} ({row.id})", True, text, f"{path}?part=settings")]


async def _writing_plan(call: Call, values: Values) -> Plan:
    name, stop = _name(call), values["writing"] == "stop"
    servers = tuple(one.address for one in call.cluster.snapshot.name_servers)
    if stop:
        line = call.text("Producers do not send to broker %(name)s any more.", name=name)
        more = call.text(
            "Consumers continue, so that the broker is drained. A topic that changes becomes "
            "writable again."
        )
    else:
        line = call.text("Producers send to broker %(name)s again.", name=name)
        more = call.text("Each topic gets back its permission at the broker.")
    verb = "wipeWritePerm" if stop else "addWritePerm"
    at = call.text("At name servers: %(servers)s", servers=", ".join(servers))
    return Plan((line, more, at), (), (verb, "-b", name, *_name_servers(call)))


async def _write(call: Call, values: Values, session: Caller) -> list[Outcome]:
    admin, name = Admin(session), _name(call)
    act = admin.wipe_write_permission if values["writing"] == "stop" else admin.add_write_permission
    outcomes = []
    for server in call.cluster.snapshot.name_servers:
        try:
            count = await act(server.address, name)
        except MQError as error:
            outcomes.append(Outcome(server.address, False, str(error)))
        else:
            text = call.number_text("%(num)d topic", "%(num)d topics", count)
            outcomes.append(Outcome(server.address, True, text))
    return outcomes


def _name(call: Call) -> str:
    """Return the broker name of the path. Raises NotFound."""
    name = call.path["name"]
    if not any(one.name == name for one in call.cluster.snapshot.brokers):
        raise NotFound(call.text("no broker %(name)s", name=name))
    return name


def _name_servers(call: Call) -> tuple[str, str]:
    return "-n", ";".join(call.cluster.session.name_servers)


ROUTES = (
    Route(
        "/brokers",
        brokers,
        Permission.READ,
        N_("The brokers of the cluster: addresses, releases, rates."),
        menu=N_("Brokers"),
        data=BrokersData,
    ),
    Route(
        "/brokers/{name}/{id}",
        broker,
        Permission.READ,
        N_("One broker: statistics, settings, replication."),
        query=(Query("part", choice(*TABS), "status", N_("The statistics to show.")), SPAN),
        data=BrokerData,
    ),
    Change(
        "/brokers/{name}/{id}/setting",
        Permission.OPERATE,
        N_("Change a setting of a broker"),
        "",
        one_setting.FIELDS,
        _setting_plan,
        _set,
        initial=one_setting.initial,
        query=one_setting.QUERY,
        check=one_setting.check,
    ),
    Change(
        "/broker-sets/{name}/writing",
        Permission.OPERATE,
        N_("Add or remove the write permission of a broker"),
        "",
        (
            Field(
                "writing",
                N_("Producers"),
                "choice",
                required=True,
                choices=(
                    ("stop", N_("no longer receive sends")),
                    ("allow", N_("receive sends again")),
                ),
            ),
        ),
        _writing_plan,
        _write,
    ),
)
