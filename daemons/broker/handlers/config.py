"""The broker's own settings and figures."""

import logging
import shutil
import time
from collections.abc import Callable, Mapping

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.day_totals import DayTotals
from mq.daemons.broker.delay import DelayedMessages
from mq.daemons.broker.stat_items import StatItems
from mq.daemons.broker.stats import BrokerStats
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.topics import Topics
from mq.daemons.config import ConfigError, NotUpdatable
from mq.daemons.dispatch import Handler, Refused
from mq.daemons.listener import Channel
from mq.daemons.properties import read_properties
from mq.protocol.bodies import KVTable
from mq.protocol.codes import CURRENT_VERSION, RequestCode, ResponseCode, version_name
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    ExportRocksDBConfigToJsonRequestHeader,
    GetBrokerConfigResponseHeader,
    ViewBrokerStatsDataRequestHeader,
)

log = logging.getLogger(__name__)


def handlers(
    settings: BrokerSettings,
    topics: Topics,
    store: MessageStore,
    stats: BrokerStats,
    days: DayTotals,
    delayed: DelayedMessages,
    items: StatItems,
    own_work: Callable[[], Mapping[str, str]] = dict,
) -> dict[int, Handler]:
    """The table of this subject. ``own_work`` gives figures of the broker's own tasks."""

    def get(command: Command, channel: Channel) -> Command:
        """All settings as a .properties text."""
        fields = GetBrokerConfigResponseHeader(version=settings.version_json()).encode()
        return command.reply(fields=fields, body=settings.text().encode())

    def update(command: Command, channel: Channel) -> Command:
        """Change settings of the allow list, all or none."""
        try:
            changed = settings.update(read_properties(bytes(command.body).decode()))
        except NotUpdatable as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
        except (ConfigError, ValueError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        log.info("%s changed settings: %s", channel.remote, ", ".join(sorted(changed)) or "none")
        if "brokerPermission" in changed:
            topics.next_version()  # name servers show topics with this permission
        return command.reply()

    def runtime_info(command: Command, channel: Channel) -> Command:
        """Figures of the running broker."""
        table = {**store.runtime_info(), **_figures(settings, stats), **_days(days)}
        table.update(delayed.running_info())
        table.update(own_work())
        return command.reply(body=KVTable(table=table).encode())

    def view_stats(command: Command, channel: Channel) -> Command:
        """One figure over the last minute, hour and day."""
        header = command.read_header(ViewBrokerStatsDataRequestHeader)
        data = items.view(header.stats_name, header.stats_key)
        if data is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return command.reply(body=data.encode())

    def export_to_json(command: Command, channel: Channel) -> Command:
        """Write settings as JSON that are kept in RocksDB: here all of them are JSON already."""
        command.read_header(ExportRocksDBConfigToJsonRequestHeader)
        return command.reply()

    return {
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: export_to_json,
        RequestCode.VIEW_BROKER_STATS_DATA: view_stats,
        RequestCode.GET_BROKER_CONFIG: get,
        RequestCode.UPDATE_BROKER_CONFIG: update,
        RequestCode.GET_BROKER_RUNTIME_INFO: runtime_info,
    }


def _figures(settings: BrokerSettings, stats: BrokerStats) -> dict[str, str]:
    puts = stats.puts
    figures = {
        "brokerVersionDesc": version_name(CURRENT_VERSION),
        "brokerVersion": str(CURRENT_VERSION),
        "bootTimestamp": str(int(stats.started * 1000)),
        "runtime": _duration(time.time() - stats.started),
        "putMessageTimesTotal": str(puts),
        "putMessageSizeTotal": str(stats.put_bytes),
        "putMessageAverageSize": str(stats.put_bytes / max(1, puts)),
        "putTps": stats.rates("puts"),
        "getFoundTps": stats.rates("found"),
        "getMissTps": stats.rates("missed"),
        "getTransferedTps": stats.rates("transferred"),
        "getTransferredTps": stats.rates("transferred"),  # its name since 5.0; its tools need it
        "startAcceptSendRequestTimeStamp": str(
            settings.broker.start_accept_send_request_time_stamp
        ),
        "commitLogDirCapacity": _capacity(settings.store.store_path_root_dir),
    }
    # Requests are served in the turn of the loop in which they arrive: nothing waits in a queue.
    for pool, capacity in (
        ("send", settings.broker.send_thread_pool_queue_capacity),
        ("pull", settings.broker.pull_thread_pool_queue_capacity),
        ("query", settings.broker.query_thread_pool_queue_capacity),
    ):
        figures[f"{pool}ThreadPoolQueueSize"] = "0"
        figures[f"{pool}ThreadPoolQueueCapacity"] = str(capacity)
        figures[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    figures["pageCacheLockTimeMills"] = "0"
    return figures


def _days(days: DayTotals) -> dict[str, str]:
    figures = {}
    for name, (puts, gets) in (
        ("YesterdayMorning", days.yesterday_morning),
        ("TodayMorning", days.today_morning),
        ("TodayNow", days.now()),
    ):
        figures[f"msgPutTotal{name}"] = str(puts)
        figures[f"msgGetTotal{name}"] = str(gets)
    return figures


def _duration(seconds: float) -> str:
    """As StoreStatsService.getFormatRuntime writes it."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {rest} seconds ]"


def _capacity(folder: str) -> str:
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return f"unknown: {error.strerror}"
    return f"Total : {_size(usage.total)}, Free : {_size(usage.free)}."


def _size(number: float) -> str:
    """As MixAll.humanReadableByteCount writes it, in powers of 1024."""
    if number < 1024:
        return f"{int(number)} B"
    for unit in "KMGTPE":
        number /= 1024
        if number < 1024 or unit == "E":
            break
    return f"{number:.1f} {unit}iB"
