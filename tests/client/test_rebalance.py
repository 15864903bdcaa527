from hypothesis import given
from hypothesis import strategies as st

from mq.client.rebalance import allocate_averagely
from mq.protocol.bodies import MessageQueue


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("topic", "broker", number) for number in range(count)]


def ids(client: str, count: int, clients: list[str]) -> list[int]:
    return [queue.queue_id for queue in allocate_averagely(client, queues(count), clients)]


def test_queues_are_cut_into_runs_and_the_first_clients_get_one_more() -> None:
    assert ids("a", 8, ["c", "a", "b"]) == [0, 1, 2]
    assert ids("b", 8, ["c", "a", "b"]) == [3, 4, 5]
    assert ids("c", 8, ["c", "a", "b"]) == [6, 7]


def test_a_client_too_many_gets_nothing() -> None:
    assert ids("c", 2, ["a", "b", "c"]) == []


def test_a_client_that_the_broker_does_not_know_gets_nothing() -> None:
    assert ids("z", 4, ["a", "b"]) == []


def test_queues_of_all_brokers_are_dealt_out_in_one_order() -> None:
    both = [MessageQueue("t", "b2", 0), MessageQueue("t", "b1", 1), MessageQueue("t", "b1", 0)]
    assert allocate_averagely("a", both, ["a", "b"]) == [
        MessageQueue("t", "b1", 0),
        MessageQueue("t", "b1", 1),
    ]


@given(st.integers(0, 40), st.sets(st.text(min_size=1, max_size=3), min_size=1, max_size=12))
def test_every_queue_has_exactly_one_owner(count: int, clients: set[str]) -> None:
    owned = [n for client in clients for n in ids(client, count, list(clients))]
    assert sorted(owned) == list(range(count))
