"""Commands of TubeMQ, with a real master and broker."""

import asyncio
import errno
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from mq.cli.commands.tube_messages import _bodies, _send_all
from mq.cli.main import run
from mq.cli.runtime.env import Environment
from mq.client.errors import BadAnswer, ConnectError
from mq.client.operations.messages.line_source import LineSource
from mq.client.tube.admin import AdminRefused, ChangesFailed, TubeAdmin
from mq.client.tube.producer import TubeProducer
from mq.protocol.tube.strings import Address
from tests.cli.commands.tube_pair import PATIENCE, TOKEN, admin_of, pair, rows, web
from tests.cli.support import Finished, Mq
from tests.client.scenarios import in_a_loop

__all__ = ["pair"]  # a fixture


@pytest.fixture
def mq(pair: Any, tmp_path: Path) -> Mq:
    variables = {"MQ_TUBE_MASTERS": pair.master_address, "MQ_TUBE_TOKEN": TOKEN, "MQ_TIMEOUT": "30"}
    return Mq(tmp_path / "config", variables)


def test_brokers_are_listed_with_what_they_do(mq: Mq, pair: Any) -> None:
    (row,) = rows(mq("tube", "brokers", *web(pair), "-o", "json"))
    assert (row["brokerId"], row["address"]) == (1, f"127.0.0.1:{pair.broker.port}")
    assert (row["manageStatus"], row["runStatus"]) == ("online", "running")
    assert row["acceptPublish"] is True and row["acceptSubscribe"] is True


def test_topics_are_listed_with_their_partitions(mq: Mq, pair: Any) -> None:
    (row,) = rows(mq("tube", "topics", "-t", "demo", *web(pair), "-o", "json"))
    assert (row["topic"], row["brokers"]) == ("demo", "1")
    assert (row["configuredPartitions"], row["runningPartitions"]) == (3, 3)
    gone = mq("tube", "topics", "-t", "gone", *web(pair))
    assert (gone.status, "no topic gone" in gone.err) == (66, True)


def test_a_topic_is_made_and_deleted(mq: Mq, pair: Any) -> None:
    dry = mq("tube", "create-topic", "made", "--dry-run", *web(pair))
    assert dry.status == 0 and "made" in dry.out
    assert mq("tube", "topics", "-t", "made", *web(pair)).status == 66
    created = rows(mq("tube", "create-topic", "made", "-p", "2", *web(pair), "-o", "json"))
    assert created == [{"topic": "made", "brokerId": 1, "what": "created"}]
    (row,) = rows(mq("tube", "topics", "-t", "made", *web(pair), "-o", "json"))
    assert row["configuredPartitions"] == 2
    again = mq("tube", "create-topic", "made", *web(pair))
    assert again.status == 69 and "made at broker 1" in again.err
    deleted = rows(mq("tube", "delete-topic", "made", "--yes", *web(pair), "-o", "json"))
    assert deleted == [{"topic": "made", "brokerId": 1, "what": "deleted"}]
    gone = mq("tube", "delete-topic", "gone", "--yes", *web(pair))
    assert gone.status == 66


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("create-topic", "no topic"), "topicName"),
        (("create-topic", "fine", "-p", "0"), "at least 1"),
        (("create-topic", "fine", "-b", "x"), "ids must be numbers"),
        (("create-topic", "fine", "-b", "9"), "there is no broker 9 (known: 1)"),
        (("set-offsets", "end", "-g", "gg"), "-t/--topic is required"),
        (("set-offsets", "1:t", "-g", "gg"), "WHERE"),
        (("send", "demo"), "one of -p/--body and --lines is required"),
        (("send", "demo", "-p", "x", "--attribute", "x"), "KEY=VALUE"),
        (("send", "demo", "-p", "x", "--attribute", "a=b,c"), "',' or '='"),
        (("send", "demo", "-p", "x", "--time", "202613011015"), "no calendar has it"),
        (("clone-offsets", ",", "-g", "gg"), "contains no group"),
        (("consume", "demo", "-g", "gg", "--limit", "0"), "--limit 0"),
        (("bench", "demo", "--messages", "0"), "--messages 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    mq: Mq, pair: Any, words: tuple[str, ...], why: str
) -> None:
    finished = mq("tube", *words, *web(pair))
    assert finished.status == 64 and why in finished.err, finished.err


def test_a_change_without_the_token_is_refused(mq: Mq, pair: Any, tmp_path: Path) -> None:
    refused = mq("tube", "create-topic", "made", *web(pair), MQ_TUBE_TOKEN="s3cret")
    assert refused.status == 69 and "wrong confModAuthToken" in refused.err
    assert "s3cret" not in refused.err + refused.out
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    words = ("tube", "delete-topic", "gone", "--yes", "--token-file", str(file))
    assert mq(*words, *web(pair), MQ_TUBE_TOKEN="wrong").status == 66


