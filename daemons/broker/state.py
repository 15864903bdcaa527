"""State dump: the broker's state, written on SIGUSR1."""

from collections.abc import Iterator, Mapping

from mq.daemons.broker.components.clients import Clients
from mq.daemons.broker.components.stats import Stats
from mq.daemons.broker.pull.long_polling import SuspendedPull
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.stores import Stores
from mq.daemons.listener import Listener
from mq.daemons.state_dump import connections, limited
from mq.daemons.supervision import Tasks


def state_of(
    listeners: Mapping[str, Listener], tasks: Tasks, stores: Stores, clients: Clients, stats: Stats
) -> Iterator[str]:
    """Connections, groups, the store and its queues, suspended pulls: a line each."""
    for name, listener in listeners.items():
        yield from connections(name, listener)
    for name, group in sorted(clients.consumers.groups.items()):
        yield (
            f"consumer group {name}: {group.message_model}, members "
            f"{', '.join(sorted(group.client_ids()))}, topics "
            f"{', '.join(sorted(group.subscriptions))}"
        )
    yield from _store(stores.messages)
    yield from tasks.state()
    for service, count in sorted(stores.aside.counts.items()):
        yield f"set aside by {service}: {count}"
    counters = stats.counters
    yield (
        f"since the start: {counters.puts} messages stored, {counters.transferred} read, "
        f"{counters.found} pulls found something, {counters.missed} nothing"
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
    """The suspended pulls of consumers; delayed messages and other readers wait at queues, too."""
    return sum(1 for waiting in queue.waiting if isinstance(waiting, SuspendedPull))
