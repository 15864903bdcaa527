"""Static topics of two Java 5.5.0 brokers: both tools print the same, and each continues with the
state written by the other.

The time in file names is masked.
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import Finished, Mq
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.interop.tools import JavaTool, warm_tool

pytestmark = pytest.mark.java

RELEASE = "5.5.0"


class Pair:
    """Two brokers in one cluster, and both tools."""

    def __init__(self, java: JavaTool, mq: Mq, namesrv: str) -> None:
        self._java = java
        self._mq = mq
        self._namesrv = namesrv

    def theirs(self, *arguments: str) -> str:
        return self._java(*arguments, "-n", self._namesrv)

    def ours(self, *arguments: str) -> Finished:
        return self._mq(*arguments, "-n", self._namesrv)

    def leaders(self, *arguments: str) -> list[str]:
        """The brokers of the queues after one of our commands."""
        finished = self.ours(*arguments, "-o", "json")
        assert finished.status == 0, finished.err
        return [row["brokerName"] for row in finished.json["data"]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    require_java()
    tmp = tmp_path_factory.mktemp("static-topics")
    with peers.JavaNameServer(RELEASE, tmp) as namesrv:
        first, second = (
            peers.JavaBroker(RELEASE, tmp, namesrv.address, {"brokerName": name, "brokerId": 0})
            for name in ("broker-a", "broker-b")
        )
        with first, second:
            java = warm_tool(RELEASE)
            yield Pair(java, Mq(tmp / "config"), namesrv.address)
    for kind in ("before", "before.bak", "after", "after.bak"):  # plans that both tools leave there
        for plan in Path(tempfile.gettempdir()).glob(f"Static*-*.{kind}"):
            plan.unlink()


def masked(text: str) -> str:
    return re.sub(r"Static\w+-\d+\.", "<topic>-<time>.", text)


def test_both_tools_print_the_same_and_continue_with_each_other_s_topics(pair: Pair) -> None:
    grow = ("updateStaticTopic", "-c", "DefaultCluster", "-qn")
    java = pair.theirs(*grow, "4", "-t", "StaticJava")
    ours = pair.ours(*grow, "4", "-t", "StaticOurs")
    assert (masked(ours.out), ours.err, ours.status) == (masked(java), "", 0)
    assert java.count("mapping data is written to file") == 2
    # Each tool checks the state written by the other before it continues.
    assert sorted(pair.leaders(*grow, "6", "-t", "StaticJava")) == 3 * ["broker-a"] + 3 * [
        "broker-b"
    ]
    assert pair.theirs(*grow, "6", "-t", "StaticOurs").count("written to file") == 2
    move = ("remappingStaticTopic", "-b", "broker-b", "-t")
    java = pair.theirs(*move, "StaticOurs")
    ours = pair.ours(*move, "StaticJava")
    assert (masked(ours.out), ours.err, ours.status) == (masked(java), "", 0)
    assert java.count("The old mapping data is written to file") == 2
    back = ("remappingStaticTopic", "-c", "DefaultCluster", "-t")
    assert pair.theirs(*back, "StaticJava").count("written to file") == 2
    assert sorted(pair.leaders(*back, "StaticOurs")) == 3 * ["broker-a"] + 3 * ["broker-b"]
    less = pair.ours(*grow, "2", "-t", "StaticOurs")
    assert (less.status, less.out) == (65, "")


def test_messages_are_consumed_in_order_across_a_move(pair: Pair, tmp_path: Path) -> None:
    topic = "StaticMoved"
    assert pair.leaders("updateStaticTopic", "-b", "broker-a", "-t", topic, "-qn", "2") == [
        "broker-a",
        "broker-a",
    ]
    produce = ("Produce.java", pair._namesrv, topic)
    assert peers.run_java(RELEASE, *produce, "6").stdout.count("SENT ") == 6
    moved = pair.ours("remappingStaticTopic", "-b", "broker-b", "-t", topic, "-o", "json").json
    assert [row["formerBrokerName"] for row in moved["data"]] == ["broker-a", "broker-a"]
    assert all(row["logicOffset"] == 10_000 for row in moved["data"])
    assert peers.run_java(RELEASE, *produce, "6").stdout.count("SENT ") == 6
    arguments = (pair._namesrv, "StaticGroup", topic)
    with peers.JavaProgram(RELEASE, "Consume.java", *arguments, tmp=tmp_path) as consumer:
        # Its second attempt to learn its queues comes after 20 s.
        lines = consumer.wait_for_line("GOT ", 90, count=12)
    offsets: dict[str, list[int]] = {}
    for line in lines:
        _, _, queue, offset, *_ = line.split(" ")
        offsets.setdefault(queue, []).append(int(offset))
    assert {min(found) for found in offsets.values()} == {0}
    assert {min(offset for offset in found if offset > 9) for found in offsets.values()} == {10_000}


def test_a_plan_is_executed_again_from_its_file(pair: Pair) -> None:
    made = pair.ours(
        "updateStaticTopic", "-b", "broker-a", "-t", "StaticAgain", "-qn", "2", "-o", "json"
    )
    plan = made.json["totals"]["after"]
    words = ("-b", "broker-a", "-t", "StaticAgain", "-mf", plan)
    again = pair.ours("updateStaticTopic", "-qn", "2", *words)
    assert (again.status, again.out, again.err) == (0, "", "")
    more = pair.ours("updateStaticTopic", "-b", "broker-a", "-t", "StaticAgain", "-qn", "3")
    assert more.status == 0, more.err
    # the plan is older than the brokers' mappings
    late = pair.ours("updateStaticTopic", "-qn", "2", *words)
    assert (late.status, late.out) == (1, "")
    assert "not all brokers have the new mapping: " in late.err
    assert f"hint: continue with: mq updateStaticTopic … -mf {plan}\n" in late.err
