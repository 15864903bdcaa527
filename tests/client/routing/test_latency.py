import pytest

from mq.client.errors import ClientError
from mq.client.routing.latency import BrokerFaults, FaultTolerance
from mq.client.routing.targets import Target
from mq.protocol.bodies import BrokerData, MessageQueue, TopicRouteData


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "avoided"),
    [(0.0, 0), (0.549, 0), (0.55, 2), (1.8, 5), (3.0, 6), (5.0, 10), (14.9, 10), (99.0, 30)],
)
def test_a_broker_is_avoided_for_the_same_time_as_in_java(seconds: float, avoided: float) -> None:
    assert FaultTolerance().duration(seconds) == avoided


def test_a_slow_broker_is_used_again_after_its_time() -> None:
    clock = Clock()
    faults = BrokerFaults(FaultTolerance(), clock)
    faults.record("b", 1.5)
    assert brokers(faults) == {"a", "c"}
    clock.now += 2
    assert brokers(faults) == {"a", "b", "c"}


def test_one_send_a_second_tests_a_broker_that_has_failed_until_it_answers() -> None:
    clock = Clock()
    faults = BrokerFaults(FaultTolerance(), clock)
    faults.isolate("b")
    clock.now += 9.9
    assert brokers(faults) == {"a", "c"}
    for _ in range(3):
        clock.now += 1
        where = target()
        chosen = [where.next_available(faults).broker_name for _ in range(12)]
        assert chosen.count("b") == 1
    faults.record("b", 0.01)
    assert not faults
    assert brokers(faults) == {"a", "b", "c"}


def test_inconsistent_tables_are_refused() -> None:
    with pytest.raises(ClientError, match="2 latencies need as many durations, not 1"):
        FaultTolerance(latency=(0.1, 0.2), avoided=(1,))
    with pytest.raises(ClientError, match="must rise"):
        FaultTolerance(latency=(0.2, 0.1), avoided=(1, 2))


def target(*names: str) -> Target:
    names = names or ("a", "b", "c")
    route = TopicRouteData(
        broker_datas=[
            BrokerData(cluster="c", broker_name=name, broker_addrs={0: f"{name}:1"})
            for name in names
        ]
    )
    queues = [MessageQueue("t", name, number) for name in names for number in range(2)]
    return Target("t", route, queues, 0)


def brokers(faults: BrokerFaults, count: int = 12) -> set[str]:
    where = target()
    return {where.next_available(faults).broker_name for _ in range(count)}


def test_brokers_that_are_not_slow_get_messages_in_turn() -> None:
    faults = BrokerFaults(FaultTolerance(), Clock())
    assert brokers(faults) == {"a", "b", "c"}
    faults.record("b", 5)
    assert brokers(faults) == {"a", "c"}
    faults.record("a", 0.2)  # not slow enough to count
    assert brokers(faults) == {"a", "c"}


def test_if_all_brokers_are_slow_they_get_messages_in_turn() -> None:
    faults = BrokerFaults(FaultTolerance(), Clock())
    for name, seconds in (("a", 4.0), ("b", 1.0), ("c", 2.0)):
        faults.record(name, seconds)
    assert brokers(faults) == {"a", "b", "c"}


def test_a_slow_broker_is_better_than_one_that_has_failed() -> None:
    faults = BrokerFaults(FaultTolerance(), Clock())
    faults.isolate("a")
    faults.record("b", 4.0)
    faults.isolate("c")
    assert brokers(faults) == {"b"}


def test_a_broker_in_flight_is_avoided_even_if_all_others_are_slow() -> None:
    faults = BrokerFaults(FaultTolerance(), Clock())
    faults.record("b", 4.0)
    faults.record("c", 4.0)
    where = target()
    assert {where.next_available(faults, {"a"}).broker_name for _ in range(12)} == {"b", "c"}
