import json

from mq.pipeline.offsets import Queue
from mq.pipeline.progress import lag_by_queue


def test_lag_is_counted_from_the_batch_to_the_end_of_each_queue() -> None:
    end = {"T": {"broker-a": {"0": 5, "1": 7}}}
    latest = {"T": {"broker-a": {"0": 9, "1": 7, "2": 3}}}
    progress = {
        "sources": [
            {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)},
            {"endOffset": 12, "latestOffset": None},
            {"endOffset": {"logOffset": 3}, "latestOffset": {"logOffset": 3}},
            {"endOffset": "null", "latestOffset": None},
        ]
    }
    first, second, third = (Queue("T", "broker-a", n) for n in range(3))
    assert lag_by_queue(progress) == {first: 4, second: 0, third: 3}
