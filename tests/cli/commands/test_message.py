import json
import re
import stat
from pathlib import Path

import pytest

from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from mq.protocol.names import TRACE_TOPIC
from tests.cli.commands.sent import indexed, make, messages, send
from tests.cli.pairs import DEAD, dead_broker, full_disk, put
from tests.cli.support import Mq


def test_a_message_is_found_in_every_way(cluster: Mq) -> None:
    make(cluster, "Found")
    sent = send(cluster, "Found", "Grüße", "-k", "k1 k2", "-c", "TagA", "-b", "broker-a", "-i", "1")
    where = ("-b", "broker-a", "-i", "1", "-o", str(sent["queueOffset"]))
    ways = [
        ("queryMsgById", "-i", sent["offsetId"]),
        ("queryMsgByUniqueKey", "-t", "Found", "-i", sent["messageId"]),
        ("queryMsgByKey", "-t", "Found", "-k", "k2"),
        ("queryMsgByOffset", "-t", "Found", *where),
    ]
    for way in ways:
        (message,) = indexed(cluster, 1, *way)
        assert message["messageId"] == sent["messageId"]
        assert (message["body"], message["bodyEncoding"]) == ("Grüße", "utf-8")
        assert (message["tags"], message["keys"], message["queueId"]) == ("TagA", "k1 k2", 1)


def test_plain_writes_the_body_to_a_file(cluster: Mq) -> None:
    make(cluster, "Written")
    sent = send(cluster, "Written", "in a file")
    shown = cluster("queryMsgById", "-i", sent["offsetId"])
    path = Path(cluster.variables["MQ_STATE_DIR"], "msgbodys", sent["messageId"])
    assert f"Message Body Path:   {path}\n" in shown.out
    assert path.read_text() == "in a file"
    assert cluster("queryMsgById", "-i", sent["offsetId"], "-o", "csv").status == 0


@pytest.mark.parametrize(
    ("command", "topic"),
    [
        ("queryMsgByKey -t Halved -k KEY", "Halved"),
        ("queryMsgByUniqueKey -t Halved -i ID", "Halved"),
        ("queryMsgTraceById -i ID", TRACE_TOPIC),
    ],
)
def test_what_a_broker_has_is_shown_though_another_one_is_away(
    cluster: Mq, standalone: Standalone, command: str, topic: str
) -> None:
    make(cluster, "Halved")
    key = command.split(maxsplit=1)[0]  # of each its own
    sent = send(cluster, "Halved", "x", "-k", key, "-m", "true")
    words = command.replace("ID", sent["messageId"]).replace("KEY", key).split()
    (row,) = indexed(cluster, 1, *words)
    with dead_broker(standalone.name_server_address, topic):
        done = cluster(*words, "-o", "json")
        none = cluster(*words[:-1], "none", "-o", "json")
    failure = f"topic {topic}: {DEAD}: Connection refused"
    assert (done.status, done.json["data"], done.json["failures"]) == (1, [row], [failure])
    assert (none.status, none.out) == (69, "")


def test_of_messages_sent_again_those_are_told_of_that_were_sent_before_one_that_cannot_be(
    cluster: Mq,
) -> None:
    ids = []
    for topic in ("ClosedAgain", "SentAgain"):
        make(cluster, topic)
        ids.append(send(cluster, topic, "once")["offsetId"])
    assert (
        cluster("updateTopicPerm", "-t", "ClosedAgain", "-c", "DefaultCluster", "-p", "4").status
        == 0
    )
    alone = cluster("queryMsgById", "-i", ids[0], "-s", "true", "-o", "json")
    assert (alone.status, alone.out) == (66, "")
    done = cluster("queryMsgById", "-i", ",".join([ids[1], *ids]), "-s", "true", "-o", "json")
    assert done.status == 1
    assert [row["originalOffsetId"] for row in done.json["data"]] == [ids[1]] * 2
    assert f"message {ids[0]} is not sent again: topic ClosedAgain: " in done.err


def test_one_message_that_a_consumer_cannot_be_given_keeps_no_other_from_being_told_of(
    cluster: Mq,
) -> None:
    make(cluster, "Directly")
    found = send(cluster, "Directly", "x")["offsetId"]
    missing = f"{found[:16]}{1 << 40:016X}"
    done = cluster("queryMsgById", "-i", f"{missing},{found}", "-g", "group", "-d", "gone")
    assert done.status == 1
    assert f"message {missing}: no message {missing}" in done.err
    assert f"message {found}: " in done.err and "not online" in done.err


