"""What a broker does by the clock: its parts' own tasks, saves at intervals, expiry."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from mq.daemons.broker.limits import FlushBacklog
from mq.daemons.broker.protection import WaterMarks
from mq.daemons.broker.store_config import FlushDiskType
from mq.daemons.broker.timer.service import Timer

if TYPE_CHECKING:
    from mq.daemons.broker.app import Broker

log = logging.getLogger(__name__)

# How often channels are looked at that have sent no heartbeat for channelExpiredTimeout.
EXPIRY_SECONDS = 10.0
# How soon topics and groups that could not be saved are saved again.
SAVE_AGAIN_SECONDS = 1.0
# How often consumerFilter.json is written if a filter has changed (BrokerController.initialize),
# and consumerOrderInfo.json.
FILTER_SAVE_SECONDS = 10.0
POP_SAVE_SECONDS = 5.0
ASIDE_SAVE_SECONDS = 1.0


def spawn_chores(broker: "Broker") -> None:
    """Start the tasks of a broker whose parts are all there."""
    spawn = broker.tasks.spawn
    spawn(broker.stats.run, "statistics")
    spawn(broker.days.run, "turn of the day")
    spawn(broker.figures.run, "figures")
    spawn(broker.guard.run, "guard against slow consumers")
    spawn(WaterMarks(broker.store).run, "water marks")
    spawn(broker.topic_sizes.run, "sizes of topics")
    if broker.settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        store = broker.store
        backlog = FlushBacklog(store.flusher, store.appender, lambda: broker.settings.broker)
        spawn(backlog.run, "flush backlog")
    for work, name in (*broker.store.works(), *broker.delayed.works()):
        spawn(work, name)
    spawn(broker.pop.run, "popped messages")
    spawn(broker.transaction_checks.run, "transaction checks")
    spawn(lambda: _expire_clients(broker), "expiry of clients")
    if broker.access is not None:
        spawn(broker.access.watch, "ACL files")
    if broker.tls is not None:
        spawn(broker.tls.watch, "certificates")
    _spawn_saves(broker)


def _spawn_saves(broker: "Broker") -> None:
    settings = broker.settings
    for save, seconds, what in (
        (
            broker.offsets.save,
            lambda: settings.broker.flush_consumer_offset_interval / 1000,
            "consumer offsets",
        ),
        # What could not be saved when it was made.
        (broker.topics.save_pending, lambda: SAVE_AGAIN_SECONDS, "topics"),
        (broker.groups.save_pending, lambda: SAVE_AGAIN_SECONDS, "subscription groups"),
        (
            broker.delayed.save,
            lambda: settings.store.flush_delay_offset_interval / 1000,
            "delay offsets",
        ),
        (broker.filters.save, lambda: FILTER_SAVE_SECONDS, "filters"),
        (broker.pop.save, lambda: POP_SAVE_SECONDS, "ordered pops"),
        (broker.aside.save, lambda: ASIDE_SAVE_SECONDS, "what was set aside"),
    ):
        broker.tasks.spawn(partial(save_again_and_again, save, seconds, what), what)


def spawn_timer(broker: "Broker", timer: Timer) -> None:
    """Start the tasks of the timer."""
    for work, name in timer.works():
        broker.tasks.spawn(work, name)
    pause = broker.settings.store.timer_flush_interval_ms / 1000
    save = partial(save_again_and_again, timer.save, lambda: pause, "timer")
    broker.tasks.spawn(save, "timer: save")


async def save_again_and_again(
    save: Callable[[], Awaitable[None]], seconds: Callable[[], float], what: str
) -> None:
    """Save at intervals until cancelled. What cannot be saved now is saved the next time."""
    while True:
        await asyncio.sleep(seconds())
        try:
            await save()
        except OSError as error:
            log.error("%s cannot be saved now: %s", what, error)


async def _expire_clients(broker: "Broker") -> None:
    while True:
        await asyncio.sleep(EXPIRY_SECONDS)
        timeout = broker.settings.broker.channel_expired_timeout / 1000
        broker.consumers.expire(timeout)
        broker.producers.expire(timeout)
        broker.locks.expire()
