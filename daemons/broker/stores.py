"""Stores component: all data on the disk."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mq.daemons.broker.admin.config_handlers import ConfigHandlers
from mq.daemons.broker.admin.retention_handlers import RetentionHandlers
from mq.daemons.broker.backlog import FlushBacklog, WaterMarks
from mq.daemons.broker.component import Metrics, Works
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delayed.timer_handlers import TimerHandlers
from mq.daemons.broker.delivery.quarantine import Quarantine
from mq.daemons.broker.filters.bit_maps import extender
from mq.daemons.broker.filters.table import ConsumerFilters
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.offsets.offset_handlers import GroupOffsetHandlers, QueueOffsetHandlers
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.periodic import saving
from mq.daemons.broker.roles import is_slave
from mq.daemons.broker.store import ConfirmOffset, MessageStore, check_rocksdb
from mq.daemons.broker.store_config import FlushDiskType
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.dispatch import Handler
from mq.daemons.request_codes import handlers_of

# Seconds after which topics and groups that could not be saved are saved again.
SAVE_AGAIN_SECONDS = 1.0
# Seconds between writes of consumerFilter.json if a filter has changed
# (BrokerController.initialize).
FILTER_SAVE_SECONDS = 10.0
ASIDE_SAVE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Stores:
    """The data on the disk: messages, topics, groups, offsets and filters."""

    settings: BrokerSettings
    messages: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    filters: ConsumerFilters
    aside: Quarantine

    def works(self) -> Works:
        settings, messages = self.settings, self.messages
        yield WaterMarks(messages).run, "water marks"
        if settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            backlog = FlushBacklog(messages.flusher, messages.appender, settings)
            yield backlog.run, "flush backlog"
        yield from messages.works()
        yield saving(
            self.offsets.save,
            lambda: settings.broker.flush_consumer_offset_interval / 1000,
            "consumer offsets",
        )
        # Topics that could not be saved when they were changed.
        yield saving(self.topics.save_pending, lambda: SAVE_AGAIN_SECONDS, "topics")
        yield saving(self.groups.save_pending, lambda: SAVE_AGAIN_SECONDS, "subscription groups")
        yield saving(self.filters.save, lambda: FILTER_SAVE_SECONDS, "filters")
        yield saving(self.aside.save, lambda: ASIDE_SAVE_SECONDS, "quarantine")

    def handlers(self) -> dict[int, Handler]:
        return handlers_of(
            ConfigHandlers(self.settings, self.topics),
            RetentionHandlers(self.topics, self.messages, self.offsets),
            QueueOffsetHandlers(self.messages),
            GroupOffsetHandlers(self.settings, self.offsets, self.messages),
            TimerHandlers(self.messages),
        )

    def metrics(self) -> Metrics:
        from mq.daemons.broker.metrics.broker import set_aside, storage

        yield set_aside(self.aside)
        yield from storage(self.messages)


async def open_stores(
    settings: BrokerSettings,
    host: bytes,
    parts: AsyncExitStack,
    bound: ConfirmOffset | None = None,
) -> Stores:
    """Open the component; `parts` saves and closes it, in reverse order.

    ``host`` is the address in every record. ``bound`` is the confirm offset, which limits what
    consumers may read. Raises StoreError, and ConfigError for a store whose configuration is in
    RocksDB.
    """
    folder = Path(settings.store.store_path_root_dir) / "config"
    check_rocksdb(folder)
    filters = ConsumerFilters(folder / "consumerFilter.json", settings)
    extend = partial(extender, settings, filters)
    has_extension = settings.store.enable_consume_queue_ext
    store = await parts.enter_async_context(
        MessageStore(lambda: settings.store, host, extend if has_extension else None, bound)
    )
    # The unconfirmed end of the log usually stays, and groups may have read it from another broker.
    end_of = store.max_offset if bound is None else store.end_offset
    # Files are read once the store is locked by this process: another broker may have written them
    # until then.
    topics = Topics(folder / "topics.json", settings)
    topics.adopt(store.queue_counts())
    parts.push_async_callback(topics.file.close)
    groups = Groups(folder / "subscriptionGroup.json", settings)
    parts.push_async_callback(groups.file.close)
    offsets = ConsumerOffsets(folder / "consumerOffset.json", store.flusher.drain)
    parts.push_async_callback(offsets.save)
    # Otherwise a slave that becomes the master would put groups after the messages stored since
    # then.
    store.on_queues_restarted.append(offsets.reset_cleared)
    offsets.version.is_copy = is_slave(settings)
    if is_slave(settings):
        # Offsets may be after the end of the copied log. If this broker became the master, the next
        # messages would get offsets that the groups have passed.
        parts.callback(offsets.go_back_to_ends, end_of)
    else:
        offsets.end_acting()
    if store.report.crashed:
        # Also after a mere kill: the start after a power cut may have got no further, and damage
        # removes the end of a log, too. This must happen before new messages get these offsets
        # again.
        offsets.go_back_to_ends(end_of)
        await offsets.save()
    filters.load()
    parts.push_async_callback(filters.save)
    aside = Quarantine(store)
    parts.push_async_callback(aside.save)
    return Stores(settings, store, topics, groups, offsets, filters, aside)
