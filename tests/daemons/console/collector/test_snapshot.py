"""The rows of a snapshot, found by their names."""

from mq.daemons.console.collector.snapshot import BrokerRow, GroupRow, Snapshot, TopicRow


def _topic(name: str) -> TopicRow:
    return TopicRow(name, "normal", 8, 8, ("broker-a",), 6)


def test_rows_are_found_by_their_names_and_nothing_else() -> None:
    snapshot = Snapshot(1, topics=tuple(map(_topic, "ACE")), groups=(GroupRow("G"),))
    assert [snapshot.topic(name) and snapshot.topic(name).name for name in "ABCDEF"] == [  # type: ignore[union-attr]
        "A", None, "C", None, "E", None,
    ]  # fmt: skip
    assert snapshot.group("G") == GroupRow("G")
    assert snapshot.group("") is None
    assert Snapshot().topic("A") is None


def test_the_head_of_a_name_is_the_first_that_answers() -> None:
    dead = BrokerRow("C", "a", 0, "m:1", "master", seen=5, problem="no answer")
    slave = BrokerRow("C", "a", 1, "s:1", "slave", seen=9)
    other = BrokerRow("C", "b", 0, "m:2", "master")
    snapshot = Snapshot(9, brokers=(dead, slave, other))
    assert snapshot.heads() == (slave, other)
    assert not other.alive
    assert snapshot.broker("a", 1) == slave
    assert snapshot.broker("a", 2) is None


def test_before_the_first_answer_there_are_no_rows() -> None:
    assert not Snapshot().ready
    assert Snapshot().topics == ()
