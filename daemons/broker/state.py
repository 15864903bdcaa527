"""What a broker says of itself on SIGUSR1."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mq.daemons.broker.long_polling import HeldPull
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.state_dump import connections, limited

if TYPE_CHECKING:
    from mq.daemons.broker.app import Broker


def state_of(broker: "Broker") -> Iterator[str]:
    """Connections, groups, the store and its queues, held pulls: a line each."""
    yield from connections("main", broker.listener)
    yield from connections("fast", broker.fast_listener)
    for name, group in sorted(broker.consumers.groups.items()):
        yield (
            f"consumer group {name}: {group.message_model}, members "
            f"{', '.join(sorted(group.client_ids()))}, topics "
            f"{', '.join(sorted(group.subscriptions))}"
        )
    yield from _store(broker.store)
    yield from broker.tasks.state()
    for service, count in sorted(broker.aside.counts.items()):
        yield f"set aside by {service}: {count}"
    stats = broker.stats
    yield (
        f"since the start: {stats.puts} messages stored, {stats.transferred} read, "
        f"{stats.found} pulls found something, {stats.missed} nothing"
    )


def _store(store: MessageStore) -> Iterator[str]:
    log, flusher = store.log, store.flusher
    yield (
        f"log: {log.minimum} to {log.written}, flushed to {log.flushed}, "
        f"{len(log.files)} files, {store.appender.failed_writes} failed writes"
    )
    yield (
        f"flushes: {flusher.flushes}, the last took {flusher.last_seconds:.4f} s, "
        f"{flusher.waiting_replies} sends wait for one"
    )
    refusal = store.appender.refusal
    yield f"sends: {'taken' if refusal is None else f'refused: {refusal}'}"
    queues = sorted(store.queues, key=lambda queue: (queue.topic, queue.queue_id))
    held = sum(map(_held, queues))
    yield f"queues: {len(queues)}, held pulls: {held}"
    yield from limited(
        [
            f"queue {queue.topic} {queue.queue_id}: {queue.minimum} to {queue.readable}, "
            f"{_held(queue)} held pulls"
            for queue in queues
        ],
        "queues",
    )


def _held(queue: ConsumeQueue) -> int:
    """Pulls of consumers; delayed messages and the like wait at queues, too."""
    return sum(1 for waiting in queue.waiting if isinstance(waiting, HeldPull))
