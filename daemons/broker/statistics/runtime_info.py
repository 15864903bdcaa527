"""The stats in GET_BROKER_RUNTIME_INFO, which Java's tools and exporters read.

All are text, and some have a format that readers parse: rates over three periods separated by
blanks, bytes with a unit, messages by ranges of time. rocketmq-exporter (BrokerRuntimeStats) fails
if a reply lacks one.
"""

from pathlib import Path

from mq.client.machine import clock, files, usage
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.statistics.day_totals import DayTotals
from mq.daemons.broker.statistics.stats import BrokerStats
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.retention import used_ratio
from mq.protocol.versions import CURRENT_VERSION, version_name


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
