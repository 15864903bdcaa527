"""Offsets are found by a pattern, or by the decoder if an answer has another form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.errors import BadAnswer
from mq.daemons.console.collector import offsets_text
from mq.daemons.console.collector.offsets_text import QueueProgress, bounds, progress
from mq.protocol.bodies import (
    ConsumeStats,
    MessageQueue,
    OffsetWrapper,
    TopicOffset,
    TopicStatsTable,
)

BROKER = "127.0.0.1:10911"
COMPACT = (
    b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"a","queueId":1,"topic":"T"}:'
    b'{"brokerOffset":9,"consumerOffset":-1,"lastTimestamp":5,"pullOffset":7}}}'
)
OTHER_ORDER = (
    b'{"offsetTable":{{"topic":"T","brokerName":"a","queueId":1}:'
    b'{"consumerOffset":-1, "brokerOffset":9,"lastTimestamp":5}},"consumeTps":0.0}'
)


@pytest.mark.parametrize("body", [COMPACT, OTHER_ORDER])
def test_an_answer_of_either_form_is_read(body: bytes) -> None:
    assert progress(body, BROKER) == [QueueProgress("T", 1, 9, -1, 5)]


names = st.text(max_size=20)
numbers = st.integers(-1, 2**62)


@given(st.dictionaries(st.tuples(names, st.integers(0, 99)), st.tuples(numbers, numbers, numbers)))
def test_every_group_is_read_as_the_decoder_reads_it(
    queues: dict[tuple[str, int], tuple[int, int, int]],
) -> None:
    table = {
        MessageQueue(topic, "b", queue): OffsetWrapper(
            broker_offset=end, consumer_offset=place, last_timestamp=at
        )
        for (topic, queue), (end, place, at) in queues.items()
    }
    found = progress(ConsumeStats(offset_table=table).encode(), BROKER)
    assert {(q.topic, q.queue): (q.end, q.place, q.consumed_at) for q in found} == queues


@given(st.lists(st.tuples(numbers, numbers, numbers), max_size=9))
def test_every_topic_is_summed_as_the_decoder_reads_it(queues: list[tuple[int, int, int]]) -> None:
    table = {
        MessageQueue("T", "b", number): TopicOffset(
            min_offset=begin, max_offset=end, last_update_timestamp=at
        )
        for number, (begin, end, at) in enumerate(queues)
    }
    found = bounds(TopicStatsTable(offset_table=table).encode(), BROKER)
    assert found.queues == len(queues)
    assert found.end == sum(end for _, end, _ in queues)
    assert found.stored == sum(end - begin for begin, end, _ in queues)
    assert found.last_stored_at == max((at for _, _, at in queues), default=0)


def test_an_answer_of_too_many_queues_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_text, "MOST_QUEUES", 0)
    with pytest.raises(BadAnswer, match="more than 0 queues"):
        progress(COMPACT, BROKER)


def test_what_cannot_be_read_names_the_broker() -> None:
    with pytest.raises(BadAnswer, match=BROKER):
        progress(b'{"consumerOffset"', BROKER)
