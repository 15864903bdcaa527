"""Messages that are sent, and found again, by commands."""

import json
import time
from typing import Any

from tests.cli.support import Finished, Mq


def send(cluster: Mq, topic: str, body: str, *options: str) -> dict[str, Any]:
    """Send a message; returns what the command says of it."""
    sent = cluster("sendMessage", "-t", topic, "-p", body, "-o", "json", *options)
    assert sent.status == 0, sent.err
    (row,) = sent.json["data"]
    assert row["sendStatus"] == "SEND_OK"
    return dict(row)


def make(cluster: Mq, topic: str) -> None:
    """Make a topic of two queues."""
    made = cluster("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "2", "-w", "2")
    assert made.status == 0


def indexed(cluster: Mq, count: int, *arguments: str) -> list[dict[str, Any]]:
    """What a query by key finds once it is `count`: a broker indexes just after it has stored."""
    deadline = time.monotonic() + 60
    while True:
        finished = cluster(*arguments, "--output", "json")
        found: list[dict[str, Any]] = finished.json["data"] if finished.status == 0 else []
        if len(found) == count or time.monotonic() > deadline:
            assert len(found) == count, finished.err
            return found


def messages(finished: Finished) -> list[dict[str, Any]]:
    """The messages of a command that goes on: a document of JSON a line."""
    assert finished.status == 0, finished.err
    return [item for line in finished.out.splitlines() for item in json.loads(line)["data"]]
