import pytest

from mq.client.errors import ClientError
from mq.client.latency import BrokerFaults, FaultTolerance
from mq.client.targets import Target
from mq.protocol.bodies import BrokerData, MessageQueue, TopicRouteData


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "avoided"),
    [
        (0.0, 0),
        (0.099, 0),
        (0.549, 0),
        (0.55, 30),
        (0.999, 30),
        (1.0, 60),
        (2.5, 120),
        (3.0, 180),
        (14.9, 180),
        (15.0, 600),
        (99.0, 600),
    ],
)
def test_a_broker_is_avoided_for_as_long_as_java_would(seconds: float, avoided: float) -> None:
    assert FaultTolerance().duration(seconds) == avoided


def test_a_slow_broker_is_available_again_when_its_time_is_over() -> None:
    clock = Clock()
    faults = BrokerFaults(FaultTolerance(), clock)
    assert faults.is_available("a")
    faults.record("a", 1.5)
    assert not faults.is_available("a")
    clock.now += 60
    assert faults.is_available("a")
    faults.record("a", 0.01, isolate=True)
    clock.now += 599
    assert not faults.is_available("a")


def test_tables_that_do_not_fit_are_refused() -> None:
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


def test_messages_go_round_the_brokers_that_are_not_slow() -> None:
    faults = BrokerFaults(FaultTolerance(), Clock())
    assert brokers(faults) == {"a", "b", "c"}
    faults.record("b", 5)
    assert brokers(faults) == {"a", "c"}
    faults.record("a", 0.2)  # not slow enough to count
    assert brokers(faults) == {"a", "c"}


def test_when_all_are_slow_the_better_half_gets_the_messages() -> None:
    faults = BrokerFaults(FaultTolerance(), Clock())
    for name, seconds in (("a", 4.0), ("b", 1.0), ("c", 2.0)):
        faults.record(name, seconds)
    assert brokers(faults) == {"b"}


def test_what_is_known_of_a_broker_stays_where_a_topic_that_it_lacks_has_slow_ones_only() -> None:
    """It was the least bad of all, and forgotten, for it was not in that topic's route: what went
    to other topics was sent there again, into the void."""
    faults = BrokerFaults(FaultTolerance(), Clock())
    for name, seconds in (("c", 0.6), ("a", 4.0)):
        faults.record(name, seconds)
    assert {target("a").next_available(faults).broker_name for _ in range(3)} == {"a"}
    assert brokers(faults) == {"b"}


def test_where_all_brokers_of_a_topic_are_slow_its_better_ones_get_the_messages() -> None:
    faults = BrokerFaults(FaultTolerance(), Clock())
    for name, seconds in (("b", 0.6), ("d", 0.6), ("a", 1.0), ("c", 4.0)):
        faults.record(name, seconds)
    where = target("a", "c")
    assert {where.next_available(faults).broker_name for _ in range(12)} == {"a"}
