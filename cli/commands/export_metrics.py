"""`mq exportMetrics`: the load of a cluster, in a file. Format: ExportMetricsCommand."""

from typing import TYPE_CHECKING, Any

from mq.cli.commands.export import Cluster, user_groups, user_topics
from mq.cli.commands.stats import day_sum
from mq.cli.machine.export_files import COLUMNS, PRINTED, FilePath, export
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.options import subject
from mq.cli.show.result import Result
from mq.client.operations import cluster
from mq.protocol.names import SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mq.client.admin import Admin

COMMANDS = {"export": ("exportMetrics",)}

_RATES = ("normalInTps", "normalOutTps", "transInTps", "scheduleInTps")
_COUNTS = ("normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum")


@writes
@gives(COLUMNS, data=PRINTED)
@subject("cluster_name")
async def export_metrics(call: Call, cluster_name: Cluster, file_path: FilePath = None) -> Result:
    """Write rates, counts, disk use and client releases of a cluster's masters to metrics.json.

    Examples:
        mq exportMetrics DefaultCluster -f -       rates and counts, to standard output
        mq exportMetrics DefaultCluster -f export  to a directory
    """
    async with call.admin() as admin:
        info = await cluster.clusters(admin.session)
        masters = cluster.masters(info, cluster_name)
        unseen: dict[str, str] = {}
        reports, failures = await cluster.at_each(
            admin, masters, lambda each, address: _report(each, address, unseen)
        )
    failures += [f"clients of group {group}: {why}" for group, why in sorted(unseen.items())]
    brokers = {cluster.broker_name(info, address): report for address, report in reports.items()}
    quotas = [report["runtimeQuota"] for report in brokers.values()]
    rates = _sums(_RATES, (quota["tps"] for quota in quotas))
    document = {
        "evaluateReport": brokers,
        "totalData": {
            "totalTps": {f"total{key[0].upper()}{key[1:]}": rates[key] for key in _RATES},
            "totalOneDayNum": _sums(_COUNTS, (quota["oneDayNum"] for quota in quotas)),
        },
    }
    return export(call, file_path, "metrics.json", document, failures)


def _sums(keys: tuple[str, ...], tables: "Iterable[Mapping[str, float]]") -> dict[str, float]:
    found = list(tables)
    return {key: sum(table[key] for table in found) for key in keys}


async def _report(admin: "Admin", address: str, unseen: dict[str, str]) -> dict[str, Any]:
    """Return the machine, load and clients of a broker; `unseen` as in `_clients`."""
    runtime = await admin.broker_runtime_info(address)
    settings = await admin.broker_config(address)
    groups = (await user_groups(admin, address)).subscription_group_table
    topics = (await user_topics(admin, address)).topic_config_table
    quota = {
        "diskRatio": _kept(runtime, "commitLogDiskRatio", "consumeQueueDiskRatio"),
        **await _load(admin, address, runtime),
        **_kept(runtime, "putMessageAverageSize"),
        "topicSize": len(topics),
        "groupSize": len(groups),
    }
    if "putMessageAverageSize" in quota:
        quota["messageAverageSize"] = quota.pop("putMessageAverageSize")
    environment = {"cpuNum": settings.get("clientCallbackExecutorThreads")}
    return {
        # A figure that a release does not report has no entry, as in Java's map.
        "runtimeEnv": {
            **{key: value for key, value in environment.items() if value is not None},
            **_kept(runtime, "totalMemKBytes"),
        },
        "runtimeQuota": quota,
        "runtimeVersion": {
            "rocketmqVersion": runtime.get("brokerVersionDesc", ""),
            "clientInfo": await _clients(admin, groups, unseen),
        },
    }


def _kept(table: "Mapping[str, str]", *keys: str) -> dict[str, Any]:
    return {key: table[key] for key in keys if key in table}


async def _load(admin: "Admin", address: str, runtime: "Mapping[str, str]") -> dict[str, Any]:
    """Return rates of the last ten seconds and minute, counts of yesterday and of a day."""
    half = await _flow(admin, address, TRANSACTION_HALF_TOPIC)
    delayed = await _flow(admin, address, SCHEDULE_TOPIC)
    rates = _rate(runtime, "putTps"), _rate(runtime, "getTransferedTps", "getTransferredTps")
    counts = _yesterday(runtime, "msgPutTotal"), _yesterday(runtime, "msgGetTotal")
    return {
        "tps": dict(zip(_RATES, (*rates, half[0], delayed[0]), strict=True)),
        "oneDayNum": dict(zip(_COUNTS, (*counts, half[1], delayed[1]), strict=True)),
    }


def _rate(runtime: "Mapping[str, str]", *keys: str) -> float:
    """Return the rate of the last ten seconds, the first of three. Release 5 renamed one key.

    Java's broker has none in its first seconds; mqadmin fails then.
    """
    rates = next((runtime[key] for key in keys if key in runtime), "")
    return float(rates.split(" ")[0] or 0)


def _yesterday(runtime: "Mapping[str, str]", key: str) -> int:
    today, before = runtime.get(f"{key}TodayMorning"), runtime.get(f"{key}YesterdayMorning")
    return int(today or 0) - int(before or 0)


async def _flow(admin: "Admin", address: str, topic: str) -> tuple[float, int]:
    """Return the messages written to a topic: per second, and in a day. Zero if the broker has no
    figures.
    """
    from mq.client.errors import NoneThere

    try:
        figure = await admin.broker_stats(address, "TOPIC_PUT_NUMS", topic)
    except NoneThere:
        return 0.0, 0
    return (figure.stats_minute.tps if figure.stats_minute else 0.0), day_sum(figure)


async def _clients(admin: "Admin", groups: "Iterable[str]", unseen: dict[str, str]) -> list[str]:
    """Return language and release of the connected consumers, without duplicates.

    A group whose members cannot be queried is added to `unseen`, with the reason.
    """
    from mq.client.errors import ConsumerNotOnline, MQError, RouteNotFound
    from mq.protocol.versions import version_name

    found = set()
    for group in groups:
        try:
            connections = (await admin.group_connection(group)).connection_set
        except (ConsumerNotOnline, RouteNotFound):
            continue  # no member is connected, or the group has no retry topic yet
        except MQError as error:
            unseen[group] = str(error)
            continue
        for item in connections:
            language = "null" if item.language is None else item.language.name
            found.add(f"{language}%{version_name(item.version)}")
    return sorted(found)
