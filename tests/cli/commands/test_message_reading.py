import json
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from tests.cli.commands.sent import make, messages, send
from tests.cli.pairs import running_pair
from tests.cli.support import Mq


@pytest.fixture
def queue(cluster: Mq) -> tuple[str, ...]:
    """A queue with three messages, as options."""
    make(cluster, "ByQueue")
    if not cluster(
        "printMsgByQueue", "-t", "ByQueue", "-a", "broker-a", "-i", "1", "-p", "true"
    ).out:
        for tag in ("TagA", "TagB", "TagA"):
            send(cluster, "ByQueue", f"of {tag}", "-c", tag, "-b", "broker-a", "-i", "1")
    return ("printMsgByQueue", "-t", "ByQueue", "-a", "broker-a", "-i", "1")


def test_a_queue_is_printed_without_bodies_unless_asked(
    cluster: Mq, queue: tuple[str, ...]
) -> None:
    plain = cluster(*queue, "-p", "true").out
    assert plain.count("MSGID: ") == plain.count(" BODY: NOT PRINT BODY\n") == 3
    shown = messages(cluster(*queue, "-p", "true", "-d", "true", "-o", "json"))
    assert [item["body"] for item in shown] == ["of TagA", "of TagB", "of TagA"]
    tagged = messages(cluster(*queue, "-p", "true", "-s", "TagB", "-o", "json"))
    assert [item["tags"] for item in tagged] == ["TagB"]


@pytest.mark.parametrize("command", ["queue", "topic"])
@pytest.mark.parametrize(
    ("flag", "shown"), [("--body", ("--body", "text")), ("--format", ("--format", "%k %b"))]
)
def test_who_hides_bodies_and_says_how_to_show_them_is_told_that_it_is_one_or_the_other(
    cluster: Mq, queue: tuple[str, ...], command: str, flag: str, shown: tuple[str, ...]
) -> None:
    words = (*queue, "-p", "true") if command == "queue" else ("printMsg", "-t", "ByQueue")
    refused = cluster(*words, "-d", "false", *shown)
    assert (refused.status, refused.out) == (64, "")
    assert refused.err == (
        f"mq {words[0]}: -d false hides the bodies that {flag} shows\nhint: leave out one of them\n"
    )
    for hidden in ((), ("-d", "true")):
        assert "of TagB" in cluster(*words, *hidden, *shown).out
    assert cluster(*words, "-d", "false", "--format", "%g.").out == "TagA.TagB.TagA."


def test_a_queue_s_messages_are_counted_by_tag(cluster: Mq, queue: tuple[str, ...]) -> None:
    padding = " " * 27
    expected = f"Tag: TagA{padding}Count: 2\nTag: TagB{padding}Count: 1\n"
    assert cluster(*queue, "-f", "true").out == expected
    found = json.loads(cluster(*queue, "-f", "true", "-o", "json").out)["data"]
    assert found == [{"tag": "TagA", "count": 2}, {"tag": "TagB", "count": 1}]


def test_a_queue_is_read_from_and_until_a_time(cluster: Mq, queue: tuple[str, ...]) -> None:
    assert cluster(*queue, "-p", "true", "-b", "2020-01-01#00:00:00:000").out.count("MSGID") == 3
    assert cluster(*queue, "-p", "true", "-e", "2020-01-01#00:00:00:000").out == ""


@pytest.mark.parametrize(
    ("options", "status"),
    [(("-c", "no-such-charset"), 64), (("-b", "yesterday"), 64), (("-a", "broker-x"), 66)],
)
def test_options_that_do_not_fit_are_refused(
    options: tuple[str, ...], status: int, cluster: Mq, queue: tuple[str, ...]
) -> None:
    assert cluster(*queue, "-p", "true", *options).status == status


def test_a_log_file_is_printed_offline(tmp_path: Path) -> None:
    """A broker of its own: the shared one has the messages of other tests."""
    with running_pair({"mappedFileSizeCommitLog": "65536"}, store=tmp_path / "store") as pair:
        cluster = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        make(cluster, "Dumped")
        send(cluster, "Dumped", "in the log")
        store = Path(pair.broker.settings.store.store_path_root_dir)
    (file,) = (store / "commitlog").iterdir()
    mq = Mq(tmp_path / "config")
    shown = mq("dumpCompactionLog", "-f", str(file))
    assert shown.status == 0
    assert "topic='Dumped', flag=0, properties={" in shown.out
    assert shown.out.endswith("body=null, transactionId='null'}]\n")
    found = messages(mq("dumpCompactionLog", "-f", str(file), "-o", "json"))
    assert "in the log" in [item["body"] for item in found if item["topic"] == "Dumped"]
    (tmp_path / "cut").write_bytes(file.read_bytes()[:100])
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "other").write_bytes(b"no log at all")
    for name, status in (("empty", 0), ("cut", 65), ("other", 65), ("missing", 66)):
        refused = mq("dumpCompactionLog", "-f", str(tmp_path / name))
        assert (refused.status, refused.out) == (status, "")


def test_a_topic_without_a_route_is_read_by_way_of_its_parent(
    cluster: Mq, standalone: Standalone
) -> None:
    make(cluster, "LightParent")
    make(cluster, "Light")
    send(cluster, "Light", "of the light one")
    with BlockingSession(standalone.name_server_address) as session:
        run(Admin(session).delete_topic_in_name_server(standalone.name_server_address, "Light"))
    assert cluster("printMsg", "-t", "Light").status == 66
    found = messages(cluster("printMsg", "-t", "Light", "-l", "LightParent", "-o", "json"))
    assert [item["body"] for item in found] == ["of the light one"]
    assert cluster("printMsg", "-t", "Light", "-l", "NoParent").status == 66


@pytest.mark.parametrize("command", ["printMsg", "consumeMessage", "tail --last 1"])
def test_a_topic_that_may_not_be_read_is_not_taken_for_an_empty_one(
    command: str, cluster: Mq
) -> None:
    make(cluster, "WriteOnly")
    assert (
        cluster("updateTopicPerm", "-t", "WriteOnly", "-c", "DefaultCluster", "-p", "2").status == 0
    )
    finished = cluster(*command.split(" "), "-t", "WriteOnly")
    assert (finished.status, finished.out) == (66, "")
    assert "topic WriteOnly cannot be read at broker broker-a: its permission" in finished.err
