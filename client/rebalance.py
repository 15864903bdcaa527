"""Which queues are whose. No I/O.

Every member of a group works this out by itself from the same sorted lists, so all must compute it
exactly as Java's AllocateMessageQueueAveragely does: a list of queues is cut into runs, one run per
client, and the first `len(queues) % len(clients)` clients get one more.
"""

from collections.abc import Iterable, Sequence

from mq.protocol.bodies import MessageQueue


def allocate_averagely(
    client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
) -> list[MessageQueue]:
    """The queues of one topic that `client_id` shall consume, in order.

    Empty when it is not among `client_ids`, or when there are more clients than queues and this
    one comes late.
    """
    clients = sorted(set(client_ids))
    if client_id not in clients:
        return []
    ordered: Sequence[MessageQueue] = sorted(queues)
    index = clients.index(client_id)
    size, more = divmod(len(ordered), len(clients))
    start = index * size + min(index, more)
    return list(ordered[start : start + size + (1 if index < more else 0)])
