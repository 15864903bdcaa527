import json
import os
import signal
import subprocess
import sys
from base64 import b64decode
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from mq.cli.messages.producing import whole
from mq.client.admin import Admin
from mq.client.operations.messages.line_source import LineSource
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from tests.cli.pairs import make_topic, put, running_pair
from tests.cli.support import Mq
from tests.cli.terminal import at_terminal
from tests.client.scenarios import in_a_loop
from tests.processes import running
from tests.waiting import wait_until


def stored(mq: Mq, topic: str, *options: str) -> list[dict[str, Any]]:
    finished = mq("message", "export", topic, "-", *options)
    assert finished.status == 0, finished.err
    return [json.loads(line) for line in finished.out.splitlines()]


def bodies(mq: Mq, topic: str, *options: str) -> list[str]:
    return [line["body"] for line in stored(mq, topic, *options)]


def exists(pair: Standalone, topic: str) -> bool:
    with BlockingSession(pair.name_server_address) as session:
        return topic in run(Admin(session).topic_list()).topic_list


def producing(
    *arguments: str, stdin: int = subprocess.PIPE
) -> AbstractContextManager["subprocess.Popen[str]"]:
    """`mq produce` in a process of its own, whose standard input is a pipe that stays open."""
    return running([sys.executable, "-m", "mq", "produce", *arguments], stdin=stdin)


