"""docs/protocol.md says what the code does."""

import re
from pathlib import Path

from mq.protocol import document, frame
from mq.protocol.command import Command
from mq.protocol.headers.offset import GetMaxOffsetRequestHeader
from mq.protocol.message import decode_record

PATH = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_tables_are_those_of_the_declarations() -> None:
    _, mark, tables = PATH.read_text(encoding="utf-8").partition(document.MARK)
    assert mark
    assert tables == document.tables(), "stale: run python -m mq.protocol.document"


def hex_blocks() -> list[bytes]:
    text = PATH.read_text(encoding="utf-8")
    return [bytes.fromhex(block) for block in re.findall(r"```\n([0-9a-f\s]+)```", text)]


def test_the_frame_of_the_example_is_what_is_sent() -> None:
    header = GetMaxOffsetRequestHeader(topic="TopicTest", queue_id=3)
    command = Command(30, header.encode(), opaque=7)
    assert hex_blocks()[0] == frame.encode(command)


def test_the_binary_header_of_the_example_is_what_is_sent() -> None:
    text = PATH.read_text(encoding="utf-8")
    table = text[text.index("The binary form of the same header") :].split("\n## ")[0]
    rows = re.findall(r"^\| ((?:`[0-9a-f]+` ?)+)\|", table, re.MULTILINE)
    example = bytes.fromhex("".join(rows).replace("`", " "))
    command = Command(30, {"topic": "TopicTest", "queueId": "3"}, opaque=7, serialization=1)
    assert frame.encode(command)[8:] == example


def test_the_record_of_the_example_is_a_message() -> None:
    message = decode_record(hex_blocks()[1], check_crc=True)
    assert (message.topic, message.body) == ("TopicTest", b"Hello")
    assert f"`{message.offset_id}`" in PATH.read_text(encoding="utf-8")


def test_the_tables_are_put_behind_the_mark(tmp_path: Path) -> None:
    path = tmp_path / "protocol.md"
    path.write_text(f"prose\n{document.MARK}old\n")
    document.write(path)
    assert path.read_text() == f"prose\n{document.MARK}{document.tables()}"


def test_the_permissions_are_those_of_the_declarations(tmp_path: Path) -> None:
    committed = (PATH.parent / "permissions.md").read_text(encoding="utf-8")
    assert committed.count(document.START) == 4
    path = tmp_path / "permissions.md"
    path.write_text(committed, encoding="utf-8")
    document.write_permissions(path)
    assert path.read_text(encoding="utf-8") == committed, (
        "stale: run python -m mq.protocol.document"
    )
    path.write_text(committed.replace("| 10 | SEND_MESSAGE |", "| 10 | OTHER |"), encoding="utf-8")
    document.write_permissions(path)
    assert path.read_text(encoding="utf-8") == committed
