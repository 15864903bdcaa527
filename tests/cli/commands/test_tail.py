import json
import signal
from pathlib import Path
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from tests.cli.commands.following import following
from tests.cli.pairs import dead_broker, make_topic, put, running_pair
from tests.cli.support import Finished, Mq


def shown(finished: Finished) -> list[dict[str, Any]]:
    assert finished.status == 0, finished.err
    return [item for line in finished.out.splitlines() for item in json.loads(line)["data"]]


def bodies(mq: Mq, topic: str, *options: str) -> list[str]:
    return [item["body"] for item in shown(mq("tail", topic, *options, "-o", "json"))]


def fill(pair: Standalone, topic: str, count: int = 10, queues: int = 2) -> None:
    make_topic(pair, topic, queues)
    for number in range(count):
        tag = "even" if number % 2 == 0 else "odd"
        message = Message(topic, b"body %d" % number, tag, [f"k{number}"])
        put(pair, [message], number % queues)


def test_the_last_messages_are_shown_oldest_first(cluster: Mq, standalone: Standalone) -> None:
    fill(standalone, "TailLast")
    found = bodies(cluster, "TailLast", "--last", "3", "--limit", "3")
    assert found == ["body 7", "body 8", "body 9"]
    odd = bodies(cluster, "TailLast", "--last", "2", "--limit", "2", "--tag", "odd")
    assert odd == ["body 7", "body 9"]


def test_the_last_that_match_are_looked_for_further_back(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "TailBack", 1)
    put(standalone, [Message("TailBack", b"first of all", "rare")])
    put(standalone, [Message("TailBack", b"%d" % number, "common") for number in range(300)])
    found = bodies(cluster, "TailBack", "--last", "1", "--limit", "1", "--grep", "^first")
    assert found == ["first of all"]


def test_messages_from_a_time_on_are_shown(cluster: Mq, standalone: Standalone) -> None:
    fill(standalone, "TailFrom")
    found = shown(cluster("tail", "TailFrom", "--from", "1h", "--limit", "10", "-o", "json"))
    assert sorted(item["body"] for item in found) == [f"body {number}" for number in range(10)]
    by_queue = [item["queueOffset"] for item in found if item["queueId"] == 1]
    assert by_queue == sorted(by_queue)


def test_filters_let_through_what_matches(cluster: Mq, standalone: Standalone) -> None:
    fill(standalone, "TailFilter")
    everything = ("--from", "1h")
    assert bodies(cluster, "TailFilter", *everything, "--limit", "1", "--key", "k4") == ["body 4"]
    assert bodies(cluster, "TailFilter", *everything, "--limit", "1", "--grep", "[89]$") in (
        ["body 8"],
        ["body 9"],
    )
    odd = bodies(cluster, "TailFilter", *everything, "--limit", "5", "-i", "1")
    assert odd == ["body 1", "body 3", "body 5", "body 7", "body 9"]


def test_new_messages_are_shown_until_it_is_stopped(standalone: Standalone) -> None:
    fill(standalone, "TailNew", 2)
    where = ("-n", standalone.name_server_address)
    with following("TailNew", "--last", "1", "--format", r"%b\n", *where) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "body 1\n"  # so it follows by now
        put(standalone, [Message("TailNew", b"new")])
        assert process.stdout.readline() == "new\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")


def test_following_leaves_no_group_and_no_offset(cluster: Mq, standalone: Standalone) -> None:
    fill(standalone, "TailTrace", 2)
    with BlockingSession(standalone.name_server_address) as session:
        admin, address = Admin(session), standalone.broker.address
        before = run(admin.subscription_groups(address)).subscription_group_table.keys()
        assert len(bodies(cluster, "TailTrace", "--last", "2", "--limit", "2")) == 2
        assert run(admin.subscription_groups(address)).subscription_group_table.keys() == before
        assert not [key for key in run(admin.all_consumer_offsets(address)) if "TailTrace" in key]


def test_a_line_tells_where_and_obeys_no_control_character(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "TailLine", 1)
    put(standalone, [Message("TailLine", b"red \x1b[31m\nalert", "tag", ["key"])])
    for form in ("plain", "table"):
        finished = cluster("tail", "TailLine", "--last", "1", "--limit", "1", "-o", form)
        assert finished.status == 0
        (line,) = finished.out.splitlines()
        assert line.endswith(r" broker-a:0@0 tag key red \x1b[31m\nalert")


def test_a_broker_that_is_away_is_reported_and_the_others_followed(tmp_path: Path) -> None:
    with running_pair() as pair, dead_broker(pair.name_server_address, "TailHalf"):
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        make_topic(pair, "TailHalf", 1)
        put(pair, [Message("TailHalf", b"alive")], 0)
        finished = mq("tail", "TailHalf", "--last", "1", "--limit", "1", "--format", "%b")
        assert finished.status == 1
        assert finished.out == "alive"
        assert "mq tail: broker-dead:0: 127.0.0.1:1: " in finished.err


def test_a_broker_that_comes_back_is_followed_again(tmp_path: Path) -> None:
    """The broker stops with its name server; both start again at the same ports."""
    from tests.interop.ports import free_port

    ports = (free_port(), free_port())
    store = tmp_path / "store"
    with running_pair(store=store, ports=ports) as pair:
        make_topic(pair, "TailAgain", 1)
        put(pair, [Message("TailAgain", b"before")], 0)
        address = pair.name_server_address
        arguments = ("TailAgain", "--last", "1", "--format", r"%b\n", "-n", address)
        process_context = following(*arguments)
        process = process_context.__enter__()
        assert process.stdout is not None
        assert process.stdout.readline() == "before\n"
    try:
        with running_pair(store=store, ports=ports) as pair:
            put(pair, [Message("TailAgain", b"after")], 0)
            assert process.stdout.readline() == "after\n"
    finally:
        process_context.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("NoSuchTopic",), 66, "no name server knows it"),
        (("a b",), 64, "'a b'"),
        (("TailBad", "--last", "-1"), 64, "--last -1"),
        (("TailBad", "--last", "1", "--from", "1h"), 64, "cannot be combined"),
        (("TailBad", "--from", "later"), 64, "--from: 'later' is not a time"),
        (("TailBad", "--grep", "("), 64, "--grep: missing ), unterminated subpattern"),
        (("TailBad", "--limit", "0"), 64, "--limit 0"),
        (("TailBad", "-i", "9"), 66, "no such queue"),
        (("TailBad", "-n", "127.0.0.1:1"), 69, "cannot reach 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    cluster: Mq, standalone: Standalone, arguments: tuple[str, ...], status: int, message: str
) -> None:
    make_topic(standalone, "TailBad")
    finished = cluster("tail", *arguments)
    assert (finished.status, finished.out) == (status, "")
    assert message in finished.err
