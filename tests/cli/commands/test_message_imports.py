import asyncio
import base64
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mq.client.machine.random_ids import random_bytes
from mq.client.operations import local_files
from mq.client.operations.messages import resumable
from mq.daemons.channel import Channel
from mq.daemons.standalone import Standalone
from mq.protocol.batch import decode_batch
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.cli.commands.transfers import bodies, exported, how_it_goes_on, interrupted, started
from tests.cli.pairs import (
    DEAD,
    dead_broker,
    make_topic,
    put,
    running_pair,
)
from tests.cli.scripted import daemon
from tests.cli.support import Mq
from tests.client.scripted import accept_heartbeats, name_server
from tests.interop.ports import free_port
from tests.waiting import wait_until

# More than a broker accepts, even compressed.
DENSE = base64.b64encode(random_bytes(5_000_000)).decode()


def write(file: Path, *lines: dict[str, Any]) -> None:
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"delay": -1}, "delay '-1' is not a level"),
        ({"delay": 10**13}, "MESSAGE_ILLEGAL: due in"),
        ({"topic": "a b"}, "illegal characters, allowing only"),
        ({"topic": "x" * 300}, "topic max length"),
        ({"body": DENSE}, "(maxMessageSize); to have it there, raise maxMessageSize at broker-a\n"),
        ({"properties": {"a": "x" * 40_000}}, "the properties have"),
    ],
    ids=["delay", "far delay", "topic", "long topic", "body", "properties"],
)
def test_a_line_that_cannot_be_sent_is_named_whoever_refuses_it(
    cluster: Mq, standalone: Standalone, tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    make_topic(standalone, "Refused", 1)
    before = bodies(cluster, "Refused")
    lines = [{"topic": "Refused", "body": str(number)} for number in range(300)]
    file = tmp_path / "messages.jsonl"
    write(file, *lines[:5], {**lines[5], **values}, *lines[6:])
    refused = cluster("message", "import", str(file))
    assert refused.status == 65
    assert f"mq message import: {file}, line 6: " in refused.err
    assert message in refused.err
    assert "hint: the lines before it are sent; correct it, and use --resume" in refused.err
    assert bodies(cluster, "Refused")[len(before) :] == [str(number) for number in range(5)]
    write(file, *lines)
    assert cluster("message", "import", str(file), "--resume").status == 0
    assert bodies(cluster, "Refused")[len(before) :] == [str(number) for number in range(300)]


def test_of_a_pipe_it_is_said_that_lines_behind_a_refused_one_may_be_sent(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "RefusedInPipe", 1)
    long = {"topic": "RefusedInPipe", "body": DENSE}
    refused = cluster("message", "import", "-", piped=json.dumps(long))
    assert refused.status == 65
    assert "mq message import: standard input, line 1: " in refused.err
    assert "(maxMessageSize); to have it there, raise" in refused.err
    assert "and maybe some after it: import from a file" in refused.err


@contextmanager
def descriptor_of_a_pipe(content: str) -> Iterator[str]:
    """The name of a pipe that a shell gives for <(…)."""
    reading, writing = os.pipe()
    with open(reading), open(writing, "w") as end:
        end.write(content)
        end.close()
        yield f"/dev/fd/{reading}"


def test_what_a_shell_gives_for_the_output_of_a_command_is_imported(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "Substituted", 1)
    with descriptor_of_a_pipe('{"topic":"Substituted","body":"x"}\n') as name:
        done = cluster("message", "import", name)
    assert done.status == 0, done.err
    assert bodies(cluster, "Substituted") == ["x"]


def test_an_import_from_a_pipe_with_a_name_leaves_no_state_and_is_not_gone_on_with(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "Named", 1)
    pipe = tmp_path / "pipes" / "pipe"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    writer = threading.Thread(
        target=pipe.write_text, args=('{"topic":"Named","body":"x"}\nwrong\n',)
    )
    writer.start()
    refused = cluster("message", "import", str(pipe))
    writer.join()
    assert refused.status == 65
    assert "correct it, and send it and the lines after it" in refused.err
    assert list(pipe.parent.iterdir()) == [pipe]
    refused = cluster("message", "import", str(pipe), "--resume")
    assert refused.status == 64
    assert f"--resume needs a file: {pipe} cannot be resumed" in refused.err


def test_a_save_that_failed_is_tried_again_and_does_not_end_the_import(
    cluster: Mq, standalone: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(standalone, "SavedLater", 1)
    monkeypatch.setattr(resumable, "SAVE_SECONDS", 0.05)
    file = tmp_path / "messages.jsonl"
    state = local_files.beside(file, "import")
    count = 60
    write(file, *({"topic": "SavedLater", "body": str(number)} for number in range(count)))

    def stored() -> int:
        return standalone.broker.stores.messages.max_offset("SavedLater", 0)

    def stand_in_the_way() -> None:
        wait_until(state.exists)
        state.unlink()
        state.mkdir()  # a name that no file system accepts
        before = stored()
        wait_until(lambda: stored() > before + 10)  # half a second, by the rate
        state.rmdir()
        wait_until(state.exists)

    with ThreadPoolExecutor(1) as another:
        other = another.submit(stand_in_the_way)
        done = cluster("message", "import", str(file), "--rate", "20")
        other.result(30)
    assert (done.status, done.err) == (0, "")
    assert bodies(cluster, "SavedLater") == [str(number) for number in range(count)]
    assert not state.exists()


@pytest.mark.parametrize(
    ("command", "piped"),
    [
        (("produce", "HalfMade0"), "x\n"),
        (("message", "import", "-", "-t", "HalfMade1"), '{"body":"x"}\n'),
        (("message", "copy", "Whole", "HalfMade2"), ""),
    ],
    ids=["produce", "import", "copy"],
)
def test_a_topic_that_only_some_masters_have_made_is_partly_done(
    cluster: Mq, standalone: Standalone, command: tuple[str, ...], piped: str
) -> None:
    make_topic(standalone, "Whole", 1)
    with dead_broker(standalone.name_server_address):
        finished = cluster(*command, "--create", "-o", "json", piped=piped)
    topic = next(word for word in command if word.startswith("HalfMade"))
    failure = (
        f"topic {topic} was not created at {DEAD}: Connection refused; "
        f"later: mq updateTopic -t {topic} -c DefaultCluster -r 8 -w 8"
    )
    assert finished.status == 1
    assert (finished.json["status"], finished.json["failures"]) == (1, [failure])
    assert finished.err.endswith(f": {failure}\n")


def test_a_shortfall_is_told_also_where_the_command_fails_then(
    cluster: Mq, standalone: Standalone
) -> None:
    with dead_broker(standalone.name_server_address):
        finished = cluster(
            "message", "import", "-", "-t", "HalfMade3", "--create", piped='{"body":"x"}\nno\n'
        )
    assert finished.status == 65
    assert "topic HalfMade3 was not created at" in finished.err
    assert "line 2: not JSON" in finished.err


def test_a_body_that_grows_as_text_comes_back_from_its_export(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    zeros = Message("Grown", bytes(12 * 1024 * 1024))
    for topic in ("Grown", "GrownBack"):
        make_topic(standalone, topic, 1)
    put(standalone, [zeros], max_body=len(zeros.body))
    file = tmp_path / "exported"
    assert cluster("message", "export", "Grown", str(file)).status == 0
    done = cluster("message", "import", str(file), "-t", "GrownBack")
    assert done.status == 0, done.err
    (back,) = exported(cluster, "GrownBack")
    assert base64.b64decode(back["body"]) == zeros.body


def test_a_copy_keeps_what_is_the_messages_own_and_nothing_of_its_life(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "Life")
    file = tmp_path / "messages.jsonl"
    own = {"TAGS": "t", "KEYS": "a b", "UNIQ_KEY": "7F00AB", "__SHARDINGKEY": "s", "mine": "1"}
    life = {
        "DELAY": "18",
        "TIMER_DELIVER_MS": "9999999999999",
        "REAL_TOPIC": "Other",
        "RETRY_TOPIC": "Other",
        "RECONSUME_TIME": "3",
        "TRAN_MSG": "true",
        "MSG_TYPE": "reply",
        "REPLY_TO_CLIENT": "gone",
        "POP_CK": "x",
        "CLUSTER": "Elsewhere",
        "WAIT": "false",
    }
    line = {"topic": "Life", "properties": own | life, "body": "x", "flag": 3}
    file.write_text(json.dumps(line) + "\n")
    assert cluster("message", "import", str(file)).status == 0
    (found,) = exported(cluster, "Life")
    found["properties"].pop("WAIT", None)
    assert found["properties"].pop("CLUSTER") == "DefaultCluster"
    for name in ("MSG_REGION", "TRACE_ON"):
        found["properties"].pop(name, None)
    assert (found["properties"], found["flag"], found["sysFlag"]) == (own, 3, 0)
    assert cluster("message", "import", str(file), "--new-ids").status == 0
    assert len({line["messageId"] for line in exported(cluster, "Life")}) == 2


def test_an_import_that_was_cut_goes_on(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "CutImport", 2)
    file = tmp_path / "messages.jsonl"
    file.write_text(
        "".join(
            json.dumps({"topic": "CutImport", "queueId": number % 2, "body": str(number)}) + "\n"
            for number in range(1000)
        )
    )
    command = ["message", "import", str(file), "-n", standalone.name_server_address]
    cut = interrupted(lambda: bool(bodies(cluster, "CutImport")), *command, "--rate", "400")
    assert cut.returncode == 130
    before = len(bodies(cluster, "CutImport"))
    assert before < 1000
    assert f"the progress is in {tmp_path / '.messages.jsonl.import'}\n" in cut.stderr
    resumed = cluster(*how_it_goes_on(cut), "-o", "json")
    assert resumed.status == 0, resumed.err
    assert resumed.json["totals"]["messages"] == 1000 - before
    for queue_id in (0, 1):
        found = bodies(cluster, "CutImport", "-i", str(queue_id))
        assert found == [str(number) for number in range(queue_id, 1000, 2)]
    assert not (tmp_path / ".messages.jsonl.import").exists()


def test_an_import_that_begins_anew_is_not_gone_on_with_by_the_state_of_an_older_one(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "AnewImport", 1)
    file, state = tmp_path / "messages.jsonl", tmp_path / ".messages.jsonl.import"
    command = ["message", "import", str(file)]

    def line(body: str) -> str:
        return json.dumps({"topic": "AnewImport", "queueId": 0, "body": body}) + "\n"

    file.write_text(line("older") + "wrong")
    assert cluster(*command).status == 65
    assert state.exists()
    file.write_text("wrong")  # another file by that name
    assert cluster(*command, "--dry-run").status == 65
    assert state.exists()
    assert cluster(*command).status == 65
    file.write_text(line("newer"))
    resumed = cluster(*command, "--resume")
    assert resumed.status == 0, resumed.err
    assert bodies(cluster, "AnewImport") == ["older", "newer"]


def test_a_broker_that_stops_in_the_middle_of_an_import_costs_nothing(tmp_path: Path) -> None:
    ports = (free_port(), free_port())
    file = tmp_path / "messages.jsonl"
    file.write_text(
        "".join(f'{{"topic":"StopsIn","queueId":0,"body":"{number}"}}\n' for number in range(900))
    )
    mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": f"127.0.0.1:{ports[0]}"})
    with running_pair(store=tmp_path / "store", ports=ports) as pair:
        make_topic(pair, "StopsIn", 1)
        where = ("-n", pair.name_server_address)
        command = ("message", "import", str(file), *where)
        process = started(*command, "--rate", "400", "--timeout", "2")
        wait_until(lambda: len(bodies(mq, "StopsIn")) > 0)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "continue with --resume" in err
    with running_pair(store=tmp_path / "store", ports=ports):
        resumed = mq(*command, "--resume")
        assert resumed.status == 0, resumed.err
        found = bodies(mq, "StopsIn")
    # Messages that were stored without an answer are there twice, contiguously.
    assert list(dict.fromkeys(found)) == [str(number) for number in range(900)]
    assert len(found) <= 900 + 128


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"topic":', "not JSON"),
        ("[]", "not a JSON object"),
        ('{"body":"x"}', "topic is missing"),
        ('{"topic":"BadLine"}', "body is missing"),
        ('{"topic":"BadLine","body":1}', "body is not text"),
        ('{"topic":"BadLine","body":"%","bodyEncoding":"base64"}', "body is not base64"),
        ('{"topic":"BadLine","body":"x","bodyEncoding":"rot13"}', "bodyEncoding 'rot13' is not"),
        ('{"topic":"BadLine","body":"x","properties":{"a":1}}', "property 'a' is not text"),
        ('{"topic":"BadLine","body":"x","properties":{"a":"\\u0002"}}', "a character that"),
        ('{"topic":"BadLine","body":"x","queueId":"1"}', "queueId is no int"),
        ('{"topic":"BadLine","body":""}', "an empty body"),
    ],
)
def test_a_line_that_is_no_message_is_named_and_those_before_it_are_sent(
    cluster: Mq, standalone: Standalone, tmp_path: Path, line: str, message: str
) -> None:
    make_topic(standalone, "BadLine")
    before = len(bodies(cluster, "BadLine"))
    file = tmp_path / "messages.jsonl"
    good = '{"topic":"BadLine","body":"good"}\n'
    file.write_text(good + line + "\n" + good)
    finished = cluster("message", "import", str(file))
    assert (finished.status, finished.out) == (65, "")
    assert finished.err.startswith(f"mq message import: {file}, line 2: {message}") or (
        message in finished.err
    )
    assert len(bodies(cluster, "BadLine")) == before + 1
    piped = cluster("message", "import", "-", piped=f"{line}\n")
    assert piped.status == 65
    assert "correct it, and send it and the lines after it" in piped.err  # nothing to resume
    file.write_text(good * 3)
    assert cluster("message", "import", str(file), "--resume").status == 0
    assert len(bodies(cluster, "BadLine")) == before + 3


def test_batches_that_a_broker_refuses_for_their_size_go_in_parts(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"body": f"{number:01000}"}) + "\n" for number in range(100))
    with running_pair({"maxMessageSize": "20000"}) as pair:
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        for topic in ("Small", "SmallCopy"):
            make_topic(pair, topic, 1)
        imported = mq("message", "import", "-", "-t", "Small", piped=lines)
        assert imported.status == 0, imported.err
        copied = mq("message", "copy", "Small", "SmallCopy")
        assert copied.status == 0, copied.err
        for topic in ("Small", "SmallCopy"):
            found = mq("message", "export", topic, "-").out.splitlines()
            assert [int(json.loads(line)["body"]) for line in found] == list(range(100))


