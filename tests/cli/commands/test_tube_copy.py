"""Copies between a topic of RocketMQ and one of TubeMQ, with real servers on both sides."""

from pathlib import Path
from typing import Any

import pytest

from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from tests.cli.commands.tube_pair import pair, rows
from tests.cli.pairs import make_topic, put
from tests.cli.support import Mq

__all__ = ["pair"]


def fill(rocket: Standalone, topic: str, count: int) -> None:
    make_topic(rocket, topic, 2)
    for number in range(count):
        properties = {"price": "5,50=%", "a": str(number)}
        message = Message(topic, b"body %d" % number, f"tag{number % 2}", ["k1", "k2"], properties)
        put(rocket, [message], number % 2)


def consumed(mq: Mq, pair: Any, topic: str, group: str, count: int) -> list[dict[str, Any]]:
    words = ("tube", "consume", topic, "-g", group, "--first", "--wait", "20", "-o", "json")
    return rows(mq(*words, "--limit", str(count), "-n", pair.master_address))


def test_a_topic_is_copied_to_tubemq_and_back(
    cluster: Mq, standalone: Standalone, pair: Any, tmp_path: Path
) -> None:
    fill(standalone, "ToTube", 20)
    state = tmp_path / "state"
    words = ("message", "copy", "-t", "ToTube", "--to-tube", pair.master_address)
    dry = cluster(*words, "--to-topic", "demo", "--dry-run")
    assert dry.status == 0 and "demo" in dry.out
    done = cluster(*words, "--to-topic", "demo", "--resume", str(state), "-o", "json")
    assert (done.status, done.json["totals"]) == (0, {"messages": 20}), done.err
    assert not state.exists()
    assert {(row["brokerName"], row["queueId"]) for row in done.json["data"]} == {
        ("1", 0),
        ("1", 1),
    }
    found = consumed(cluster, pair, "demo", "copied", 20)
    for queue in (0, 1):
        bodies = [row["body"] for row in found if row["partition"] == f"1:demo:{queue}"]
        assert bodies == [f"body {number}" for number in range(queue, 20, 2)]
    assert {row["type"] for row in found} == {"tag0", "tag1"}
    assert "price=5%2C50%3D%25" in found[0]["attributes"]

    make_topic(standalone, "FromTube", 2)
    words = ("message", "copy", "-t", "demo", "--from-tube", pair.master_address)
    back = cluster(*words, "--to-topic", "FromTube", "--resume", str(state), "-o", "json")
    assert (back.status, back.json["totals"]) == (0, {"messages": 20}), back.err
    assert not state.exists()
    messages = cluster("printMsg", "-t", "FromTube", "-o", "json")
    lines = [item for item in rows(messages)]
    assert len(lines) == 20
    first = next(item for item in lines if item["body"] == "body 0")
    assert first["tags"] == "tag0" and first["properties"]["price"] == "5,50=%"
    assert first["keys"] == "k1 k2"
    for queue in (0, 1):
        of_queue = [item for item in lines if item["queueId"] == queue]
        bodies = [item["body"] for item in sorted(of_queue, key=lambda item: item["queueOffset"])]
        assert bodies == [f"body {number}" for number in range(queue, 20, 2)]


def test_a_copy_from_tubemq_goes_on_where_it_was_cut(
    cluster: Mq, standalone: Standalone, pair: Any, tmp_path: Path
) -> None:
    import json

    make_topic(standalone, "Resumed", 1)
    for _ in range(5):
        assert cluster("tube", "send", "other", "-p", "x", "-n", pair.master_address).status == 0
    state = tmp_path / "state"
    words = ["message", "copy", "-t", "other", "--from-tube", pair.master_address]
    words += ["--to-topic", "Resumed", "--resume", str(state), "-o", "json"]
    asked = {
        "fromTube": pair.master_address,
        "topic": "other",
        "toTopic": "Resumed",
        "nameServers": [standalone.name_server_address],
        "toNameServers": None,
        "map": [],
    }
    done = {"1:other:0": {"next": 3 * 28, "to": "broker-a:0"}}
    state.write_text(json.dumps({"asked": asked, "queues": done}))
    finished = cluster(*words)
    assert finished.status == 0, finished.err
    assert finished.json["totals"] == {"messages": 2}
    state.write_text(json.dumps({"asked": asked, "queues": {"1:gone:0": {"next": 0, "to": ""}}}))
    missed = cluster(*words)
    assert missed.status == 1 and "1:gone:0: it cannot be read now" in missed.err
    assert state.exists()
    state.write_text("{}")
    assert cluster(*words).status == 65


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--from-tube", "h:1", "--to-tube", "h:1"), "whole topic"),
        (("--from-tube", "h:1", "--tag", "x"), "whole topic"),
        (
            ("--to-tube", "h:1", "--to-namesrv", "h:1"),
            "cannot be combined with --to-namesrv or --map",
        ),
        (("--to-tube", "h:1", "--map", "0=0"), "cannot be combined with --to-namesrv or --map"),
    ],
)
def test_what_cannot_be_copied_is_refused(cluster: Mq, words: tuple[str, ...], why: str) -> None:
    finished = cluster("message", "copy", "-t", "Some", *words)
    assert finished.status == 64 and why in finished.err
