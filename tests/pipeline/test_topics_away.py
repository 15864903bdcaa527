"""Topics that no name server knows for a while, because their only broker is down."""

import logging
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from tests.pipeline.conftest import require_streams

require_streams()

from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402

from mq.pipeline.batch import BatchReader  # noqa: E402
from mq.pipeline.errors import BrokerDown, DataLoss, OptionError  # noqa: E402
from mq.pipeline.stream import StreamReader  # noqa: E402
from tests.pipeline.checkpoints import offsets_in  # noqa: E402
from tests.pipeline.pairs import BODY, TOPIC, Pair, pair_in, read  # noqa: E402

AT_SECOND = "Refunds"  # a topic at broker-b only


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A pair whose broker-b is removed from the routes as soon as it is stopped."""
    with pair_in(tmp_path) as pair:
        pair.create(pair.second.address, AT_SECOND)
        yield pair


def stop(pair: Pair) -> None:
    """With SIGTERM, so that the name server removes it at once."""
    pair.second.stop()


def test_a_stream_survives_the_absence_of_the_only_broker_of_its_topic(pair: Pair) -> None:
    sent = pair.send("broker-b", 3, AT_SECOND)
    more = {"topic": AT_SECOND, "numRetries": "7", "retryIntervalMs": "50"}
    reader = pair.stream(**more)
    begin = reader.initialOffset()
    stop(pair)
    timer = Timer(0.3, pair.second.start)
    timer.start()
    try:
        end = reader.latestOffset(begin, ReadAllAvailable())
    finally:
        timer.join()
    assert read(reader, begin, end) == sent


def test_a_topic_that_stays_absent_is_data_loss_after_the_retries(pair: Pair) -> None:
    reader = pair.stream(topic=AT_SECOND)
    begin = reader.initialOffset()
    stop(pair)
    with pytest.raises(DataLoss, match=r"Refunds.*its brokers are down, or it was deleted"):
        reader.latestOffset(begin, ReadAllAvailable())


def test_an_absent_second_topic_is_skipped_if_data_loss_is_allowed(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    sent = pair.send("broker-a", 2) + pair.send("broker-b", 3, AT_SECOND)
    reader = pair.stream(topic=f"{TOPIC},{AT_SECOND}", failOnDataLoss="false")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert read(reader, begin, end) == sorted(sent)
    stop(pair)
    more = pair.send("broker-a", 2)
    with caplog.at_level(logging.WARNING):
        without = reader.latestOffset(end, ReadAllAvailable())
        reader.latestOffset(without, ReadAllAvailable())
    assert without[AT_SECOND] == end[AT_SECOND]
    assert read(reader, end, without) == more
    assert sum("topic Refunds is absent; skipping" in each.message for each in caplog.records) == 1
    # A query that starts meanwhile also skips it, and so does a table; but a query with no topic
    # left fails.
    begun = pair.stream(topic=f"{TOPIC},{AT_SECOND}", failOnDataLoss="false").initialOffset()
    assert set(offsets_in(begun)) == {TOPIC}
    table = pair.options(topic=f"{TOPIC},{AT_SECOND}", failOnDataLoss="false")
    assert len(read(BatchReader(table, BODY))) == 4
    for options in (pair.options(topic=AT_SECOND, failOnDataLoss="false"), pair.options(topic="X")):
        with pytest.raises(OptionError, match="no name server knows it"):
            BatchReader(options, BODY).partitions()


def test_a_table_reports_a_missing_expected_broker(pair: Pair) -> None:
    sent = sorted(pair.send("broker-a", 2) + pair.send("broker-b", 2))
    options = {"expectedBrokers": "broker-a,broker-b"}
    assert read(BatchReader(pair.options(**options), BODY)) == sent
    stop(pair)
    assert len(read(BatchReader(pair.options(), BODY))) == 2  # it cannot know
    with pytest.raises(BrokerDown, match=r"broker broker-b of topic Orders .*not in its route"):
        BatchReader(pair.options(**options), BODY).partitions()
    without = pair.options(**options, failOnDataLoss="false")
    assert len(read(BatchReader(without, BODY))) == 2


def test_available_now_reads_a_broker_that_was_absent_at_the_start(pair: Pair) -> None:
    sent = sorted(pair.send("broker-a", 2) + pair.send("broker-b", 2))
    begin = {TOPIC: {"broker-a": {"0": 0}, "broker-b": {"0": 0}}}
    reader: StreamReader = pair.stream()
    stop(pair)
    reader.prepareForTriggerAvailableNow()
    pair.second.start()
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert read(reader, begin, end) == sent
