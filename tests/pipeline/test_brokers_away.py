"""Streams of two brokers, one of which dies and returns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.conftest import require_streams
from tests.system.daemon import BrokerProcess

require_streams()

from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402

from mq.pipeline.batch import BatchReader  # noqa: E402
from mq.pipeline.errors import BrokerAway, BrokerDown, DataLoss  # noqa: E402
from tests.pipeline.checkpoints import offsets_in  # noqa: E402
from tests.pipeline.pairs import BODY, TOPIC, Pair, pair_in, read  # noqa: E402


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with pair_in(tmp_path) as pair:
        yield pair


def test_offsets_of_an_absent_broker_stay_and_its_messages_are_read_later(pair: Pair) -> None:
    first = sorted(pair.send("broker-a", 5) + pair.send("broker-b", 5))
    reader = pair.stream(failOnDataLoss="false")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert read(reader, begin, end) == first

    more = pair.send("broker-b", 3)
    pair.second.kill()
    more_at_first = pair.send("broker-a", 4)
    without = reader.latestOffset(end, ReadAllAvailable())
    assert without[TOPIC]["broker-b"] == {"0": 5}
    assert read(reader, end, without) == more_at_first
    with pytest.raises((BrokerDown, DataLoss), match="broker-b"):
        pair.stream().latestOffset(without, ReadAllAvailable())

    pair.second.start()
    whole = reader.latestOffset(without, ReadAllAvailable())
    assert read(reader, without, whole) == more
    assert offsets_in(whole) == {TOPIC: {"broker-a": {"0": 9}, "broker-b": {"0": 8}}}


def test_a_batch_whose_broker_dies_fails_and_is_complete_when_repeated(
    pair: Pair,
) -> None:
    sent = pair.send("broker-a", 2) + pair.send("broker-b", 2)
    reader = pair.stream(failOnDataLoss="false")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    pair.second.kill()
    with pytest.raises(BrokerAway, match="Nothing is lost: start the broker"):
        read(reader, begin, end)
    # A batch that is repeated after a restart, from a start that did not include the queue.
    with pytest.raises(BrokerAway, match="Nothing is lost: start the broker"):
        read(pair.stream(failOnDataLoss="false"), {}, end)
    # A table is read only once: unreadable messages are skipped if that is allowed.
    table = BatchReader(pair.options(failOnDataLoss="false"), BODY)
    assert read(table) == [b"broker-a 0", b"broker-a 1"]
    pair.second.start()
    assert read(pair.stream(failOnDataLoss="false"), begin, end) == sorted(sent)


def test_queues_of_a_new_broker_are_read_from_the_start(pair: Pair) -> None:
    pair.second.kill()
    pair.second = BrokerProcess(
        pair.second.store.parent / "third",
        {"brokerName": "broker-c", "namesrvAddr": pair.first.name_server, "listenPort": "0"},
    )
    reader = pair.stream(failOnDataLoss="false")
    begin = reader.initialOffset()
    assert "broker-c" not in begin.get(TOPIC, {})
    with pair.second as third:
        pair.create(third.address)
        pair.sent["broker-c"] = 0
        sent = pair.send("broker-c", 3)
        end = reader.latestOffset(begin, ReadAllAvailable())
        assert read(reader, begin, end) == sent
        # After a restart Spark takes the start from the checkpoint.
        assert read(pair.stream(), begin, end) == sent


def test_a_queue_without_a_route_is_data_loss_unless_allowed(pair: Pair) -> None:
    start = {TOPIC: {"broker-a": {"0": 0}, "broker-x": {"0": 7}}}
    sent = pair.send("broker-a", 2)
    with pytest.raises(
        DataLoss, match="queue 0 of topic Orders at broker broker-x has disappeared"
    ):
        pair.stream().latestOffset(start, ReadAllAvailable())
    reader = pair.stream(failOnDataLoss="false")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end[TOPIC]["broker-x"] == {"0": 7}
    assert read(reader, start, end) == sent
