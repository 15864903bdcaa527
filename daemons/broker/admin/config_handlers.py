"""The broker's settings and statistics.

Java's tools and exporters read the statistics of GET_BROKER_RUNTIME_INFO. All are text, and some
have a format that readers parse: rates over three periods separated by blanks, bytes with a unit,
messages by ranges of time. rocketmq-exporter (BrokerRuntimeStats) fails if a reply lacks one.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from mq.client.machine import clock, files, usage
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.roles import is_slave
from mq.daemons.broker.statistics.day_totals import DayTotals
from mq.daemons.broker.statistics.stat_items import StatItems
from mq.daemons.broker.statistics.stats import BrokerStats
from mq.daemons.broker.store import MessageStore, layout, used_ratio
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.channel import Channel
from mq.daemons.config_requests import reply_to_update, update_settings
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol.bodies import KVTable
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    ExportRocksDBConfigToJsonRequestHeader,
    GetBrokerConfigResponseHeader,
    ViewBrokerStatsDataRequestHeader,
)
from mq.protocol.versions import CURRENT_VERSION, version_name

log = logging.getLogger(__name__)


def runtime_info_of(
    settings: BrokerSettings, store: MessageStore, stats: BrokerStats, days: DayTotals
) -> dict[str, str]:
    """The stats of every broker of 4.9.8, as text, and those of the process."""
    return {
        **_of_store(store),
        **_of_requests(settings, stats),
        **_of_days(days),
        **_of_process(),
    }


def _of_process() -> dict[str, str]:
    """Values that Java does not have: they show which of several brokers on a machine is busy."""
    used = usage.usage()
    return {
        "processCpuMillis": str(int(used.cpu_seconds * 1000)),
        "processPrivateBytes": str(used.private_bytes),
    }


def _of_store(store: MessageStore) -> dict[str, str]:
    """DefaultMessageStore.getRuntimeInfo and StoreStatsService.getRuntimeInfo."""
    log, times = store.log, store.put_times
    earliest = -1
    if log.written > log.minimum:
        earliest = log.readable_timestamp(log.minimum) or -1
    table = {f"commitLogDiskRatio_{path}": _ratio(path) for path in log.paths}
    recovered_end = store.checkpointer.recovered_end
    if recovered_end is not None:  # for a slave that may have the messages that were lost
        table["commitLogFoundEnd"] = str(recovered_end)
    return table | {
        "commitLogDiskRatio": str(store.retention.commit_log_ratio() / 100),
        "consumeQueueDiskRatio": _ratio(layout.consume_queue_path(store.root)),
        "commitLogMinOffset": str(log.minimum),
        "commitLogMaxOffset": str(log.written),
        "earliestMessageTimeStamp": str(earliest),
        "remainHowManyDataToFlush": readable_bytes(log.written - log.flushed),
        "remainHowManyDataToCommit": readable_bytes(0),
        "putMessageEntireTimeMax": str(times.longest),
        "putMessageDistributeTime": times.distribution(),
        "putLatency99": f"{times.percentile(0.99):.2f}",
        "putLatency999": f"{times.percentile(0.999):.2f}",
        "putMessageFailedTimes": str(store.appender.failed_writes),
        # Entries of queues and index are written with the log, so nothing waits to be dispatched.
        # There is no pool of buffers that could run empty (TransientStorePool, when it is off).
        "dispatchBehindBytes": "0",
        "dispatchMaxBuffer": "0",
        "remainTransientStoreBufferNumbs": str((1 << 31) - 1),
    }


def _of_requests(settings: BrokerSettings, stats: BrokerStats) -> dict[str, str]:
    """AdminBrokerProcessor.prepareRuntimeInfo."""
    puts = stats.puts
    table = {
        "brokerVersionDesc": version_name(CURRENT_VERSION),
        "brokerVersion": str(CURRENT_VERSION),
        "bootTimestamp": str(int(stats.started * 1000)),
        "runtime": _duration(clock.time() - stats.started),
        "putMessageTimesTotal": str(puts),
        "putMessageSizeTotal": str(stats.put_bytes),
        "putMessageAverageSize": str(stats.put_bytes / max(1, puts)),
        "putTps": stats.rates("puts"),
        "getFoundTps": stats.rates("found"),
        "getMissTps": stats.rates("missed"),
        "getTotalTps": stats.rates("asked"),
        "getMessageEntireTimeMax": str(stats.longest_read),
        "getTransferedTps": stats.rates("transferred"),
        "getTransferredTps": stats.rates("transferred"),  # the name since 5.0, which its tools need
        "startAcceptSendRequestTimeStamp": str(
            settings.broker.start_accept_send_request_time_stamp
        ),
        "commitLogDirCapacity": _capacity(settings.store.store_path_root_dir),
    }
    # Requests are served in the turn of the event loop in which they arrive: nothing waits in a
    # queue.
    for pool, capacity in (
        ("send", settings.broker.send_thread_pool_queue_capacity),
        ("pull", settings.broker.pull_thread_pool_queue_capacity),
        ("query", settings.broker.query_thread_pool_queue_capacity),
    ):
        table[f"{pool}ThreadPoolQueueSize"] = "0"
        table[f"{pool}ThreadPoolQueueCapacity"] = str(capacity)
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    table["EndTransactionQueueSize"] = "0"
    table["EndTransactionThreadPoolQueueCapacity"] = str(
        settings.broker.end_transaction_pool_queue_capacity
    )
    table["pageCacheLockTimeMills"] = "0"
    return table


def _of_days(days: DayTotals) -> dict[str, str]:
    table = {}
    for name, (puts, gets) in (
        ("YesterdayMorning", days.yesterday_morning),
        ("TodayMorning", days.today_morning),
        ("TodayNow", days.now()),
    ):
        table[f"msgPutTotal{name}"] = str(puts)
        table[f"msgGetTotal{name}"] = str(gets)
    return table


def _ratio(path: Path) -> str:
    return str(used_ratio(path) / 100)


def _duration(seconds: float) -> str:
    """The format of StoreStatsService.getFormatRuntime."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {rest} seconds ]"


