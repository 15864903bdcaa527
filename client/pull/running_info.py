"""Running info: the state that a consumer reports to an operator (GET_CONSUMER_RUNNING_INFO)."""

import sys
import threading
import traceback
from collections.abc import Iterable, Mapping

from mq.client.machine import clock
from mq.client.pull.process_queue import ProcessQueue
from mq.protocol.bodies import (
    ConsumerRunningInfo,
    ConsumeStatus,
    ConsumeType,
    MessageQueue,
    ProcessQueueInfo,
    SubscriptionData,
)
from mq.protocol.versions import CURRENT_VERSION, version_name

_MIB = 1024 * 1024


class ConsumeCounts:
    """Counts of one topic since the consumer started; rates are averages over that time."""

    def __init__(self) -> None:
        self._since = clock.monotonic()
        self.pulls = 0
        self.pull_seconds = 0.0
        self.pulled = 0
        self.consumed = 0
        self.failed = 0
        self.consume_seconds = 0.0

    def status(self) -> ConsumeStatus:
        """Return the counts in the units of Java's consumers: times in ms, rates per second."""
        seconds = max(clock.monotonic() - self._since, 1e-3)
        calls = self.consumed + self.failed
        return ConsumeStatus(
            pull_rt=self.pull_seconds * 1000 / self.pulls if self.pulls else 0.0,
            pull_tps=self.pulled / seconds,
            consume_rt=self.consume_seconds * 1000 / calls if calls else 0.0,
            consume_ok_tps=self.consumed / seconds,
            consume_failed_tps=self.failed / seconds,
            consume_failed_msgs=self.failed,
        )


def describe_consumer(
    *,
    name_servers: Iterable[str],
    started: float,
    ordered: bool,
    concurrency: int,
    consume_type: ConsumeType,
    subscriptions: Iterable[SubscriptionData],
    held: Mapping[MessageQueue, ProcessQueue],
    counts: Mapping[str, ConsumeCounts],
    stacks: bool,
) -> ConsumerRunningInfo:
    """Build the answer. `started` is in seconds since 1970; `stacks` adds the stacks of all
    threads.
    """
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in name_servers),
            "PROP_CONSUME_TYPE": consume_type.name,
            "PROP_CLIENT_VERSION": version_name(CURRENT_VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(int(started * 1000)),
            "PROP_CONSUMEORDERLY": "true" if ordered else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(concurrency),
        },
        subscription_set=list(subscriptions),
        mq_table={queue: _describe_queue(held[queue]) for queue in sorted(held)},
        status_table={topic: counts[topic].status() for topic in sorted(counts)},
        jstack=_stacks() if stacks else None,
    )


def _describe_queue(held: ProcessQueue) -> ProcessQueueInfo:
    first, last = held.bounds
    return ProcessQueueInfo(
        commit_offset=held.commit_offset,
        cached_msg_min_offset=first,
        cached_msg_max_offset=last,
        cached_msg_count=held.count,
        cached_msg_size_in_mib=held.bytes // _MIB,
        locked=held.locked,
        last_lock_timestamp=int(held.last_lock * 1000),
        droped=held.dropped,
        last_pull_timestamp=int(held.last_pull * 1000),
        last_consume_timestamp=int(held.last_consume * 1000),
    )


def _stacks() -> str:
    """Return the stacks of all threads, as jstack does for a Java consumer."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"{names.get(ident, ident)}\n{lines}")
    return "\n".join(parts)
