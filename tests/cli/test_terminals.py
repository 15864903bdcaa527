"""Text of others, such as bodies, tags, names and remarks, does not control the terminal: control
characters and escape sequences are shown as marks there. Pipes get every byte.
"""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.cli.main import run
from mq.cli.runtime.env import Environment
from mq.daemons.channel import Channel
from mq.daemons.standalone import Standalone
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from mq.testing import RunningBroker
from tests.cli.connected import connected
from tests.cli.pairs import make_topic, put, running_pair
from tests.cli.scripted import daemon
from tests.cli.support import Finished, Mq
from tests.client.scripted import accept_heartbeats, name_server

# Names the window, clears the screen, in both sets of control characters, rings, goes back.
HOSTILE = "a\x1b]0;owned\x07b\x1b[2Jc\x9b2Jd\re\x7f"
_ALL = (*range(0x20), 0x7F, *range(0x80, 0xA0))
CONTROLS = [chr(code) for code in _ALL if chr(code) not in "\n\t"]
TOPIC = "HostileTopic"


def message() -> Message:
    return Message(
        TOPIC,
        HOSTILE.encode(),
        tags=f"t{HOSTILE}",
        keys=(f"k{HOSTILE}",),
        properties={"note": HOSTILE},
    )


@pytest.fixture(scope="module")
def store(standalone: Standalone, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Messages at the broker, and the same in a store of one that has ended."""
    folder = tmp_path_factory.mktemp("hostile")
    with running_pair(store=folder) as ended:
        for pair in (standalone, ended):
            make_topic(pair, TOPIC, 1)
            put(pair, [message(), message()])
    return str(folder / "store")


@pytest.fixture
def file(tmp_path: Path, cluster: Mq, store: str) -> Path:
    found = tmp_path / "messages.jsonl"
    assert cluster("message", "export", str(found), "-t", TOPIC).status == 0
    return found


def at_terminal(cluster: Mq, *words: str) -> Finished:
    """Return both streams, without our colours."""
    out, err = io.StringIO(), io.StringIO()
    environment = Environment(
        stdin=io.StringIO(),
        stdout=out,
        stderr=err,
        variables={**cluster.variables, "NO_COLOR": "1", "TERM": "dumb"},
        terminal=True,
        error_terminal=True,
        columns=1000,
    )
    status = run(list(words), environment)
    return Finished(status, out.getvalue(), err.getvalue())


# What rich needs to draw: bold letters, bars, the cursor.
OURS = ("\x1b[0m", "\x1b[1m", "\x1b[2K", "\x1b[?25l", "\x1b[?25h", "\x1b[1A", "\r")


def obeyed(done: Finished) -> list[str]:
    """The control characters that reach the terminal and are not ours."""
    text = done.out
    error = done.err
    for sequence in OURS:
        text = text.replace(sequence, "") if sequence != "\r" else text
        error = error.replace(sequence, "")
    return [letter for letter in CONTROLS if letter in text + error]


SHOWING = [
    f"tail {TOPIC} --last 2 --limit 2",
    f"printMsg -t {TOPIC}",
    f"printMsgByQueue -t {TOPIC} -a broker-a -i 0 -p true -d true",
    f"printMsgByQueue -t {TOPIC} -a broker-a -i 0 -f true",
    f"consumeMessage -t {TOPIC}",
    f"queryMsgByOffset -t {TOPIC} -b broker-a -i 0 -o 0",
    f"message export - -t {TOPIC}",
    "message import FILE --dry-run",
    f"message copy -t {TOPIC} --to-topic OtherHostile --dry-run",
    "store dump STORE -t HostileTopic",
]
FORMATS = ["table", "plain", "json", "yaml", "csv", "markdown"]


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("line", SHOWING)
def test_no_byte_of_a_message_reaches_a_terminal_raw(
    line: str, layout: str, cluster: Mq, standalone: Standalone, store: str, file: Path
) -> None:
    make_topic(standalone, "OtherHostile", 1)
    words = line.replace("FILE", str(file)).replace("STORE", store).split()
    done = at_terminal(cluster, *words, "--output", layout)
    assert done.status == 0, done.err
    assert "owned" in done.out
    assert obeyed(done) == []


@pytest.mark.parametrize("format", ["%b %k %g %P{note} %h\\n", r"\x1b[1m%b\x1b[0m\n"])
def test_a_format_may_paint_the_terminal_and_a_message_may_not(
    format: str, cluster: Mq, store: str
) -> None:
    words = ("printMsg", "-t", TOPIC, "--format", format)
    done = at_terminal(cluster, *words)
    assert obeyed(done) == []
    assert "a␛]0;owned␇b␛[2Jc�2Jd␍e␡" in done.out
    assert ("\x1b[1m" in done.out) is format.startswith("\\x1b")
    in_a_pipe = cluster(*words)
    assert HOSTILE in in_a_pipe.out


def test_a_pipe_gets_every_byte(cluster: Mq, store: str) -> None:
    found = cluster("printMsg", "-t", TOPIC, "-o", "json")
    assert [row["body"] for row in found.json["data"]] == [HOSTILE, HOSTILE]


def test_what_a_dry_run_would_send_is_readable(cluster: Mq, store: str, tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    many.write_text('{"topic": "HostileTopic", "queueId": 0, "body": "x"}\n' * 3)
    done = cluster("message", "import", str(many), "--dry-run", "-o", "json")
    [batch] = done.json["data"]
    assert batch["request"] == "SEND_BATCH_MESSAGE"
    assert [item["body"] for item in batch["body"]] == ["x", "x", "x"]
    assert all("UNIQ_KEY" in item["properties"] for item in batch["body"])


def test_dead_letters_and_the_trace_of_a_message_neither(mq_broker: RunningBroker, mq: Mq) -> None:
    mq_broker.create_topic("%DLQ%hostile", queues=1)
    mq_broker.create_topic(TOPIC, queues=1)
    sent = mq_broker.send("%DLQ%hostile", HOSTILE.encode(), tags=f"t{HOSTILE}")
    found = mq_broker.send(TOPIC, HOSTILE.encode(), tags=f"t{HOSTILE}", keys=(f"k{HOSTILE}",))
    there = mq.having({"NAMESRV_ADDR": mq_broker.name_server})
    for layout in FORMATS:
        for words in (["dlq", "show", "-g", "hostile"], ["trace", found.offset_message_id]):
            done = at_terminal(there, *words, "-o", layout)
            assert done.status == 0, done.err
            assert "owned" in done.out
            assert obeyed(done) == []
    assert sent.message_id


@pytest.mark.parametrize("layout", FORMATS)
def test_no_byte_of_a_member_reaches_a_terminal_raw_on_a_page(
    cluster: Mq, standalone: Standalone, layout: str
) -> None:
    make_topic(standalone, TOPIC, 1)
    with connected(standalone, group="hostile-page", topic=TOPIC, client_id=HOSTILE):
        words = ("group", "describe", "hostile-page", "--timeout", "0.2", "-o", layout)
        done = at_terminal(cluster, *words)
    assert ("owned" in done.out) is (layout != "csv")  # which has no members
    assert obeyed(done) == []


def test_no_byte_of_a_refusal_reaches_a_terminal_raw(mq: Mq) -> None:
    def refuse(request: Command, channel: Channel) -> Command:
        return request.reply(ResponseCode.MESSAGE_ILLEGAL, None, remark=HOSTILE)

    handlers = {RequestCode(code): item for code, item in accept_heartbeats().items()}
    with daemon({**handlers, RequestCode.SEND_MESSAGE_V2: refuse}) as broker:
        server = {RequestCode(code): item for code, item in name_server({"a": broker}).items()}
        with daemon(server) as address:
            done = mq("produce", "T", "-n", address, typed="line\n")
    assert done.status == 65
    assert "owned" in done.err
    assert obeyed(done) == []


@pytest.fixture
def hostile_peer() -> Iterator[str]:
    """A name server with control characters in its remarks."""

    def refuse(request: Command, channel: object) -> Command:
        return request.reply(int(ResponseCode.SYSTEM_ERROR), remark=HOSTILE)

    codes = (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_BROKER_CLUSTER_INFO)
    with daemon(dict.fromkeys(codes, refuse)) as address:
        yield address


@pytest.mark.parametrize("name", ["topicList", "clusterList", "doctor", "consumerProgress"])
def test_the_remark_of_a_peer_neither(name: str, hostile_peer: str, mq: Mq) -> None:
    done = at_terminal(mq, name, "-n", hostile_peer)
    assert done.status != 0
    assert "owned" in done.out + done.err
    assert obeyed(done) == []
