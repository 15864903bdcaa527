"""The cost of commands that print messages whose bodies are small on the wire and large when
decompressed: wall time and peak memory, each command in a process of its own.

    python -m bench.bodies [WORD...]      only the rows that contain one of the words
"""

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mq.client.admin import Admin
from mq.client.consumer.send_back import send_back
from mq.client.producer.producer import Producer
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig
from mq.protocol.message import Message
from mq.protocol.names import dead_letter_topic
from tests.cli.peaks import peak_of
from tests.client.scripted import routed

MB = 1_000_000
SECONDS = 120  # limit for a command

# Number and size of messages.
LOADS = ((1, 60 * MB), (32, 20 * MB))

COMMANDS = (
    "printMsg {topic}",
    "printMsg {topic} -o json",
    "printMsg {topic} -o csv",
    "printMsg {topic} -o yaml",
    "printMsg {topic} -o table",
    "printMsg {topic} -o markdown",
    "printMsg {topic} -d false",
    "printMsg {topic} --format %b",
    "printMsg {topic} --format %b --body hex",
    "printMsg {topic} --format %b --body json",
    "printMsg {topic} -o json --body base64",
    "printMsg {topic} --columns messageId",
    "printMsgByQueue {topic} {broker} 0 -p true -d true",
    "printMsgByQueue {topic} {broker} 0 -f true",
    "consumeMessage {topic}",
    "queryMsgByKey {topic} key",
    "queryMsgByKey {topic} key -o json",
    "queryMsgById {offset}",
    "queryMsgById {offset} -f UTF-8",
    "queryMsgById {offset} -o json",
    "queryMsgByUniqueKey {topic} {unique}",
    "queryMsgByUniqueKey {topic} {unique} -o json",
    "queryMsgByOffset {topic} {broker} 0 0 -f UTF-8",
    "tail {topic} --last 32 --limit {count}",
    "tail {topic} --last 32 --limit {count} -o json",
    "tail {topic} --last 32 --limit {count} -o table",
    "tail {topic} --last 32 --limit {count} --grep [^a]",
    "trace {unique} {topic}",
    "message export {topic} -",
    "dlq list",
    "dlq show {group}",
    "dlq show {group} -o json",
    "dlq export {group} -",
    "store dump {store} -t {topic}",
    "store dump {store} -t {topic} -o json",
    "store inspect {store} --at {at}",
    "dumpCompactionLog {log}",
    "dumpCompactionLog {log} -o json",
)


async def _store(pair: Standalone, topic: str, count: int, size: int, group: str) -> None:
    """Store zeros in a topic, and as dead letters of a group."""
    async with Session(pair.name_server_address) as session:
        admin = Admin(session)
        config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=6)
        await admin.create_topic(pair.broker.address, config)
        settings = SubscriptionGroupConfig(group_name=group)
        await admin.update_subscription_group(pair.broker.address, settings)
    queue = MessageQueue(topic, pair.broker.settings.broker.broker_name, 0)
    async with Producer(pair.name_server_address, "bench", max_body=size) as producer:
        for _ in range(count):
            await producer.send(Message(topic, bytes(size), "tag", ["key"]), queue)
    async with Session(pair.name_server_address) as session:
        consumer = PullConsumer(session)
        offset = 0
        while offset < count:
            pulled = await consumer.pull(queue, offset, decompress=False)
            for message in pulled.messages:
                await send_back(
                    session, group, queue, message, delay_level=-1, max_reconsume_times=0
                )
            offset = pulled.next_offset
        await routed(session, dead_letter_topic(group))


async def _names(pair: Standalone, topic: str) -> dict[str, str]:
    async with Session(pair.name_server_address) as session:
        queue = MessageQueue(topic, pair.broker.settings.broker.broker_name, 0)
        pulled = await PullConsumer(session).pull(queue, 0, max_count=1, decompress=False)
        (first,) = pulled.messages
    store = Path(pair.broker.settings.store.store_path_root_dir)
    return {
        "topic": topic,
        "broker": queue.broker_name,
        "offset": first.offset_id,
        "unique": first.message_id,
        "at": str(first.physical_offset),
        "store": str(store),
        "log": str(next((store / "commitlog").iterdir())),
    }


async def _rows(words: list[str], folder: Path) -> None:
    for count, size in LOADS:
        title = f"{count} of {size // MB} MB"
        print(f"\n| {title} | s | MB | printed MB | status |\n|---|---|---|---|---|")
        async with Standalone(folder / f"store{count}", name_server_port=0, broker_port=0) as pair:
            await pair.broker.registration.first_round.wait()
            await _store(pair, "Bodies", count, size, "bodies")
            names = await _names(pair, "Bodies") | {"count": str(count), "group": "bodies"}
            variables = {
                "NAMESRV_ADDR": pair.name_server_address,
                "MQ_STATE_DIR": str(folder / "state"),
                "MQ_CONFIG_DIR": str(folder / "config"),
            }
            for line in _chosen(words):
                given = [word.format(**names) for word in line.split()]
                found = await asyncio.to_thread(_measured, given, variables, folder / "out")
                print(f"| {re.sub('[{}]', '', line)} | {found} |", flush=True)


def _measured(words: list[str], variables: dict[str, str], out: Path) -> str:
    begin = time.monotonic()
    try:
        found = peak_of(words, variables, out=out, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"over {SECONDS} | | {out.stat().st_size / MB:.0f} |"
    seconds = time.monotonic() - begin
    printed = out.stat().st_size / MB
    return f"{seconds:.1f} | {found.bytes / MB:.0f} | {printed:.0f} | {found.status} {found.err}"


def _chosen(words: list[str]) -> Iterator[str]:
    for line in COMMANDS:
        if not words or any(word in line for word in words):
            yield line


def main() -> None:
    """Print a table for each load."""
    with tempfile.TemporaryDirectory(prefix="bodies-", dir=Path.cwd() / ".cache") as folder:
        asyncio.run(_rows(sys.argv[1:], Path(folder)))


if __name__ == "__main__":
    main()
