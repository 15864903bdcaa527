import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from mq.cli.load import Latencies
from mq.cli.show import latency_picture
from mq.client.load.plan import LoadResult
from tests.cli.support import Mq

SHORT = ("-d", "0.5", "--warm", "0.1", "-s", "100", "-o", "json")


@pytest.fixture(scope="module")
def topic() -> str:
    return "BenchCommands"


@pytest.fixture(autouse=True)
def made(cluster: Mq, topic: str) -> None:
    assert (
        cluster("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "4", "-w", "4").status
        == 0
    )


def test_produce_and_consume_count_messages_and_latencies(cluster: Mq, topic: str) -> None:
    done = cluster("bench", "produce", "-t", topic, "-p", "2", *SHORT)
    assert (done.status, done.err) == (0, "")
    [row] = done.json["data"]
    assert row["role"] == "produce"
    assert row["messages"] > 0
    assert row["errors"] == 0
    assert 0 < row["p50Ms"] <= row["p99Ms"] <= row["maxMs"]
    done = cluster("bench", "consume", "-t", topic, "-d", "30", "-o", "json")
    assert done.json["data"][0]["messages"] >= row["messages"]


def test_end_to_end_tells_of_both_ends_and_draws_the_latencies(
    cluster: Mq, topic: str, tmp_path: Path
) -> None:
    picture = tmp_path / "latencies.svg"
    arguments = ("bench", "end-to-end", "-t", topic, "-r", "200", "--svg", str(picture), *SHORT)
    done = cluster(*arguments)
    assert (done.status, done.err) == (0, "")
    rows = {row["role"]: row for row in done.json["data"]}
    assert rows.keys() == {"produce", "consume"}
    assert min(row["messages"] for row in rows.values()) > 0
    root = xml.fromstring(picture.read_text())
    assert [element.tag.rpartition("}")[2] for element in root.iter()].count("polyline") == 2


def test_a_dry_run_sends_nothing(cluster: Mq) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "BenchDry", "-r", "1", "-w", "1")
    done = cluster("bench", "produce", "-t", "BenchDry", "--dry-run")
    assert done.status == 0
    status = cluster("topicStatus", "-t", "BenchDry", "-o", "json")
    assert status.json["data"][0]["maxOffset"] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("produce", "-t", "NoSuchTopic"), 66, "no name server knows it"),
        (("produce", "-t", "BenchCommands", "-d", "0"), 64, "--seconds: 0"),
        (("end-to-end", "-t", "BenchCommands", "-r", "0"), 64, "-r/--rate: 0"),
        (("end-to-end", "-t", "BenchCommands", "-s", "5"), 64, "-s/--size: 5 bytes"),
    ],
)
def test_what_cannot_be_measured_is_told(
    cluster: Mq, arguments: tuple[str, ...], status: int, message: str
) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "BenchEmpty", "-r", "1", "-w", "1")
    done = cluster("bench", *arguments)
    assert (done.status, message in done.err) == (status, True), done.err


def test_nothing_to_read_is_nothing_measured_and_no_failure(cluster: Mq) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "BenchEmpty", "-r", "1", "-w", "1")
    done = cluster("bench", "consume", "-t", "BenchEmpty", "-o", "json")
    assert (done.status, done.err) == (0, "")
    [row] = done.json["data"]
    assert (row["messages"], row["errors"], row["maxMs"]) == (0, 0, 0)
    table = cluster("bench", "consume", "-t", "BenchEmpty", terminal=True, columns=200)
    assert "nothing was measured; the topic is empty, or the time too short" in table.out


def test_percentiles_are_those_of_the_latencies() -> None:
    measured = LoadResult(latencies={number * 1000: 1 for number in range(1, 1001)})
    latencies = Latencies.of(measured)
    assert latencies.at(50) == pytest.approx(500, rel=0.002)
    assert latencies.at(99) == pytest.approx(990, rel=0.002)
    assert latencies.highest == pytest.approx(1000, rel=0.002)
    assert latencies.mean == pytest.approx(500.5, rel=0.002)


def test_a_picture_can_be_drawn_of_one_latency() -> None:
    drawn = latency_picture.draw("a < b", {"produce": Latencies.of(LoadResult(latencies={0: 1}))})
    assert xml.fromstring(drawn).tag.endswith("svg")