def test_what_another_queue_has_taken_is_not_sent_again_after_a_refusal(tmp_path: Path) -> None:
    stored: dict[int, list[str]] = {0: [], 1: []}
    refused: list[Command] = []
    refusing = True

    def store(request: Command, channel: Channel) -> Command | None:
        queue_id = int(request.fields["e"])
        if refusing and queue_id == 0:
            refused.append(request)
            return None
        many = request.code == RequestCode.SEND_BATCH_MESSAGE
        found = [item.body for item in decode_batch(request.body)] if many else [request.body]
        stored[queue_id] += [bytes(body).decode() for body in found]
        where = {"msgId": "00" * 16, "queueId": str(queue_id), "queueOffset": "0"}
        if not refused:
            return request.reply(ResponseCode.SUCCESS, where)
        channel.reply(refused.pop(), ResponseCode.QUERY_NOT_FOUND, remark="no")
        loop = asyncio.get_running_loop()  # this answer is still pending when that arrives
        loop.call_later(0.2, channel.reply, request, ResponseCode.SUCCESS, where)
        return None

    sends = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    handlers = {RequestCode(code): item for code, item in accept_heartbeats().items()}
    first = [{"topic": "T", "body": str(n), "brokerName": "a", "queueId": 0} for n in range(129)]
    lines = [*first, {"topic": "T", "body": "other", "brokerName": "a", "queueId": 1}]
    file = tmp_path / "messages.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with daemon({**handlers, **dict.fromkeys(sends, store)}) as broker:
        server = {RequestCode(code): item for code, item in name_server({"a": broker}).items()}
        with daemon(server) as address:
            mq = Mq(tmp_path, {"NAMESRV_ADDR": address})
            cut = mq("message", "import", str(file))
            assert cut.status == 1, cut.err
            assert stored == {0: [], 1: ["other"]}
            refusing = False
            assert mq("message", "import", str(file), "--resume").status == 0
    assert stored == {0: [str(n) for n in range(129)], 1: ["other"]}
