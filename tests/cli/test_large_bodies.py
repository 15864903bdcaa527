"""A few stored kilobytes may be megabytes when decompressed: commands hold one such body at a time,
and no multiple of it.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.consumer.send_back import send_back
from mq.client.producer.producer import Producer
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message
from mq.protocol.names import dead_letter_topic
from tests.cli.pairs import make_topic, running_pair
from tests.cli.peaks import peak_of
from tests.client.scripted import routed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of memory")

SIZE = 12 * 1024 * 1024  # of a body
COUNT = 4  # more than a command may use
SMALL, LARGE = "SmallBodies", "LargeBodies"  # topics, and groups with dead letters of them
JSON = "JsonBodies"  # a topic with one body, which as values would take sixteen times as much

# One of each way in which a command reads or shows bodies.
COMMANDS = [
    "printMsg {topic}",
    "printMsg {topic} -o json",
    "printMsg {topic} -o csv",
    "printMsg {topic} -o yaml",
    "printMsg {topic} --sort body -o json",
    "printMsg {topic} --format %b --body json",
    "printMsgByQueue {topic} {broker} 0 -f true",
    "consumeMessage {topic}",
    "queryMsgByKey {topic} key -o json",
    "queryMsgById {offset} -o json",
    "queryMsgByUniqueKey {topic} {unique} -a -o json",
    "queryMsgByOffset {topic} {broker} 0 0 -f UTF-8",
    "tail {topic} --last 4 --limit 4 -o table --grep [^a]",
    "message export {topic} {file}",
    "trace {unique} {topic}",
    "dlq list",
    "dlq show {topic} -o json",
    "store dump {store} -t {topic} -o json",
    "store inspect {store} --at {at}",
    "dumpCompactionLog {log} -o json",
]
# The same ways with other options.
MORE_COMMANDS = [
    "printMsg {topic} -c utf-16",
    "printMsg {topic} -o table",
    "printMsg {topic} -o markdown",
    "printMsg {topic} -d false -o json",
    "printMsg {topic} --columns messageId,body",
    "printMsg {topic} --sort -queueOffset -o json",
    "printMsg {topic} --format %b",
    "printMsg {topic} --format %b --body hex",
    "printMsg {topic} -o json --body base64",
    "printMsgByQueue {topic} {broker} 0 -p true -d true",
    "queryMsgByKey {topic} key",
    "queryMsgById {offset} -f UTF-8",
    "queryMsgByUniqueKey {topic} {unique}",
    "tail {topic} --last 4 --limit 4",
    "tail {topic} --last 4 --limit 4 -o json",
    "message export {topic} -",
    "message export {topic} - --body base64",
    "dlq show {topic}",
    "store dump {store} -t {topic}",
    "dumpCompactionLog {log}",
]


@pytest.fixture(scope="module")
def pair() -> Iterator[Standalone]:
    with running_pair() as made:
        for topic, size in ((SMALL, 100), (LARGE, SIZE)):
            make_topic(made, topic, 1)
            asyncio.run(_fill(made, topic, size))
        make_topic(made, JSON, 1)
        asyncio.run(_send_json(made))
        yield made


async def _send_json(pair: Standalone) -> None:
    async with Producer(pair.name_server_address, "fill", max_body=SIZE) as producer:
        await producer.send(Message(JSON, b"[%b{}]" % (b"{}," * (SIZE // 3 - 2))))


async def _fill(pair: Standalone, topic: str, size: int) -> None:
    """Zeros in the topic, and in the dead letters of the group of its name."""
    queue = MessageQueue(topic, pair.broker.settings.broker.broker_name, 0)
    async with Producer(pair.name_server_address, "fill", max_body=size) as producer:
        for _ in range(COUNT):
            message = Message(topic, bytes(size), "tag", ["key"])
            message.system["UNIQ_KEY"] = "AC11000100002A9F0000000000000007"  # a retried send
            await producer.send(message, queue)
    async with Session(pair.name_server_address) as session:
        pulled = await PullConsumer(session).pull(queue, 0, decompress=False)
        for stored in pulled.messages:
            await send_back(session, topic, queue, stored, delay_level=-1, max_reconsume_times=0)
        await routed(session, dead_letter_topic(topic))


def _words(pair: Standalone, command: str, topic: str) -> list[str]:
    async def first() -> dict[str, str]:
        queue = MessageQueue(topic, pair.broker.settings.broker.broker_name, 0)
        async with Session(pair.name_server_address) as session:
            pulled = await PullConsumer(session).pull(queue, 0, max_count=1, decompress=False)
        (message,) = pulled.messages
        return {
            "broker": queue.broker_name,
            "offset": message.offset_id,
            "unique": message.message_id,
            "at": str(message.physical_offset),
        }

    store = Path(pair.broker.settings.store.store_path_root_dir)
    (log,) = (store / "commitlog").iterdir()
    file = str(store / "exported.jsonl")
    names = {"topic": topic, "store": str(store), "log": str(log), "file": file}
    names |= asyncio.run(first())
    return [word.format(**names) for word in command.split()]


@pytest.fixture(scope="module")
def variables(pair: Standalone, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("mq")
    return {
        "NAMESRV_ADDR": pair.name_server_address,
        "MQ_CONFIG_DIR": str(folder / "config"),
        "MQ_STATE_DIR": str(folder / "state"),
        "MQ_TIMEOUT": "30",
    }


@pytest.fixture(scope="module")
def floor(pair: Standalone, variables: dict[str, str]) -> int:
    """The memory of a command that shows small bodies and imports many modules, in bytes."""
    command = "tail {topic} --last 4 --limit 4 -o table --columns body"
    return peak_of(_words(pair, command, SMALL), variables).bytes


@pytest.mark.parametrize(
    "command",
    [*COMMANDS, *(pytest.param(one, marks=pytest.mark.only_more) for one in MORE_COMMANDS)],
)
def test_a_command_holds_one_large_body_at_a_time(
    command: str, pair: Standalone, variables: dict[str, str], floor: int
) -> None:
    peak = peak_of(_words(pair, command, LARGE), variables)
    assert (peak.status, peak.err) == (0, "")
    # The body, and as much again during its decompression; not those of the other messages.
    assert peak.bytes - floor < 3 * SIZE


@pytest.mark.parametrize(
    "command",
    [
        "printMsg {topic} -o json --body json",
        "printMsg {topic} -o csv --body json",
        "printMsg {topic} --format %b --body json",
    ],
)
def test_json_that_would_take_much_is_text_and_it_is_said(
    command: str, pair: Standalone, variables: dict[str, str], floor: int
) -> None:
    peak = peak_of(_words(pair, command, JSON), variables)
    assert peak.status == 0
    assert peak.err == "hint: to print only the body: --format %b --body text"
    assert peak.bytes - floor < 3 * SIZE


def test_an_export_has_json_as_text_that_would_take_much(
    pair: Standalone, variables: dict[str, str], floor: int
) -> None:
    peak = peak_of(_words(pair, "message export {topic} - --body json", JSON), variables)
    assert (peak.status, peak.err) == (0, "")
    assert peak.bytes - floor < 3 * SIZE