def test_messages_are_sent_consumed_and_confirmed(mq: Mq, pair: Any, tmp_path: Path) -> None:
    (one,) = rows(
        mq("tube", "send", "sent", "-p", "hello", "--type", "abc", "--attribute", "a=1",
           "--time", "202611231015", "-o", "json")
    )  # fmt: skip
    assert one["topic"] == "sent" and one["partition"].startswith("1:sent:")
    lines = tmp_path / "lines"
    lines.write_bytes(b"one\n\n\xff\xfe\n")
    assert len(rows(mq("tube", "send", "sent", "--lines", str(lines), "-o", "json"))) == 2
    words = ("tube", "consume", "sent", "-g", "readers", "--first", "--wait", "20", "--limit", "3")
    found = rows(mq(*words, "-o", "json"))
    bodies = {row["body"]: row for row in found}
    assert set(bodies) == {"hello", "one", "//4="}
    assert bodies["//4="]["bodyEncoding"] == "base64"
    assert bodies["hello"]["messageId"] == one["messageId"]
    assert (bodies["hello"]["type"], bodies["hello"]["time"]) == ("abc", "202611231015")
    text = "$msgType$=abc,$msgTime$=202611231015,a=1"
    assert bodies["hello"]["attributes"] == text
    offsets = rows(mq("tube", "offsets", "-g", "readers", *web(pair), "-o", "json"))
    assert [(row["topic"], row["behind"], row["pending"]) for row in offsets] == [
        ("sent", 0, 0)
    ] * 3


class Breaking(io.StringIO):
    """Standard input that fails after its data."""

    def read(self, size: int | None = -1) -> str:
        if text := super().read(size):
            return text
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_what_was_sent_is_told_where_no_more_can_be_read(mq: Mq, pair: Any) -> None:
    def sent(text: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        environment = Environment(
            stdin=Breaking(text), stdout=out, stderr=err, variables=mq.variables
        )
        status = run(["tube", "send", "sent", "--lines", "-", "-o", "csv"], environment)
        return status, out.getvalue(), err.getvalue()

    status, out, err = sent("one\ntwo\n")
    assert (status, len(out.splitlines())) == (1, 3)
    assert "cannot read past message 2: Input/output error" in err
    status, out, err = sent("")
    assert (status, out) == (74, "")
    assert "Input/output error" in err and "bug" not in err


def test_ctrl_c_ends_a_send_of_lines_with_what_was_sent(pair: Any) -> None:
    before = pair.broker.sends.taken
    words = ["tube", "send", "sent", "--lines", "-", "-n", pair.master_address, "-o", "csv"]
    with subprocess.Popen(
        [sys.executable, "-m", "mq", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write("one\ntwo\nnot whole")
        process.stdin.flush()
        waiting = threading.Event()
        while pair.broker.sends.taken < before + 2:
            waiting.wait(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, len(out.splitlines())) == (130, 3), err
    assert err == "mq tube send: interrupted: nothing was sent after message 2\n"


@in_a_loop
async def test_ctrl_c_behind_the_last_line_waits_for_what_is_on_its_way(pair: Any) -> None:
    ended = asyncio.Event()

    async def bodies() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"
        ended.set()

    async with TubeProducer(pair.master_address, ["sent"]) as producer:
        sending = asyncio.ensure_future(_send_all(producer, "sent", bodies(), {}))
        await ended.wait()
        sending.cancel()
        sent, failures, interrupted = await sending
    assert (len(sent), interrupted) == (2, True)
    assert failures == ["interrupted: nothing was sent after message 2"]


@in_a_loop
async def test_a_line_that_is_cut_at_a_carriage_return_does_not_come_as_a_whole_one() -> None:
    pieces = iter([b"12345678\r\n", b"12345678\r9\n", b""])
    with LineSource(lambda size: next(pieces), longest=9) as source:
        found = [body async for body in _bodies(source, 9)]
    assert found == [b"12345678", b"12345678\r9"]


def test_only_messages_of_a_type_are_consumed(mq: Mq, pair: Any) -> None:
    for kind in ("wanted", "other"):
        assert mq("tube", "send", "other", "-p", kind, "--type", kind).status == 0
    words = ("tube", "consume", "other", "-g", "choosy", "--first", "--type", "wanted")
    found = rows(mq(*words, "--limit", "1", "--wait", "20", "-o", "json"))
    assert [row["body"] for row in found] == ["wanted"]


def test_offsets_are_set_and_cloned(mq: Mq, pair: Any) -> None:
    for _ in range(3):
        assert mq("tube", "send", "other", "-p", "x").status == 0

    def at(group: str) -> list[int]:
        words = ("tube", "offsets", "-g", group, "-t", "other", *web(pair), "-o", "json")
        return [row["offset"] for row in rows(mq(*words))]

    dry = mq("tube", "set-offsets", "end", "-g", "mover", "-t", "other", "--dry-run", *web(pair))
    assert dry.status == 0 and at("mover") == []
    rows(mq("tube", "set-offsets", "end", "-g", "mover", "-t", "other", *web(pair), "-o", "json"))
    (end,) = at("mover")
    assert end >= 3 * 28
    rows(mq("tube", "set-offsets", "1:other:0=28", "-g", "mover", *web(pair), "-o", "json"))
    assert at("mover") == [28]
    cloned = rows(mq("tube", "clone-offsets", "a1,a2", "-g", "mover", *web(pair), "-o", "json"))
    assert [row["group"] for row in cloned] == ["a1", "a2"]
    assert at("a1") == at("a2") == [28]
    unknown = mq("tube", "clone-offsets", "a1", "-g", "nobody", *web(pair))
    assert unknown.status == 69 and "nobody" in unknown.err


def test_groups_are_listed_with_their_members(mq: Mq, pair: Any) -> None:
    finished: list[Finished] = []
    words = ("tube", "tail", "demo", "--limit", "1", "-o", "json")
    tailing = threading.Thread(target=lambda: finished.append(mq(*words)))
    tailing.start()
    admin = admin_of(pair)

    def groups() -> list[str]:
        found = admin.query("admin_query_sub_info")["data"]
        return [one["consumeGroup"] for one in found if one["consumeGroup"].startswith("mq_tail_")]

    def held() -> int:
        for group in groups():
            detail = admin.query("admin_query_consume_group_detail", groupName=group)
            return sum(member["parCount"] for member in detail["data"])
        return 0

    waiting = threading.Event()
    while held() < 3 and tailing.is_alive():
        waiting.wait(0.05)
    (group,) = groups()
    listed = rows(mq("tube", "groups", *web(pair), "-o", "json"))
    assert {"group": group, "topics": "demo", "members": 1} in listed
    members = rows(mq("tube", "groups", "-g", group, *web(pair), "-o", "json"))
    assert [row["partition"] for row in members] == [f"1:demo:{n}" for n in range(3)]
    assert mq("tube", "send", "demo", "-p", "now").status == 0
    tailing.join(PATIENCE)
    assert [row["body"] for row in rows(finished[0])] == ["now"]
    assert mq("tube", "groups", "-g", "nobody", *web(pair)).status == 66


def test_the_bench_measures_senders_and_a_reader(mq: Mq, pair: Any) -> None:
    words = ("--messages", "500", "--size", "100", "--producers", "2", "--in-flight", "4", "--read")
    sent, read = rows(mq("tube", "bench", "demo", *words, "-o", "json"))
    assert (sent["role"], sent["messages"], read["role"]) == ("producers", 500, "reader")
    assert sent["perSecond"] > 0 and sent["medianMillis"] <= sent["maxMillis"]
    assert read["messages"] >= 500


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Set the signal state of a new process: a test run may ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("read", [(), ("--read",)])
def test_the_bench_shows_what_was_measured_until_ctrl_c(
    read: tuple[str, ...], mq: Mq, pair: Any
) -> None:
    before = pair.broker.sends.taken

    def cut() -> None:
        waiting = threading.Event()
        while pair.broker.sends.taken < before + 100:
            waiting.wait(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=cut)
    thread.start()
    words = ("--messages", "100000000", "--size", "100", "--producers", "2", "--in-flight", "4")
    done = mq("tube", "bench", "demo", *words, *read, "-o", "json")
    thread.join(PATIENCE)
    assert done.status == 130
    assert done.err == "mq tube bench: interrupted: these are the results so far\n"
    shown = rows(Finished(0, done.out, ""))
    assert [row["role"] for row in shown] == ["producers", "reader"][: 1 + len(read)]
    assert 0 < shown[0]["messages"] <= pair.broker.sends.taken - before
    assert shown[0]["perSecond"] > 0


def test_a_topic_that_is_not_there_cannot_be_sent_to(mq: Mq, pair: Any) -> None:
    finished = mq("tube", "send", "gone", "-p", "x")
    assert finished.status == 69 and "PARAMETER_MSG_TOPIC_NO_PARTITION" in finished.err
    finished = mq("tube", "tail", "gone")
    assert finished.status != 0 and "gone" in finished.err


def test_an_administrator_is_told_what_was_refused(pair: Any) -> None:
    admin = admin_of(pair)
    with pytest.raises(ChangesFailed, match="nowhere at broker 1"):
        admin.change("admin_delete_topic_info", topicName="nowhere", brokerId=1)
    with pytest.raises(AdminRefused, match="confModAuthToken"):
        admin_of(pair, "wrong").change("admin_delete_topic_info", topicName="x", brokerId=1)
    with pytest.raises(AdminRefused):
        admin.query("admin_no_such_method")


def test_an_administrator_asks_the_next_master_where_one_is_gone(pair: Any) -> None:
    port = pair.master.web_port
    masters = [Address("127.0.0.2", 1), Address("127.0.0.1", 2)]
    assert TubeAdmin(masters, web_port=port, timeout=PATIENCE).brokers()
    with pytest.raises(ConnectError, match=r"127\.0\.0\.2:1"):
        TubeAdmin(masters[:1], web_port=port, timeout=PATIENCE).brokers()
    with pytest.raises((BadAnswer, ConnectError)):
        TubeAdmin(masters[1:], web_port=pair.broker.port, timeout=1).brokers()


def test_what_is_sent_by_a_producer_is_there(mq: Mq, pair: Any) -> None:
    async def send() -> int:
        async with TubeProducer(pair.master_address, ["other"]) as producer:
            return (await producer.send("other", b"by itself")).message_id

    assert asyncio.run(send()) > 0
