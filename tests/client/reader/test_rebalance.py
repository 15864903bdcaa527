import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.reader.rebalance import (
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateNearby,
    Strategy,
    allocate_averagely,
    allocate_in_circle,
)
from mq.protocol.bodies import MessageQueue


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("topic", "broker", number) for number in range(count)]


def ids(client: str, count: int, clients: list[str]) -> list[int]:
    return [queue.queue_id for queue in allocate_averagely(client, queues(count), clients)]


def test_queues_are_cut_into_runs_and_the_first_clients_get_one_more() -> None:
    assert ids("a", 8, ["c", "a", "b"]) == [0, 1, 2]
    assert ids("b", 8, ["c", "a", "b"]) == [3, 4, 5]
    assert ids("c", 8, ["c", "a", "b"]) == [6, 7]


def test_a_surplus_client_gets_nothing() -> None:
    assert ids("c", 2, ["a", "b", "c"]) == []


def test_a_client_that_the_broker_does_not_know_gets_nothing() -> None:
    assert ids("z", 4, ["a", "b"]) == []


def test_queues_of_all_brokers_are_allocated_in_one_order() -> None:
    both = [MessageQueue("t", "b2", 0), MessageQueue("t", "b1", 1), MessageQueue("t", "b1", 0)]
    assert allocate_averagely("a", both, ["a", "b"]) == [
        MessageQueue("t", "b1", 0),
        MessageQueue("t", "b1", 1),
    ]


@given(st.integers(0, 40), st.sets(st.text(min_size=1, max_size=3), min_size=1, max_size=12))
def test_every_queue_has_exactly_one_owner(count: int, clients: set[str]) -> None:
    owned = [n for client in clients for n in ids(client, count, list(clients))]
    assert sorted(owned) == list(range(count))


def room_of_queue(queue: MessageQueue) -> str:
    return queue.broker_name[:2]


def room_of_client(client: str) -> str:
    return "r2" if client.endswith(("2", "B")) else "r1"


STRATEGIES: dict[str, Strategy] = {
    "averagely": allocate_averagely,
    "circle": allocate_in_circle,
    "room": AllocateByMachineRoom(["r1", "r3"]),
    "hash": AllocateByConsistentHash(),
    "hash3": AllocateByConsistentHash(3),
    "nearby": AllocateNearby(allocate_averagely, room_of_queue, room_of_client),
}
BROKERS: list[tuple[list[str], int]] = [  # names, and how many queues each has
    (["broker-a"], 8),
    (["r1@a", "r2@b"], 3),
    (["r1@a", "r1@b", "r3@c"], 5),
]
CLIENTS = [
    ["10.0.0.1@A"],
    ["10.0.0.1@A", "10.0.0.2@B", "10.0.0.3@C"],
    ["c1", "c2", "c3", "c4", "c5", "c6", "c7"],
]