def write(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def test_each_line_is_a_message_and_empty_ones_are_left_out(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "ProduceLines")
    finished = cluster("produce", "ProduceLines", piped="one\n\ntwo\n\n\nthree", columns=200)
    assert finished.status == 0, finished.err
    assert finished.err == "3 empty lines were skipped: brokers accept no empty messages\n"
    assert sorted(bodies(cluster, "ProduceLines")) == ["one", "three", "two"]
    again = cluster("produce", "-t", "ProduceLines", "-o", "json", piped="four\n")
    assert (again.json["totals"], again.status) == ({"messages": 1}, 0)


def test_lines_of_one_key_go_to_one_queue_in_their_order(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "ProduceKeys", 4)
    file = tmp_path / "lines"
    file.write_text("".join(f"k{n % 7}\t{n}:x\n" for n in range(700)) + "without\n")
    finished = cluster("produce", "ProduceKeys", str(file), "-K", "\\t", "-c", "TagA", "-H", "a=b")
    assert finished.status == 0, finished.err
    found = stored(cluster, "ProduceKeys")
    queues: dict[str, set[int]] = {}
    order: dict[str, list[int]] = {}
    for line in sorted(found, key=lambda one: (one["queueId"], one["queueOffset"])):
        assert (line["properties"]["TAGS"], line["properties"]["a"]) == ("TagA", "b")
        if "KEYS" in line["properties"]:
            key = line["properties"]["KEYS"]
            queues.setdefault(key, set()).add(line["queueId"])
            order.setdefault(key, []).append(int(line["body"].removesuffix(":x")))
    assert {len(ids) for ids in queues.values()} == {1}
    assert order == {f"k{n}": list(range(n, 700, 7)) for n in range(7)}
    assert [one["body"] for one in found if "KEYS" not in one["properties"]] == ["without"]


def test_all_lines_go_to_the_queue_that_is_named_in_their_order(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "ProduceQueue", 4)
    lines = "".join(f"{number}\n" for number in range(1000))
    finished = cluster("produce", "ProduceQueue", "-b", "broker-a", "-i", "2", piped=lines)
    assert finished.status == 0, finished.err
    assert bodies(cluster, "ProduceQueue", "-i", "2") == [str(number) for number in range(1000)]


@pytest.mark.parametrize("what", ["export", "tail"])
def test_what_other_commands_write_can_be_produced(
    cluster: Mq, standalone: Standalone, what: str
) -> None:
    topic = f"ProduceFrom{what}"
    make_topic(standalone, topic, 1)
    make_topic(standalone, f"{topic}To", 1)
    message = Message(topic, b"\xff\x00", "TagA", ["k1", "k2"], {"colour": "red"}, flag=7)
    put(standalone, [message, Message(topic, "Grüße".encode())], 0)
    if what == "export":
        written = cluster("message", "export", topic, "-").out
    else:
        written = cluster("tail", topic, "--last", "2", "--limit", "2", "-o", "json").out
    finished = cluster("produce", f"{topic}To", "--json-lines", piped=written)
    assert finished.status == 0, finished.err
    first, second = stored(cluster, f"{topic}To")
    assert (first["body"], first["bodyEncoding"]) == ("/wA=", "base64")
    properties = first["properties"]
    assert [properties[name] for name in ("TAGS", "KEYS", "colour")] == ["TagA", "k1 k2", "red"]
    assert first["flag"] == (7 if what == "export" else 0)
    assert second["body"] == "Grüße"
    before = {line["messageId"] for line in stored(cluster, topic)}
    assert not before & {first["messageId"], second["messageId"]}


def test_lines_written_by_hand_have_keys_tags_headers_and_delays(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "ProduceHand", 1)
    lines = [
        {"body": "a", "keys": ["k1", "k2"], "tags": "t", "headers": {"h": "1"}},
        {"body": {"n": 1}, "bodyEncoding": "json", "properties": {"h": "2"}, "keys": "k3"},
        {"body": "later", "delay": "1s"},
    ]
    piped = "".join(json.dumps(line) + "\n" for line in lines)
    finished = cluster("produce", "ProduceHand", "--json-lines", "-c", "all", piped=piped)
    assert finished.status == 0, finished.err
    wait_until(lambda: len(stored(cluster, "ProduceHand")) == 3)
    first, second, third = stored(cluster, "ProduceHand")
    assert [first["properties"][name] for name in ("KEYS", "TAGS", "h")] == ["k1 k2", "t", "1"]
    assert [second["properties"][name] for name in ("KEYS", "TAGS", "h")] == ["k3", "all", "2"]
    assert (second["body"], third["body"]) == ('{"n":1}', "later")


def test_a_delay_is_a_level_where_there_is_one_and_else_a_time(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "ProduceDelay", 1)
    for delay in ("2", "5s", "1500ms"):
        finished = cluster("produce", "ProduceDelay", "--delay", delay, piped=f"{delay}\n")
        assert finished.status == 0, finished.err
        assert bodies(cluster, "ProduceDelay") == []
    wait_until(lambda: bodies(cluster, "ProduceDelay") == ["1500ms", "2", "5s"])
    refused = cluster("produce", "ProduceDelay", "--delay", "19", piped="x\n")
    assert refused.status == 64
    assert "levels are 1 to 18" in refused.err


def test_a_time_is_refused_where_a_broker_would_deliver_at_once(tmp_path: Path) -> None:
    with running_pair({"timerWheelEnable": "false"}) as pair:
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        make_topic(pair, "NoTimer", 1)
        for command in (("produce", "NoTimer"), ("sendMessage", "NoTimer", "-p", "x")):
            refused = mq(*command, "--delay", "95s", piped="x\n")
            assert refused.status == 64
            assert "would deliver it at once; its levels are 1s 5s 10s 30s 1m" in refused.err
            assert bodies(mq, "NoTimer") == []
            assert mq(*command, "--delay", "1s", piped="x\n").status == 0


def test_a_topic_that_there_is_not_is_refused_in_a_pipe_and_made_when_asked_for(
    tmp_path: Path,
) -> None:
    with running_pair({"autoCreateTopicEnable": "true"}) as pair:
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        lines = '{"body":"x"}\n'
        for command in (("produce", "Absent"), ("message", "import", "-", "-t", "Absent")):
            refused = mq(*command, piped=lines)
            assert refused.status == 66
            assert "no topic Absent\nhint: create it with 8 queues: --create" in refused.err
            assert not exists(pair, "Absent")
        dry = mq("produce", "Absent", "--create", "--dry-run", piped="x\n")
        assert (dry.status, exists(pair, "Absent")) == (0, False)
        make_topic(pair, "Present", 1)
        for words in (["message", "import", "-", "-t"], ["message", "copy", "Present"]):
            dry = mq(*words, "Absent", "--create", "--dry-run", piped=lines)
            assert (dry.status, dry.err) == (0, "")  # as without --dry-run
            assert "create at Absent" in dry.out
            assert not exists(pair, "Absent")
        assert mq("produce", "Absent", "--create", piped="x\n").status == 0
        assert mq("message", "import", "-", "-t", "Absent2", "--create", piped=lines).status == 0
        for topic in ("Absent", "Absent2"):
            route = mq("topicRoute", topic, "-o", "json").json["data"][0]
            assert route["writeQueueNums"] == 8
            assert len(bodies(mq, topic)) == 1
        # mqadmin's own command leaves it to the brokers, as scripts expect.
        assert mq("sendMessage", "AbsentMade", piped="x\n").status == 0
        assert exists(pair, "AbsentMade")


def test_at_a_terminal_a_topic_that_there_is_not_is_asked_about(
    cluster: Mq, standalone: Standalone
) -> None:
    no = cluster("produce", "AskedNo", typed="n\nline\n")
    assert no.status == 130
    assert "No topic AskedNo: create it with 8 queues at each master" in no.err
    assert not exists(standalone, "AskedNo")
    yes = cluster("produce", "AskedYes", typed="y\nline\n")
    assert yes.status == 0, yes.err
    assert bodies(cluster, "AskedYes") == ["line"]


def test_lines_that_cannot_be_sent_are_told_and_the_others_are_sent(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "ProduceBad")
    long = "x" * (4 * 1024 * 1024)
    piped = f"good\n{long}y\n{long}\nk:\n:b\n" + "y" * (6 * 1024 * 1024) + "\nlast\n"
    finished = cluster("produce", "ProduceBad", "-K", ":", piped=piped)
    assert finished.status == 1
    over = "over 4,194,304 bytes, the most that the topic's brokers take (maxMessageSize)"
    assert finished.err.splitlines() == [
        f"mq produce: standard input, line 2: {over}",
        "mq produce: standard input, line 4: an empty body, which no broker takes",
        f"mq produce: standard input, line 6: {over}",
        "mq produce: 3 of 7 lines could not be sent",
    ]
    found = bodies(cluster, "ProduceBad")
    assert sorted(found, key=len) == ["b", "good", "last", long] or sorted(map(len, found)) == [
        *(1, 4, 4, len(long))
    ]
    json_lines = cluster("produce", "ProduceBad", "--json-lines", piped='nothing\n{"body":1}\n')
    assert json_lines.status == 65
    assert "line 1: not JSON" in json_lines.err
    assert "line 2: body is not text" in json_lines.err


def test_properties_that_are_too_long_are_the_fault_of_their_line_alone(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "ProduceFault", 1)
    lines = ['{"body":"1"}', json.dumps({"body": "2", "keys": "k" * 40_000}), '{"body":"3"}']
    finished = cluster("produce", "ProduceFault", "--json-lines", piped="\n".join(lines))
    assert finished.status == 1
    assert "line 2: the properties have" in finished.err
    assert sorted(bodies(cluster, "ProduceFault")) == ["1", "3"]


def test_what_a_broker_takes_less_of_goes_in_smaller_batches(tmp_path: Path) -> None:
    with running_pair({"maxMessageSize": "2000"}) as pair:
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        make_topic(pair, "Small", 1)
        piped = "".join(f"{number:0500}\n" for number in range(100)) + "x" * 2001 + "\n"
        finished = mq("produce", "Small", piped=piped)
        assert finished.status == 1
        assert "line 101: over 2,000 bytes" in finished.err
        assert [int(body) for body in bodies(mq, "Small")] == list(range(100))


@pytest.mark.parametrize("command", ["produce", "sendMessage"])
def test_the_whole_input_is_one_message_byte_for_byte(
    cluster: Mq, standalone: Standalone, tmp_path: Path, command: str
) -> None:
    topic = f"Whole-{command}"
    make_topic(standalone, topic, 1)
    inputs = [b'{\n  "total": 5\n}\n', b"no end", b"\n", b"two\n\n", b"\x00\xff\r\n"]
    for body in inputs:
        file = tmp_path / "body"
        file.write_bytes(body)
        finished = cluster(command, topic, "--whole", "-f", str(file), "-b", "broker-a", "-i", "0")
        assert finished.status == 0, finished.err
    sent = stored(cluster, topic, "--body", "base64")
    assert [b64decode(line["body"]) for line in sent] == inputs


def test_a_whole_input_with_nothing_in_it_is_refused(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "WholeEmpty", 1)
    finished = cluster("produce", "WholeEmpty", "--whole", piped="")
    assert finished.status == 65
    assert "standard input, line 1: an empty body, which no broker takes\n" in finished.err


def test_send_message_reads_lines_where_it_is_given_no_body(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "SendLines")
    finished = cluster("sendMessage", "SendLines", "-k", "key", "-H", "a=b", piped="one\ntwo\n")
    assert finished.status == 0, finished.err
    found = stored(cluster, "SendLines")
    assert [line["body"] for line in found] == ["one", "two"]
    assert {(one["properties"]["KEYS"], one["properties"]["a"]) for one in found} == {("key", "b")}
    nothing = cluster("sendMessage", "SendLines", piped="")
    assert (nothing.status, nothing.out) == (64, "")
    assert cluster("produce", "SendLines", piped="").status == 0
    both = cluster("sendMessage", "SendLines", "-p", "x", "--whole")
    assert both.status == 64


def test_a_line_of_a_pipe_is_sent_before_the_next_one_comes(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "Trickle", 2)
    with producing("Trickle", "-n", standalone.name_server_address) as process:
        for count in range(1, 4):
            write(process, f"line {count}\n")
            wait_until(lambda count=count: len(bodies(cluster, "Trickle")) == count)  # type: ignore[misc]
        out, err = process.communicate("end", timeout=30)
        assert (process.returncode, err) == (0, ""), out
    assert sorted(bodies(cluster, "Trickle")) == ["end", "line 1", "line 2", "line 3"]


def test_ctrl_c_says_how_many_were_sent_and_how_to_go_on(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "ProduceCut", 2)
    with producing("ProduceCut", "-n", standalone.name_server_address) as process:
        write(process, "one\ntwo\nnot whole")
        wait_until(lambda: len(bodies(cluster, "ProduceCut")) == 2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert err.splitlines() == [
        "mq produce: 2 messages were sent; not sent: lines 3 and those after",
        "mq produce: continue with: tail -n +3 | mq produce ProduceCut …",
    ]
    assert "ProduceCut" in out


def test_a_broker_that_goes_away_leaves_an_account_of_the_lines(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with ExitStack() as stack:
        with running_pair(store=store) as pair:
            mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
            make_topic(pair, "Gone", 1)
            process = stack.enter_context(producing("Gone", "-n", pair.name_server_address))
            write(process, "one\ntwo\n")
            wait_until(lambda: len(bodies(mq, "Gone")) == 2)
        write(process, "three\nfour\n")
        # It ends by itself, though the pipe stays open.
        assert process.wait(60) == 1
        assert process.stderr is not None
        err = process.stderr.read()
    assert "2 messages were sent; not sent: lines 3 and those after\n" in err
    assert "continue with: tail -n +3 | mq produce Gone …" in err


def test_a_terminal_is_told_how_to_end_and_shows_what_was_taken(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "Typed", 1)

    def act(process: subprocess.Popen[bytes], terminal: int) -> None:
        os.write(terminal, b"hello\n")
        wait_until(lambda: bodies(cluster, "Typed") == ["hello"])
        os.write(terminal, b"again\n\x04")

    variables = {"NAMESRV_ADDR": standalone.name_server_address}
    status, shown = at_terminal(["produce", "Typed"], variables, b"Ctrl-D ends", act)
    assert status == 0, shown
    assert b"broker-a:0@0 " in shown
    assert bodies(cluster, "Typed") == ["hello", "again"]


def test_ctrl_c_at_the_question_ends_and_makes_nothing(standalone: Standalone) -> None:
    def act(process: subprocess.Popen[bytes], terminal: int) -> None:
        process.send_signal(signal.SIGINT)

    variables = {"NAMESRV_ADDR": standalone.name_server_address}
    status, shown = at_terminal(["produce", "AskedCut"], variables, b"[y/N]", act)
    assert status == 130, shown
    assert not exists(standalone, "AskedCut")


def test_a_topic_is_moved_through_a_pipe(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "MoveFrom", 3)
    for queue_id in range(3):
        put(standalone, [Message("MoveFrom", b"%d" % n) for n in range(200)], queue_id)
    where = f"-n {standalone.name_server_address}"
    mq = f"{sys.executable} -m mq"
    command = f"{mq} message export MoveFrom - {where} | {mq} message import - -t Moved --create"
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} {where}"], capture_output=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr

    def places(topic: str) -> list[tuple[int, str, str]]:
        return sorted(
            (one["queueId"], one["body"], one["messageId"]) for one in stored(cluster, topic)
        )

    assert places("Moved") == places("MoveFrom")


def test_a_key_cannot_bring_properties_along(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "ProduceForged", 1)
    piped = "k\x02TRAN_MSG\x01true\x02PGROUP\x01g:hidden\nk\x01:odd\nk:seen\n"
    finished = cluster("produce", "ProduceForged", "-K", ":", piped=piped)
    assert finished.status == 1
    for line in (1, 2):
        assert f"line {line}: its key has a character that separates properties" in finished.err
    (found,) = stored(cluster, "ProduceForged")
    assert (found["body"], found["properties"]["KEYS"]) == ("seen", "k")
    assert "TRAN_MSG" not in found["properties"]


def test_the_command_that_goes_on_sends_each_line_that_is_left_once(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "ProduceRest", 1)
    file = tmp_path / "lines"
    file.write_text("".join(f"{number}\n" for number in range(1, 11)))
    where = ("-n", standalone.name_server_address)
    with producing("ProduceRest", str(file), "--rate", "1", *where) as process:
        wait_until(
            lambda: len(bodies(cluster, "ProduceRest")) >= 1
        )  # each when it may go, not at 128
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    command = err.rpartition("continue with: ")[2].partition(" | mq produce")[0]
    rest = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    found = bodies(cluster, "ProduceRest")
    assert found + rest.stdout.split() == [str(number) for number in range(1, 11)]


def test_what_was_sent_is_told_where_no_more_can_be_read(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "ProduceBroken", 1)
    terminal, slave = os.openpty()
    where = ("-n", standalone.name_server_address)
    with producing("ProduceBroken", *where, stdin=slave) as process:
        os.close(slave)
        os.write(terminal, b"one\ntwo\n")
        wait_until(lambda: len(bodies(cluster, "ProduceBroken")) == 2)
        os.close(terminal)  # the window is closed: reading fails
        out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "cannot read standard input further: Input/output error\n" in err
    assert "2 messages were sent; not sent: lines 3 and those after\n" in err
    assert "ProduceBroken" in out


@in_a_loop
async def test_a_whole_input_is_not_read_further_than_a_message_can_be_long() -> None:
    with LineSource(lambda size: b"line\n" * 1000, longest=10_000) as source:
        assert len(await whole(source, 10_000)) > 10_000  # though there is always more
