"""Allocation strategies: assign queues to members. No I/O.

Every member of a group computes its assignment by itself from the same sorted lists. So all members
must use the same strategy, and each strategy must compute exactly what the Java class of the same
purpose does (org.apache.rocketmq.client.consumer.rebalance).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from hashlib import md5

from mq.protocol.bodies import MessageQueue

#: Selects the queues of one topic that a client consumes: `(client_id, queues, client_ids) ->
#: queues`. The order of the arguments' items does not matter.
Strategy = Callable[[str, Iterable[MessageQueue], Iterable[str]], list[MessageQueue]]


def allocate_averagely(
    client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
) -> list[MessageQueue]:
    """Divide the queues into runs, one per client; if uneven, the first clients get one more.

    Empty if the client is not among `client_ids`, or if there are more clients than queues and this
    one sorts late (AllocateMessageQueueAveragely).
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
    """Assign the queues one by one in turn (AllocateMessageQueueAveragelyByCircle)."""
    clients = sorted(set(client_ids))
    if client_id not in clients:
        return []
    return sorted(queues)[clients.index(client_id) :: len(clients)]


class AllocateByConfig:
    """Always the same queues, whatever other members exist (AllocateMessageQueueByConfig).

        Consumer(namesrv, group, {"Orders": "*"}, strategy=AllocateByConfig(queues))

    Of the given queues, those of the topic being rebalanced that exist are assigned. Messages that
    are sent back go to the group's retry topic, so one member's list must contain its queues.
    """

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        """`queues` are this member's, of any topics."""
        self._queues = frozenset(queues)

    def __call__(
        self, client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
    ) -> list[MessageQueue]:
        return sorted(self._queues.intersection(queues))


class AllocateByMachineRoom:
    """Assign only queues of brokers in some machine rooms, named "room@broker".

    They are divided into equal runs; the rest at the end is assigned one by one
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
    """Assign each queue to the next client on a ring of hashes.

    So few queues move when a client joins or leaves (AllocateMessageQueueConsistentHash,
    ConsistentHashRouter).
    """

    def __init__(self, virtual_nodes: int = 10) -> None:
        """`virtual_nodes` is the number of positions of each client on the ring; ValueError below
        1.
        """
        if virtual_nodes < 1:
            raise ValueError(f"virtual_nodes must be at least 1, not {virtual_nodes}")
        self._virtual_nodes = virtual_nodes

    def __call__(
        self, client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
    ) -> list[MessageQueue]:
        clients = sorted(set(client_ids))
        if client_id not in clients:
            return []
        # If two nodes have the same hash, the later one wins, as in Java's map.
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
    """Assign queues to clients in the same machine room; rooms without clients are shared by all.

    Within each room another strategy decides (AllocateMachineRoomNearby).
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
