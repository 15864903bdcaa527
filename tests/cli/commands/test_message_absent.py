"""Messages to files and topics while a broker is down that the interrupted command knew."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from tests.cli.pairs import another_broker, dead_broker, make_topic, put
from tests.cli.support import Mq


def numbered(topic: str, begin: int, end: int) -> list[Message]:
    return [Message(topic, b"%d" % number) for number in range(begin, end)]


def bodies(mq: Mq, topic: str, *options: str) -> list[str]:
    finished = mq("message", "export", "-", "-t", topic, *options)
    assert finished.status == 0, finished.err
    return [json.loads(line)["body"] for line in finished.out.splitlines()]


def file_bodies(file: Path) -> list[int]:
    return sorted(int(json.loads(line)["body"]) for line in file.read_text().splitlines())


@contextmanager
def broker_b(standalone: Standalone, tmp_path: Path, *topics: str) -> Iterator[None]:
    """A second broker with a queue of each topic, in addition to the first."""
    with another_broker(standalone, "broker-b", tmp_path / "store-b") as broker:
        for topic in topics:
            make_topic(standalone, topic, 1, at=broker)
        yield


# --- import


def import_file(tmp_path: Path, topic: str, count: int) -> Path:
    """Lines from two brokers in turn; those of the first broker are all valid."""
    file = tmp_path / "messages.jsonl"
    lines = (
        {
            "topic": topic,
            "brokerName": ("broker-a", "broker-b")[number % 2],
            "queueId": 0,
            "body": str(number),
        }
        for number in range(count)
    )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def cut_import(cluster: Mq, file: Path) -> None:
    """An import that has sent all of a file except its last, invalid line."""
    with file.open("a") as more:
        more.write("{\n")
    assert cluster("message", "import", str(file)).status == 65


def without_last_line(file: Path) -> None:
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))


def test_an_import_goes_on_only_to_the_queues_that_it_has_begun_with(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "AbsentIn", 1)
    file = import_file(tmp_path, "AbsentIn", 100)
    with broker_b(standalone, tmp_path, "AbsentIn"):
        cut_import(cluster, file)
        without_last_line(file)
        with file.open("a") as more:  # the unsent rest
            for number in (100, 101):
                broker = ("broker-a", "broker-b")[number % 2]
                line = {"topic": "AbsentIn", "brokerName": broker, "queueId": 0}
                more.write(json.dumps(line | {"body": str(number)}) + "\n")
    refused = cluster("message", "import", str(file), "--resume")
    assert refused.status == 69, refused.err
    assert "AbsentIn:broker-b:0 went to broker-b:0 before" in refused.err
    assert "would go to broker-a:0 now" in refused.err
    assert "\nhint: " in refused.err
    assert (tmp_path / ".messages.jsonl.import").exists()
    with broker_b(standalone, tmp_path, "AbsentIn"):
        done = cluster("message", "import", str(file), "--resume", "-o", "json")
        assert done.status == 0, done.err
        assert done.json["totals"]["messages"] == 2
        assert sorted(map(int, bodies(cluster, "AbsentIn"))) == list(range(102))
    assert not (tmp_path / ".messages.jsonl.import").exists()


def test_lines_that_go_to_one_queue_from_two_are_counted_each_by_itself(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    """One queue for both sources: messages of one do not show the progress of the other."""
    make_topic(standalone, "AbsentOne", 1)
    file = import_file(tmp_path, "AbsentOne", 10)
    cut_import(cluster, file)
    without_last_line(file)
    state = json.loads((tmp_path / ".messages.jsonl.import").read_text())
    assert state["queues"] == {
        "AbsentOne:broker-a:0": {"line": 9, "to": "broker-a:0"},
        "AbsentOne:broker-b:0": {"line": 10, "to": "broker-a:0"},
    }


def test_lines_without_a_queue_are_spread_and_go_on_where_they_were(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "AbsentAny", 3)
    file = tmp_path / "messages.jsonl"
    file.write_text("".join(f'{{"topic":"AbsentAny","body":"{n}"}}\n' for n in range(30)))
    cut_import(cluster, file)
    for queue_id in range(3):
        assert len(bodies(cluster, "AbsentAny", "-i", str(queue_id))) == 10
    without_last_line(file)
    resumed = cluster("message", "import", str(file), "--resume", "-o", "json")
    assert (resumed.status, resumed.json["totals"]["messages"]) == (0, 0)


def test_lines_with_one_sharding_key_go_to_one_queue(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "AbsentShard", 3)
    file = tmp_path / "messages.jsonl"
    properties = '{"__SHARDINGKEY":"order-7"}'
    file.write_text(
        "".join(
            f'{{"topic":"AbsentShard","body":"{n}","properties":{properties}}}\n' for n in range(9)
        )
    )
    assert cluster("message", "import", str(file)).status == 0
    counts = [len(bodies(cluster, "AbsentShard", "-i", str(queue_id))) for queue_id in range(3)]
    assert sorted(counts) == [0, 0, 9]


# --- export


def test_an_export_goes_on_only_with_the_queues_that_it_has_begun_with(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "AbsentOut", 1)
    put(standalone, numbered("AbsentOut", 0, 5), 0)
    file = tmp_path / "messages.jsonl"
    state = tmp_path / "messages.jsonl.state"
    with broker_b(standalone, tmp_path, "AbsentOut"):
        put(standalone, numbered("AbsentOut", 5, 9), 0, broker="broker-b")
    # Interrupted before it had read anything of broker-b, and a line of broker-a.
    asked = {"topic": "AbsentOut", "body": "text", "nameServers": [standalone.name_server_address]}
    queues = {"broker-a:0": [0, 5], "broker-b:0": [0, 4]}
    state.write_text(json.dumps({"asked": asked, "bytes": 0, "messages": 0, "queues": queues}))
    (tmp_path / "messages.jsonl.part").touch()
    command = ("message", "export", str(file), "-t", "AbsentOut", "--resume")
    partly = cluster(*command)
    assert partly.status == 1
    assert "broker-b:0: not in the routes" in partly.err
    assert file_bodies(file) == [0, 1, 2, 3, 4]
    again = cluster(*command)
    assert again.status == 1  # it is not forgotten
    with broker_b(standalone, tmp_path):
        done = cluster(*command)
        assert done.status == 0, done.err
    assert file_bodies(file) == list(range(9))
    assert list(tmp_path.glob("*messages*")) == [file]
    assert file.stat().st_mode & 0o777 == 0o600  # bodies may be confidential


def test_a_queue_that_an_export_could_not_ask_is_missed_when_it_has_left_the_routes(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "AbsentDead", 1)
    put(standalone, numbered("AbsentDead", 0, 3), 0)
    file = tmp_path / "messages.jsonl"
    command = ("message", "export", str(file), "-t", "AbsentDead")
    with dead_broker(standalone.name_server_address, "AbsentDead"):
        assert cluster(*command).status == 1
    resumed = cluster(*command, "--resume")
    assert resumed.status == 1
    assert "broker-dead:1: not in the routes" in resumed.err
    assert file_bodies(file) == [0, 1, 2]


def test_a_limit_counts_what_was_written_before_the_cut(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "AbsentLimit", 1)
    put(standalone, numbered("AbsentLimit", 0, 10), 0)
    file = tmp_path / "messages.jsonl"
    command = ("message", "export", str(file), "-t", "AbsentLimit", "--limit", "6")
    with dead_broker(standalone.name_server_address, "AbsentLimit"):
        assert cluster(*command).status == 1
    assert file_bodies(file) == list(range(6))
    cluster(*command, "--resume")
    assert file_bodies(file) == list(range(6))


# --- copy


def test_a_copy_goes_on_only_with_the_queues_that_it_has_begun_with(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "AbsentFrom", 1)
    make_topic(standalone, "AbsentTo", 1)
    put(standalone, numbered("AbsentFrom", 0, 5), 0)
    state = tmp_path / "copy.json"
    command = ["message", "copy", "-t", "AbsentFrom", "--to-topic", "AbsentTo"]
    command += ["--resume", str(state)]
    with broker_b(standalone, tmp_path, "AbsentFrom"):
        put(standalone, numbered("AbsentFrom", 5, 9), 0, broker="broker-b")
        asked = {
            "topic": "AbsentFrom",
            "nameServers": [standalone.name_server_address],
            "toTopic": "AbsentTo",
            "toNameServers": None,
            "map": [],
        }
        queues = {"broker-b:0": {"next": 1}}
        state.write_text(json.dumps({"asked": asked, "queues": queues}))
    for _ in range(2):  # it is not forgotten
        partly = cluster(*command)
        assert partly.status == 1
        assert "broker-b:0: not in the routes" in partly.err
        assert bodies(cluster, "AbsentTo") == ["0", "1", "2", "3", "4"]
    with broker_b(standalone, tmp_path):
        done = cluster(*command)
        assert done.status == 0, done.err
    assert bodies(cluster, "AbsentTo") == ["0", "1", "2", "3", "4", "6", "7", "8"]
    assert not state.exists()


def test_a_copy_from_a_topic_made_anew_says_so_and_copies_nothing(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "AnewFrom", 1)
    make_topic(standalone, "AnewTo", 1)
    put(standalone, numbered("AnewFrom", 0, 9), 0)
    state = tmp_path / "copy.json"
    command = ["message", "copy", "-t", "AnewFrom", "--to-topic", "AnewTo"]
    command += ["--resume", str(state)]
    with dead_broker(standalone.name_server_address, "AnewFrom"):
        assert cluster(*command).status == 1  # so that there is a state
    assert cluster("deleteTopic", "-c", "DefaultCluster", "-t", "AnewFrom").status == 0
    make_topic(standalone, "AnewFrom", 1)
    put(standalone, numbered("AnewFrom", 100, 104), 0)
    again = cluster(*command)
    assert again.status == 1
    assert "broker-a:0: it was read up to offset 9, but ends at 4" in again.err
    assert "recreated" in again.err
    assert len(bodies(cluster, "AnewTo")) == 9
    assert state.exists()


@pytest.mark.parametrize("act", ["export", "copy"])
def test_a_topic_made_anew_is_known_by_its_messages_when_it_has_as_many_again(
    cluster: Mq, standalone: Standalone, tmp_path: Path, act: str
) -> None:
    topic = f"Regrown{act}"
    make_topic(standalone, topic, 1)
    make_topic(standalone, f"{topic}To", 1)
    put(standalone, numbered(topic, 0, 9), 0)
    file = tmp_path / "messages.jsonl"
    if act == "export":
        command = ["message", "export", str(file), "-t", topic, "--limit", "4"]
    else:
        command = ["message", "copy", "-t", topic, "--to-topic", f"{topic}To"]
        command += ["--resume", str(tmp_path / "copy.json")]
    with dead_broker(standalone.name_server_address, topic):
        assert cluster(*command).status == 1  # so that there is a state
    assert cluster("deleteTopic", "-c", "DefaultCluster", "-t", topic).status == 0
    make_topic(standalone, topic, 1)
    put(standalone, numbered(topic, 100, 120), 0)
    if act == "export":
        command = [*command[:-2], "--resume"]
    again = cluster(*command)
    assert again.status == 1
    assert "broker-a:0: the message at offset" in again.err
    assert "recreated" in again.err
    if act == "export":
        assert file_bodies(file) == [0, 1, 2, 3]
    else:
        assert len(bodies(cluster, f"{topic}To")) == 9


@pytest.mark.parametrize("act", ["export", "copy"])
def test_what_retention_has_removed_since_the_cut_is_reported(
    cluster: Mq,
    standalone: Standalone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: str,
) -> None:
    topic = f"Aged{act}"
    make_topic(standalone, topic, 1)
    make_topic(standalone, f"{topic}To", 1)
    put(standalone, numbered(topic, 0, 10), 0)
    where = [standalone.name_server_address]
    if act == "export":
        file = tmp_path / "messages.jsonl"
        command = ["message", "export", str(file), "-t", topic, "--resume"]
        asked: dict[str, Any] = {"topic": topic, "body": "text", "nameServers": where}
        document = {"asked": asked, "bytes": 0, "messages": 0, "queues": {"broker-a:0": [2, 10]}}
        (tmp_path / "messages.jsonl.state").write_text(json.dumps(document))
        (tmp_path / "messages.jsonl.part").touch()
    else:
        state = tmp_path / "copy.json"
        command = ["message", "copy", "-t", topic, "--to-topic", f"{topic}To"]
        command += ["--resume", str(state)]
        names = {"topic": topic, "toTopic": f"{topic}To", "toNameServers": None}
        asked = {**names, "nameServers": where, "map": []}
        state.write_text(json.dumps({"asked": asked, "queues": {"broker-a:0": {"next": 2}}}))
    queue = standalone.broker.stores.messages.queues.get(topic, 0)
    assert queue is not None
    monkeypatch.setattr(queue, "minimum", 6)
    finished = cluster(*command)
    assert finished.status == 1
    assert "broker-a:0: 4 messages from offset 2 on are not there any more" in finished.err


@pytest.mark.parametrize("act", ["export", "copy"])
def test_a_time_that_counts_from_now_is_that_of_the_first_run(
    cluster: Mq, standalone: Standalone, tmp_path: Path, act: str
) -> None:
    topic = f"Since{act}"
    make_topic(standalone, topic, 1)
    make_topic(standalone, f"{topic}To", 1)
    put(standalone, numbered(topic, 0, 3), 0)
    file = tmp_path / "messages.jsonl"
    if act == "export":
        command = ["message", "export", str(file), "-t", topic, "--resume", "--begin", "1m"]
    else:
        command = ["message", "copy", "-t", topic, "--to-topic", f"{topic}To", "--begin", "1m"]
        command += ["--resume", str(tmp_path / "copy.json")]
    with dead_broker(standalone.name_server_address, topic, name="broker-b"):
        assert cluster(*command).status == 1
    with another_broker(standalone, "broker-b", tmp_path / "store-b") as broker:
        make_topic(standalone, topic, 2, at=broker)
        put(standalone, numbered(topic, 3, 5), 0, broker="broker-b")
        done = cluster(*command)
        assert done.status == 0, done.err
    found = (
        file_bodies(file) if act == "export" else sorted(map(int, bodies(cluster, f"{topic}To")))
    )
    assert found == [0, 1, 2, 3, 4]