def _capacity(folder: str) -> str:
    try:
        disk = files.space(folder)
    except OSError as error:
        return f"unknown: {error.strerror}"
    return f"Total : {readable_bytes(disk.total)}, Free : {readable_bytes(disk.free)}."


def readable_bytes(number: float) -> str:
    """The format of MixAll.humanReadableByteCount, in powers of 1024."""
    if number < 1024:
        return f"{int(number)} B"
    for unit in "KMGTPE":
        number /= 1024
        if number < 1024 or unit == "E":
            break
    return f"{number:.1f} {unit}iB"


class ConfigHandlers:
    """Shows and changes settings."""

    def __init__(self, settings: BrokerSettings, topics: Topics) -> None:
        self._settings = settings
        self._topics = topics

    @serves(RequestCode.GET_BROKER_CONFIG)
    def get(self, command: Command, channel: Channel) -> Command:
        """All settings as a .properties text."""
        fields = GetBrokerConfigResponseHeader(version=self._settings.version_json()).encode()
        return command.reply(fields=fields, body=self._settings.text().encode())

    @serves(RequestCode.UPDATE_BROKER_CONFIG)
    async def update(self, command: Command, channel: Channel) -> Command:
        """Change settings, all or none; some take effect at the next start."""
        update = update_settings(self._settings, command, channel)
        if "brokerPermission" in update.changed and not is_slave(self._settings):
            await self._topics.next_version()  # name servers show topics with this permission
        return reply_to_update(command, update)

    @serves(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON)
    def export_to_json(self, command: Command, channel: Channel) -> Command:
        """Export settings from RocksDB as JSON. Does nothing: this broker keeps all of them as
        JSON.
        """
        command.read_header(ExportRocksDBConfigToJsonRequestHeader)
        return command.reply()


class StatsHandlers:
    """Reports statistics. ``info`` returns the values that other tasks of the broker report."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        stats: BrokerStats,
        days: DayTotals,
        items: StatItems,
        info: Callable[[], Mapping[str, str]],
    ) -> None:
        self._settings = settings
        self._store = store
        self._stats = stats
        self._days = days
        self._items = items
        self._info = info

    @serves(RequestCode.GET_BROKER_RUNTIME_INFO)
    def runtime_info(self, command: Command, channel: Channel) -> Command:
        """State and statistics of the running broker."""
        table = runtime_info_of(self._settings, self._store, self._stats, self._days)
        table.update(self._info())
        return command.reply(body=KVTable(table=table).encode())

    @serves(RequestCode.VIEW_BROKER_STATS_DATA)
    def view_stats(self, command: Command, channel: Channel) -> Command:
        """One item over the last minute, hour and day."""
        header = command.read_header(ViewBrokerStatsDataRequestHeader)
        data = self._items.view(header.stats_name, header.stats_key)
        if data is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return command.reply(body=data.encode())
