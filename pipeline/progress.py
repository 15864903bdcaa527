"""Progress: how far a streaming query is behind its topics, from what Spark says of it.

Python data sources have no metrics of their own in Spark. What there is: each source of a progress
says where the last batch ended (endOffset), and where its topics did (latestOffset).
"""

import json
from collections.abc import Mapping
from typing import Any

from mq.pipeline.offsets import Offsets, Queue
from mq.pipeline.topic_generations import from_checkpoint
from mq.pipeline.tube.offsets import INDEX_RECORD, from_keys


def lag_by_queue(progress: Mapping[str, Any]) -> dict[Queue, int]:
    """How many messages of each queue a query has not read, when its last batch was planned.

    `progress` is `query.lastProgress`, or what a listener gets, as JSON or as Spark's own class.
    Other sources than topics count for nothing. Of a partition of TubeMQ it is so many messages at
    most: others of its store are counted with it.
    """
    lag: dict[Queue, int] = {}
    for source in progress["sources"]:
        for read, step in ((from_checkpoint, 1), (from_keys, INDEX_RECORD)):
            try:
                ended, latest = (
                    read(_read(source["endOffset"])),
                    read(_read(source["latestOffset"])),
                )
            except ValueError:
                continue  # another source: its offsets look otherwise
            lag.update(_lag(ended, latest, step))
    return lag


def _lag(ended: Offsets, latest: Offsets, step: int) -> Offsets:
    return {queue: max(0, end - ended.get(queue, 0)) // step for queue, end in latest.items()}


def _read(offsets: Any) -> object:
    """Spark gives JSON as text in some places, as what it says in others; null if there is none."""
    read = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {} if read is None else read
