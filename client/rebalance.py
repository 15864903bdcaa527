"""Allocation strategies: which queues are whose. No I/O.

Every member of a group works this out by itself from the same sorted lists, so all of them must
use the same strategy and compute it exactly as Java's classes of the same purpose do
(org.apache.rocketmq.client.consumer.rebalance).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from hashlib import md5

from mq.protocol.bodies import MessageQueue

#: Chooses, of the queues of one topic, those that the client shall consume: `(client_id, queues,
#: client_ids) -> queues`. The order of what it is given does not matter.
Strategy = Callable[[str, Iterable[MessageQueue], Iterable[str]], list[MessageQueue]]


def allocate_averagely(
    client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
) -> list[MessageQueue]:
    """Cut the queues into runs, one per client; the first clients get one more if it is uneven.

    Empty when the client is not among `client_ids`, or when there are more clients than queues and
    this one comes late (AllocateMessageQueueAveragely).
    """
    clients = sorted(set(client_ids))
    if client_id not in clients:
        return []
    ordered: Sequence[MessageQueue] = sorted(queues)
    index = clients.index(client_id)
    size, more = divmod(len(ordered), len(clients))
    start = index * size + min(index, more)
    return list(ordered[start : start + size + (1 if index < more else 0)])


def allocate_in_circle(
    client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
) -> list[MessageQueue]:
    """Deal the queues out one by one, round and round (AllocateMessageQueueAveragelyByCircle)."""
    clients = sorted(set(client_ids))
    if client_id not in clients:
        return []
    return sorted(queues)[clients.index(client_id) :: len(clients)]


class AllocateByConfig:
    """Always the same queues, whoever else is there (AllocateMessageQueueByConfig).

        Consumer(namesrv, group, {"Orders": "*"}, strategy=AllocateByConfig(queues))

    Only queues of the topic that is being shared out are given, and only those that exist. What is
    sent back comes to the group's retry topic: one member's list must have its queues, too.
    """

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        """`queues` are this member's, of any topics."""
        self._queues = frozenset(queues)

    def __call__(
        self, client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
    ) -> list[MessageQueue]:
        return sorted(self._queues.intersection(queues))


class AllocateByMachineRoom:
    """Only queues of brokers in some machine rooms, called "room@broker".

    They are cut into equal runs; those that are left over at the end are dealt out one by one
    (AllocateMessageQueueByMachineRoom).
    """

    def __init__(self, rooms: Iterable[str]) -> None:
        """`rooms` are the names before the "@" whose queues this group's members consume."""
        self._rooms = frozenset(rooms)

    def __call__(
        self, client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
    ) -> list[MessageQueue]:
        clients = sorted(set(client_ids))
        if client_id not in clients:
            return []
        index = clients.index(client_id)
        near = [queue for queue in sorted(queues) if self._is_near(queue)]
        size, more = divmod(len(near), len(clients))
        mine = near[index * size : (index + 1) * size]
        if index < more:
            mine.append(near[index + size * len(clients)])
        return mine

    def _is_near(self, queue: MessageQueue) -> bool:
        parts = queue.broker_name.rstrip("@").split("@")  # Java's split drops empty ends
        return len(parts) == 2 and parts[0] in self._rooms


class AllocateByConsistentHash:
    """Each queue goes to the client that is next to it on a ring of hashes.

    So few queues move when a client comes or goes (AllocateMessageQueueConsistentHash,
    ConsistentHashRouter).
    """

    def __init__(self, virtual_nodes: int = 10) -> None:
        """`virtual_nodes` is how often each client stands on the ring; ValueError below 1."""
        if virtual_nodes < 1:
            raise ValueError(f"virtual_nodes must be at least 1, not {virtual_nodes}")
        self._virtual_nodes = virtual_nodes

    def __call__(
        self, client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
    ) -> list[MessageQueue]:
        clients = sorted(set(client_ids))
        if client_id not in clients:
            return []
        # Two nodes of one hash: the later one stays, as in Java's map.
        ring = {
            _hash(f"{client}-{number}"): client
            for client in clients
            for number in range(self._virtual_nodes)
        }
        places = sorted(ring)
        return [
            queue
            for queue in sorted(queues)
            if ring[places[bisect_left(places, _hash(_java_text(queue))) % len(places)]]
            == client_id
        ]


class AllocateNearby:
    """Queues go to the clients of their own machine room; a room without clients is shared by all.

    Within each of these another strategy decides (AllocateMachineRoomNearby).
    """

    def __init__(
        self,
        strategy: Strategy,
        room_of_queue: Callable[[MessageQueue], str],
        room_of_client: Callable[[str], str],
    ) -> None:
        self._strategy = strategy
        self._room_of_queue = room_of_queue
        self._room_of_client = room_of_client

    def __call__(
        self, client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
    ) -> list[MessageQueue]:
        clients = sorted(set(client_ids))
        if client_id not in clients:
            return []
        queues_of: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in sorted(queues):
            queues_of[self._room_of_queue(queue)].append(queue)
        clients_of: dict[str, list[str]] = defaultdict(list)
        for client in clients:
            clients_of[self._room_of_client(client)].append(client)
        here = self._room_of_client(client_id)
        mine = self._strategy(client_id, queues_of.pop(here, []), clients_of[here])
        for room in sorted(queues_of):
            if room not in clients_of:
                mine += self._strategy(client_id, queues_of[room], clients)
        return mine


def _hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _java_text(queue: MessageQueue) -> str:
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )
