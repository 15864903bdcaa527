"""Progress: the lag of a streaming query, from Spark's progress reports.

Python data sources have no metrics of their own in Spark. But each source in a report has the end
of the last batch (endOffset) and the ends of its topics (latestOffset).
"""

import json
from collections.abc import Mapping
from typing import Any

from mq.pipeline.offsets import Offsets, Queue
from mq.pipeline.topic_generations import from_checkpoint
from mq.pipeline.tube.offsets import INDEX_RECORD, from_keys


def lag_by_queue(progress: Mapping[str, Any]) -> dict[Queue, int]:
    """Return the number of unread messages of each queue when the last batch was planned.

    `progress` is `query.lastProgress`, or what a listener gets, as JSON or as Spark's own class.
    Sources other than topics are ignored. For a partition of TubeMQ the number is an upper bound:
    messages of other partitions in its store are included.
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
                continue  # another source, with other offsets
            lag.update(_lag(ended, latest, step))
    return lag


def _lag(ended: Offsets, latest: Offsets, step: int) -> Offsets:
    return {queue: max(0, end - ended.get(queue, 0)) // step for queue, end in latest.items()}


def _read(offsets: Any) -> object:
    """Spark gives JSON as text in some places, as objects in others; null if there is none."""
    read = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {} if read is None else read
