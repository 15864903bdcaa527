"""Progress: how far a streaming query is behind its topics, from what Spark says of it.

Python data sources have no metrics of their own in Spark. What there is: each source of a progress
says where the last batch ended (endOffset), and where its topics did (latestOffset).
"""

import json
from collections.abc import Mapping
from typing import Any

from mq.pipeline.offsets import Queue, from_nested


def lag_by_queue(progress: Mapping[str, Any]) -> dict[Queue, int]:
    """How many messages of each queue a query has not read, when its last batch was planned.

    `progress` is `query.lastProgress`, or what a listener gets, as JSON or as Spark's own class.
    Other sources than topics count for nothing.
    """
    lag: dict[Queue, int] = {}
    for source in progress["sources"]:
        try:
            ended = from_nested(_read(source["endOffset"]))
            latest = from_nested(_read(source["latestOffset"]))
        except ValueError:
            continue  # another source: its offsets look otherwise
        for queue, end in latest.items():
            lag[queue] = max(0, end - ended.get(queue, 0))
    return lag


def _read(offsets: Any) -> object:
    """Spark gives JSON as text in some places, as what it says in others; null if there is none."""
    read = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {} if read is None else read
