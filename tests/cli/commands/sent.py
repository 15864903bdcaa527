"""Messages that commands send and find again."""

import json
import time
from typing import Any

from tests.cli.support import Finished, Mq


def send(cluster: Mq, topic: str, body: str, *options: str) -> dict[str, Any]:
    """Send a message; return the output."""
    sent = cluster("sendMessage", "-t", topic, "-p", body, "-o", "json", *options)
    assert sent.status == 0, sent.err
    (row,) = sent.json["data"]
    assert row["sendStatus"] == "SEND_OK"
    return dict(row)


def make(cluster: Mq, topic: str) -> None:
    """Create a topic of two queues."""
    made = cluster("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "2", "-w", "2")
    assert made.status == 0


def indexed(cluster: Mq, count: int, *arguments: str) -> list[dict[str, Any]]:
    """Return the results of a query by key once there are `count`: indexing is slightly later."""
    deadline = time.monotonic() + 60
    while True:
        finished = cluster(*arguments, "--output", "json")
        found: list[dict[str, Any]] = finished.json["data"] if finished.status == 0 else []
        if len(found) == count or time.monotonic() > deadline:
            assert len(found) == count, finished.err
            return found


def messages(finished: Finished) -> list[dict[str, Any]]:
    """Yield the messages of an endless command: one JSON document per line."""
    assert finished.status == 0, finished.err
    return [item for line in finished.out.splitlines() for item in json.loads(line)["data"]]
