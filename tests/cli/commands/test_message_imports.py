import base64
import json
from pathlib import Path
from typing import Any

import pytest

from mq.client.machine.chance import random_bytes
from mq.daemons.standalone import Standalone
from tests.cli.pairs import DEAD, dead_broker, make_topic
from tests.cli.support import Mq

# More than a broker takes, however it is compressed.
DENSE = base64.b64encode(random_bytes(5_000_000)).decode()


def write(file: Path, *lines: dict[str, Any]) -> None:
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def bodies(mq: Mq, topic: str) -> list[str]:
    finished = mq("message", "export", topic, "-")
    assert finished.status == 0, finished.err
    return [json.loads(line)["body"] for line in finished.out.splitlines()]


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
    assert "hint: the lines before it are sent; correct it and go on with --resume" in refused.err
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
        f"topic {topic} was not made at {DEAD}: Connection refused; "
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
    assert "topic HalfMade3 was not made at" in finished.err
    assert "line 2: not JSON" in finished.err