def test_on_a_full_disk_the_body_file_that_was_there_stays_whole(
    cluster: Mq, standalone: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(cluster, "FullBody")
    put(standalone, [Message("FullBody", bytes(200_000))])
    sent = json.loads(cluster("message", "export", "FullBody", "-").out)
    monkeypatch.setenv("MQ_STATE_DIR", cluster.variables["MQ_STATE_DIR"])
    folder = Path(cluster.variables["MQ_STATE_DIR"], "msgbodys")
    command = ("queryMsgByUniqueKey", "-t", "FullBody", "-i", sent["messageId"])
    full = full_disk(standalone, 100_000, *command)
    assert full.status == 73
    assert list(folder.iterdir()) == []
    assert cluster(*command).status == 0
    (path,) = folder.iterdir()
    full = full_disk(standalone, 100_000, *command)
    assert full.status == 73
    assert f"cannot write the body to {path}: File too large\n" in full.err
    assert list(folder.iterdir()) == [path]
    assert path.read_bytes() == bytes(200_000)


def test_a_body_goes_through_no_link_and_stays_hidden(cluster: Mq, tmp_path: Path) -> None:
    make(cluster, "Linked")
    sent = send(cluster, "Linked", "mine")
    path = Path(cluster.variables["MQ_STATE_DIR"], "msgbodys", sent["messageId"])
    path.parent.mkdir(parents=True)
    others = tmp_path / "others"
    others.write_text("theirs")
    path.symlink_to(others)
    finished = cluster("queryMsgById", "-i", sent["offsetId"])
    assert finished.status == 73
    assert f"cannot write the body to {path}: Too many levels of symbolic links" in finished.err
    assert path.is_symlink() and others.read_text() == "theirs"
    path.unlink()
    path.write_text("older")
    path.chmod(0o600)
    assert cluster("queryMsgById", "-i", sent["offsetId"]).status == 0
    assert path.read_text() == "mine"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_body_file_that_cannot_be_written_is_reported(cluster: Mq) -> None:
    make(cluster, "Unwritten")
    sent = send(cluster, "Unwritten", "nowhere")
    Path(cluster.variables["MQ_STATE_DIR"]).write_text("in the way")
    finished = cluster("queryMsgById", "-i", sent["offsetId"])
    assert finished.status == 73
    assert "MQ_STATE_DIR" in finished.err


def test_printing_and_consuming_show_every_message_once(cluster: Mq) -> None:
    make(cluster, "Printed")
    bodies = {f"body {number}" for number in range(7)}
    for body in sorted(bodies):
        send(cluster, "Printed", body, "-c", "TagA" if body < "body 3" else "TagB")
    for command in ("printMsg", "consumeMessage"):
        found = messages(cluster(command, "-t", "Printed", "--output", "json"))
        assert sorted(item["body"] for item in found) == sorted(bodies)
    tagged = messages(cluster("printMsg", "-t", "Printed", "-s", "TagA", "--output", "json"))
    assert {item["body"] for item in tagged} == {"body 0", "body 1", "body 2"}
    hidden = messages(cluster("printMsg", "-t", "Printed", "-d", "false", "--output", "json"))
    assert {item["body"] for item in hidden} == {None}
    assert len(hidden) == 7


def test_a_queue_is_consumed_from_an_offset(cluster: Mq) -> None:
    make(cluster, "Queued")
    for number in range(4):
        send(cluster, "Queued", str(number), "-b", "broker-a", "-i", "0")
    queue = ("consumeMessage", "-t", "Queued", "-b", "broker-a", "-i", "0", "--output", "json")
    assert [item["body"] for item in messages(cluster(*queue, "-o", "2"))] == ["2", "3"]
    assert [item["body"] for item in messages(cluster(*queue, "-c", "2"))] == ["0", "1"]


def test_a_message_that_is_not_there_is_not_found(cluster: Mq) -> None:
    make(cluster, "Empty")
    missing = [
        ("queryMsgByKey", "-t", "Empty", "-k", "none"),
        ("queryMsgByUniqueKey", "-t", "Empty", "-i", "7F0000010000000000000000000000AB"),
        ("queryMsgByOffset", "-t", "Empty", "-b", "broker-a", "-i", "0", "-o", "5"),
    ]
    for arguments in missing:
        finished = cluster(*arguments)
        assert (finished.status, finished.out) == (66, ""), arguments
        assert "\nhint: " in finished.err, arguments


def test_an_id_that_is_none_says_what_one_looks_like(cluster: Mq) -> None:
    finished = cluster("queryMsgById", "-i", "nonsense")
    assert finished.status == 64
    assert "not an offset id (32 hexadecimal digits" in finished.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sendMessage", "-p", "x", "-i", "1"), "-i/--qid needs -b/--broker"),
        (("sendMessage", "--whole", "--json-lines"), "cannot be combined"),
        (("sendMessage", "-K", ""), "-K/--key-separator is empty"),
        (("sendMessage", "-p", "x", "-H", "novalue"), "needs a name and a value"),
        (("sendMessage", "-p", "x", "-b", "b", "-i", "one"), "-i/--qid: 'one' is not a whole"),
        (("consumeMessage", "-c", "0"), "-c/--MessageNumber must be positive"),
        (("consumeMessage", "-i", "0"), "-i/--queueId needs -b/--brokerName"),
        (("consumeMessage", "-b", "b", "-o", "0"), "-o/--offset needs -i/--queueId"),
        (("consumeMessage", "-s", "2100-01-01#00:00:00:000"), "is in the future"),
        (("consumeMessage", "-s", "2000", "-e", "1000"), "is after -e/--endTimestamp"),
        (("printMsg", "-b", "yesterday"), "-b/--beginTimestamp: 'yesterday' is not a time"),
        (("printMsg", "-c", "klingon"), "no character set 'klingon'"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: tuple[str, ...], message: str, cluster: Mq
) -> None:
    finished = cluster(arguments[0], "-t", "Any", *arguments[1:])
    assert (finished.status, finished.out) == (64, "")
    assert message in finished.err


def test_a_broker_without_the_topic_is_named(cluster: Mq) -> None:
    make(cluster, "Here")
    finished = cluster("sendMessage", "-t", "Here", "-p", "x", "-b", "elsewhere")
    assert finished.status == 66
    assert "broker elsewhere has no queue of topic Here" in finished.err


def test_a_found_message_can_be_sent_again(cluster: Mq) -> None:
    make(cluster, "Again")
    sent = send(cluster, "Again", "twice", "-k", "once")
    again = cluster("queryMsgById", "-i", sent["offsetId"], "-s", "true", "-o", "json").json
    assert again["data"][0]["sendStatus"] == "SEND_OK"
    both = indexed(cluster, 2, "queryMsgByKey", "-t", "Again", "-k", "once")
    assert [item["body"] for item in both] == ["twice", "twice"]
    all_of_them = ("queryMsgByUniqueKey", "-t", "Again", "-i", sent["messageId"], "-a")
    indexed(cluster, 2, *all_of_them)


def test_a_cluster_keeps_messages_of_its_brokers_only(cluster: Mq) -> None:
    make(cluster, "Homed")
    send(cluster, "Homed", "x", "-k", "home")
    by_key = ("queryMsgByKey", "-t", "Homed", "-k", "home")
    (found,) = indexed(cluster, 1, *by_key, "-c", "DefaultCluster")
    assert found["brokerName"] == "broker-a"
    assert cluster(*by_key, "-c", "Elsewhere").status == 66


def test_a_body_is_shown_in_the_character_set_asked_for(cluster: Mq) -> None:
    make(cluster, "Charset")
    sent = send(cluster, "Charset", "Grüße")
    shown = cluster("queryMsgById", "-i", sent["offsetId"], "-f", "UTF-8")
    assert "Message Body:        Grüße\n" in shown.out
    assert cluster("queryMsgById", "-i", sent["offsetId"], "-f", "klingon").status == 64


def test_a_unique_id_says_where_and_when_it_was_made(cluster: Mq) -> None:
    make(cluster, "Decoded")
    sent = send(cluster, "Decoded", "x")
    row = cluster("DecodeMessageId", "-i", sent["messageId"], "-o", "json").json["data"][0]
    assert row["host"] == "127.0.0.1"
    assert row["created"].endswith("Z")
    plain = cluster("decode-message-id", "-i", sent["messageId"]).out
    assert re.fullmatch(r"ip=127\.0\.0\.1date=\d{4}-\d\d-\d\d#\d\d:\d\d:\d\d:\d{3}", plain)
    wide = cluster(
        "DecodeMessageId", "-i", "FD000000000000000000000000000002013D4E0E2F2A68F67C340002"
    )
    assert wide.out.startswith("ip=fd00:0000:0000:0000:0000:0000:0000:0002date=")
    assert cluster("DecodeMessageId", "-i", "nonsense").status == 64
