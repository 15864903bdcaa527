"""Streams notice that a topic was deleted and recreated, however long the new queues are."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.protocol.bodies import MessageQueue
from mq.testing import RunningBroker
from tests.pipeline.conftest import require_streams
from tests.pipeline.filling import fill

require_streams()

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit  # noqa: E402

from mq.pipeline.errors import DataLoss  # noqa: E402
from mq.pipeline.options import parse_options  # noqa: E402
from mq.pipeline.stream import StreamReader  # noqa: E402
from mq.pipeline.topic_generations import KEY  # noqa: E402
from tests.pipeline.pairs import BODY, read  # noqa: E402

TOPIC = "Orders"
ALL = ReadAllAvailable()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "store") as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


def send(broker: RunningBroker, name: str, *counts: int) -> list[bytes]:
    """Send this many messages to each queue."""
    sent = []
    for queue_id, count in enumerate(counts):
        bodies = [f"{name} {queue_id} {number}".encode() for number in range(count)]
        if bodies:
            fill(broker.name_server, TOPIC, bodies, MessageQueue(TOPIC, "broker-a", queue_id))
        sent += bodies
    return sorted(sent)


def recreate(broker: RunningBroker) -> None:
    with BlockingSession(broker.name_server) as session:
        run(Admin(session).delete_topic_in_broker(broker.address, TOPIC))
    broker.create_topic(TOPIC, 2)


def stream(broker: RunningBroker, **more: str) -> StreamReader:
    options = {"nameServer": broker.name_server, "topic": TOPIC, "startingOffsets": "earliest"}
    return StreamReader(parse_options({**options, **more}), BODY)


def batches(reader: StreamReader, start: dict[str, Any], limit: ReadLimit = ALL) -> list[bytes]:
    """Return the bodies of all batches from `start` on."""
    bodies: list[bytes] = []
    while (end := reader.latestOffset(start, limit)) != start:
        bodies += read(reader, start, end)
        start = end
    return sorted(bodies)


def test_the_messages_of_a_new_generation_are_read_or_the_query_fails(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, "old", 3, 3)
    reader = stream(broker)
    read_up_to = reader.latestOffset(reader.initialOffset(), ALL)
    recreate(broker)
    new = send(broker, "new", 9, 4)
    end = reader.latestOffset(read_up_to, ALL)
    with pytest.raises(DataLoss, match="topic Orders at broker broker-a was deleted and created"):
        reader.partitions(read_up_to, end)
    lenient = stream(broker, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "mq.pipeline.data_loss"):
        assert read(lenient, read_up_to, end) == new  # as the batch is repeated after a restart
    assert "the new topic is read from its beginning" in caplog.text
    assert batches(lenient, read_up_to) == new
    assert lenient.latestOffset(end, ALL) == end
    later = send(broker, "later", 0, 2)
    assert batches(lenient, end) == later


def test_a_limit_of_batches_skips_no_message_of_a_new_generation(broker: RunningBroker) -> None:
    send(broker, "old", 3, 3)
    reader = stream(broker, failOnDataLoss="false", maxOffsetsPerTrigger="2")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    recreate(broker)
    new = send(broker, "new", 5, 6)
    assert batches(reader, start, reader.getDefaultReadLimit()) == new


def test_a_query_from_latest_notices_a_new_generation_before_its_first_message(
    broker: RunningBroker,
) -> None:
    send(broker, "old", 0, 2)
    reader = stream(broker, startingOffsets="latest", failOnDataLoss="false")
    begin = reader.initialOffset()
    assert reader.latestOffset(begin, ALL) == begin
    assert reader.partitions(begin, begin) == []
    recreate(broker)
    new = send(broker, "new", 0, 4)
    assert batches(reader, begin) == new


def test_an_empty_queue_of_a_new_generation_is_read_from_its_start_later(
    broker: RunningBroker,
) -> None:
    send(broker, "old", 3, 3)
    reader = stream(broker, failOnDataLoss="false")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    recreate(broker)
    new = send(broker, "new", 0, 5)
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == new
    assert batches(reader, end) == []
    more = send(broker, "more", 4, 0)
    assert batches(reader, end) == more


def test_a_checkpoint_of_an_earlier_release_is_read_and_gets_a_generation(
    broker: RunningBroker,
) -> None:
    send(broker, "old", 3, 3)
    start = {TOPIC: {"broker-a": {"0": 3, "1": 2}}}
    reader = stream(broker)
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == [b"old 1 2"]
    assert end[KEY][TOPIC]["broker-a"][:3] == [0, 1, 2]
    assert reader.latestOffset(end, ALL) == end
    recreate(broker)
    send(broker, "new", 9, 9)
    with pytest.raises(DataLoss, match="was deleted and created again"):
        reader.partitions(end, reader.latestOffset(end, ALL))


def test_available_now_reads_a_new_generation_to_its_end(broker: RunningBroker) -> None:
    send(broker, "old", 3, 3)
    reader = stream(broker, failOnDataLoss="false")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    recreate(broker)
    new = send(broker, "new", 4, 1)
    reader.prepareForTriggerAvailableNow()
    assert batches(reader, start) == new