# The results of the classes of Java's client 4.9.8: each client's indexes in the sorted list of
# queues, with "|" between clients.
JAVA = [
    ("averagely", 0, 0, "0,1,2,3,4,5,6,7"),
    ("averagely", 0, 1, "0,1,2|3,4,5|6,7"),
    ("averagely", 0, 2, "0,1|2|3|4|5|6|7"),
    ("averagely", 1, 0, "0,1,2,3,4,5"),
    ("averagely", 1, 1, "0,1|2,3|4,5"),
    ("averagely", 1, 2, "0|1|2|3|4|5|"),
    ("averagely", 2, 0, "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14"),
    ("averagely", 2, 1, "0,1,2,3,4|5,6,7,8,9|10,11,12,13,14"),
    ("averagely", 2, 2, "0,1,2|3,4|5,6|7,8|9,10|11,12|13,14"),
    ("circle", 0, 0, "0,1,2,3,4,5,6,7"),
    ("circle", 0, 1, "0,3,6|1,4,7|2,5"),
    ("circle", 0, 2, "0,7|1|2|3|4|5|6"),
    ("circle", 1, 0, "0,1,2,3,4,5"),
    ("circle", 1, 1, "0,3|1,4|2,5"),
    ("circle", 1, 2, "0|1|2|3|4|5|"),
    ("circle", 2, 0, "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14"),
    ("circle", 2, 1, "0,3,6,9,12|1,4,7,10,13|2,5,8,11,14"),
    ("circle", 2, 2, "0,7,14|1,8|2,9|3,10|4,11|5,12|6,13"),
    ("room", 0, 0, ""),
    ("room", 0, 1, "||"),
    ("room", 0, 2, "||||||"),
    ("room", 1, 0, "0,1,2"),
    ("room", 1, 1, "0|1|2"),
    ("room", 1, 2, "0|1|2||||"),
    ("room", 2, 0, "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14"),
    ("room", 2, 1, "0,1,2,3,4|5,6,7,8,9|10,11,12,13,14"),
    ("room", 2, 2, "0,1,14|2,3|4,5|6,7|8,9|10,11|12,13"),
    ("hash", 0, 0, "0,1,2,3,4,5,6,7"),
    ("hash", 0, 1, "0,1|7|2,3,4,5,6"),
    ("hash", 0, 2, "1||2,3|6|4|5,7|0"),
    ("hash", 1, 0, "0,1,2,3,4,5"),
    ("hash", 1, 1, "2,4||0,1,3,5"),
    ("hash", 1, 2, "|2,3||1||0,5|4"),
    ("hash", 2, 0, "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14"),
    ("hash", 2, 1, "2,4,6,7,9|3,14|0,1,5,8,10,11,12,13"),
    ("hash", 2, 2, "5|2,3,4|11|1,12,14|7,8,9|0,10,13|6"),
    ("hash3", 0, 0, "0,1,2,3,4,5,6,7"),
    ("hash3", 0, 1, "0,1,2,3,5||4,6,7"),
    ("hash3", 0, 2, "0|6|5,7|4|1|2,3|"),
    ("hash3", 1, 0, "0,1,2,3,4,5"),
    ("hash3", 1, 1, "2,4||0,1,3,5"),
    ("hash3", 1, 2, "|2||1|4|0,5|3"),
    ("hash3", 2, 0, "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14"),
    ("hash3", 2, 1, "2,3,4,6,7,8,9,14||0,1,5,10,11,12,13"),
    ("hash3", 2, 2, "|2,4,5,10,12,13|11|1,14|6,7,8,9|0,3|"),
    ("nearby", 0, 0, "0,1,2,3,4,5,6,7"),
    ("nearby", 0, 1, "0,1,2|3,4,5|6,7"),
    ("nearby", 0, 2, "0,1|2|3|4|5|6|7"),
    ("nearby", 1, 0, "0,1,2,3,4,5"),
    ("nearby", 1, 1, "0,1|3,4,5|2"),
    ("nearby", 1, 2, "0|3,4,5|1|2|||"),
    ("nearby", 2, 0, "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14"),
    ("nearby", 2, 1, "0,1,2,3,4,10,11|12,13|5,6,7,8,9,14"),
    ("nearby", 2, 2, "0,1,10|11|2,3,12|4,5,13|6,7,14|8|9"),
]


@pytest.mark.parametrize(("strategy", "brokers", "clients", "allocation"), JAVA)
def test_queues_are_allocated_as_java_allocates_them(
    strategy: str, brokers: int, clients: int, allocation: str
) -> None:
    names, count = BROKERS[brokers]
    queues = [MessageQueue("topic", name, number) for name in names for number in range(count)]
    shuffled = queues[::-1]
    assert allocation == "|".join(
        ",".join(
            str(queues.index(queue))
            for queue in STRATEGIES[strategy](client, shuffled, CLIENTS[clients][::-1])
        )
        for client in CLIENTS[clients]
    )


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=list(STRATEGIES))
def test_a_client_that_is_not_a_member_gets_nothing(strategy: Strategy) -> None:
    assert strategy("z", [MessageQueue("topic", "r1@a", 0)], ["a", "b"]) == []


def test_a_configured_member_gets_its_queues_of_the_topic_that_exist() -> None:
    mine = [MessageQueue("topic", "broker", 7), MessageQueue("other", "broker", 0)]
    strategy = AllocateByConfig([*mine, MessageQueue("topic", "gone", 0)])
    assert strategy("a", queues(8), ["b"]) == mine[:1]


def test_a_room_is_the_text_before_the_only_at_sign() -> None:
    odd = [MessageQueue("topic", name, 0) for name in ("r1", "r1@a@b", "@r1", "r1@a@", "r2@a")]
    assert AllocateByMachineRoom(["r1"])("a", odd, ["a"]) == [MessageQueue("topic", "r1@a@", 0)]


def test_a_ring_without_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="virtual_nodes must be at least 1, not 0"):
        AllocateByConsistentHash(0)
