"""A body that cannot be decompressed is shown in its stored form, with a note."""

import asyncio
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.standalone import Standalone
from tests.cli.pairs import dead_broker, make_topic, running_pair
from tests.cli.support import Mq
from tests.client.compressed import said_to_be_compressed

TOPIC = "Damaged"
UNIQUE = "AC11000100002A9F0000000000000007"
TOLD = f"message {UNIQUE}: the stored body is shown: "

SHOWING = [
    "printMsg -t Damaged",
    "printMsgByQueue -t Damaged -a broker-a -i 0 -p true -d true",
    "consumeMessage -t Damaged",
    "queryMsgByUniqueKey -t Damaged -i AC11000100002A9F0000000000000007 -a",
    "queryMsgByOffset -t Damaged -b broker-a -i 0 -o 1",
    "tail Damaged --last 2 --limit 2",
]


@pytest.fixture(scope="module")
def pair() -> Iterator[Standalone]:
    with running_pair() as made:
        make_topic(made, TOPIC, 1)
        asyncio.run(_send(made))
        yield made


async def _send(pair: Standalone, topic: str = TOPIC) -> None:
    properties = f"UNIQ_KEY\x01{UNIQUE}\x02KEYS\x01key"
    whole = zlib.compress(b"whole" * 100)
    async with Session(pair.name_server_address) as session:
        for body in (whole, whole[:10] + b"!" + whole[11:]):
            command = said_to_be_compressed(topic, body, properties)
            await session.call(pair.broker.address, command)


@pytest.mark.parametrize(
    "command",
    [
        *SHOWING,
        "printMsg -t Damaged -o json",
        "printMsg -t Damaged -o table --sort body",
        "printMsg -t Damaged --format %b",
    ],
)
def test_a_command_says_which_message_has_no_whole_body(
    command: str, pair: Standalone, tmp_path: Path
) -> None:
    mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
    done = mq(*command.split())
    assert done.status == 0, done.err
    assert done.err.count(TOLD) == 1, done.err


@pytest.mark.parametrize("command", [*SHOWING, "queryMsgByKey -t Damaged -k key"])
def test_a_document_of_a_message_says_that_its_body_is_as_it_is_stored(
    command: str, pair: Standalone, tmp_path: Path
) -> None:
    mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
    done = mq(*command.split(), "--output", "json")
    streams = command.startswith("tail")
    printed = done.out.splitlines() if streams else [json.dumps(done.json)]
    documents = [each for line in printed for each in json.loads(line)["data"]]
    errors = {each["queueOffset"]: each["bodyError"] for each in documents}
    assert errors.get(0) is None and errors[1].startswith("the zlib body is damaged: "), done.out
    file = tmp_path / "messages"
    file.write_text("".join(f"{line}\n" for line in printed))
    again = mq("message", "import", str(file), "-t", "Damaged", "--dry-run")
    assert again.status == 65, again.err
    assert "its body is as it was stored: the zlib body" in again.err


def test_no_message_is_sent_again_as_if_its_body_were_whole(
    pair: Standalone, tmp_path: Path
) -> None:
    mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
    found = mq(*"printMsg -t Damaged -o json".split()).json["data"][:2]
    whole, damaged = (message["offsetId"] for message in found)
    done = mq("queryMsgById", "-i", f"{damaged},{whole}", "-s", "true", "-o", "json")
    assert done.status == 1
    (sent,) = done.json["data"]
    assert sent["originalOffsetId"] == whole and "is not sent again" in done.err, done.out


@pytest.mark.parametrize(
    ("command", "state"),
    [
        ("message export Passed0 {}/file --resume", "file.state"),
        ("message copy Passed1 Copied --create --resume {}/state", "state"),
    ],
)
def test_who_goes_on_is_told_of_what_was_passed_over_before(
    command: str, state: str, pair: Standalone, tmp_path: Path
) -> None:
    """An interrupted one skipped it and recorded progress: the next ended as if complete."""
    topic = command.split()[2]
    make_topic(pair, topic, 1)
    asyncio.run(_send(pair, topic))
    mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
    words = command.format(tmp_path).split()
    told = "broker-a:0: bodies that cannot be decompressed: 1, the first at offset 1: "
    with dead_broker(pair.name_server_address, topic):
        for _ in range(3):
            done = mq(*words)
            assert (done.status, done.err.count(told)) == (1, 1), done.err
    assert len(json.loads((tmp_path / state).read_text())["gaps"]) == 1


def test_a_body_that_was_exported_as_it_is_stored_is_not_imported_as_a_whole_one(
    pair: Standalone, tmp_path: Path
) -> None:
    for topic in ("Exported", "Imported"):
        make_topic(pair, topic, 1)
    asyncio.run(_send(pair, "Exported"))
    mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
    file = tmp_path / "messages"
    assert mq("message", "export", "Exported", str(file)).status == 1
    whole, damaged = (json.loads(line) for line in file.read_text().splitlines())
    assert (whole["bodyEncoding"], damaged["bodyEncoding"]) == ("utf-8", "base64")
    assert "bodyError" not in whole
    done = mq("message", "import", str(file), "-t", "Imported")
    assert done.status == 65
    assert f"line 2: its body is as it was stored: {damaged['bodyError']}" in done.err
    assert mq("message", "export", "Imported", "-").json["body"] == "whole" * 100
