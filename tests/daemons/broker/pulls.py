"""A broker with small files, and the requests of tests of pulls."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.protocol.bodies import TopicConfig
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.message import decode_records
from mq.protocol.tags import tags_code
from tests.daemons.broker.harness import Harness
from tests.daemons.broker.store.stores import put
from tests.daemons.peer import Peer

TOPIC = "orders"
SUSPEND = 2
SUBSCRIPTION = 4

Script = Callable[["PullBroker", Peer], Awaitable[None]]


class PullBroker(Harness):
    """Its files are small, and its topic `orders` has four queues."""

    def __init__(self, root: Path, overrides: dict[str, str]) -> None:
        small = {
            "mappedFileSizeCommitLog": "4096",
            "mappedFileSizeConsumeQueue": "400",
            "maxHashSlotNum": "50",
            "maxIndexNum": "100",
        }
        super().__init__(root, {**small, **overrides})

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.stores.topics.update(
            TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
        )
        return self

    @property
    def queue(self) -> ConsumeQueue:
        return self.stores.messages.queue(TOPIC, 0)

    async def put(self, *bodies: bytes, tag: str = "") -> None:
        """Store messages in queue 0, in one batch."""
        properties = b"TAGS\x01" + tag.encode() if tag else b""
        code = tags_code(tag)
        await put(self.stores.messages, TOPIC, 0, *bodies, properties=properties, tags_code=code)


def serve(tmp_path: Path, script: Script, **settings: str) -> None:
    """Run a script against a broker that serves pulls."""

    async def main() -> None:
        async with PullBroker(tmp_path, settings) as broker, Peer(broker.listener.port) as peer:
            await script(broker, peer)

    asyncio.run(main())


def request(
    offset: int,
    *,
    opaque: int = 1,
    tags: str = "*",
    queue_id: int = 0,
    most: int = 32,
    hold: int | None = None,
    flag: int = 0,
    **others: str,
) -> Command:
    """A pull; `hold` (ms) lets it wait."""
    fields = {
        "consumerGroup": "g",
        "topic": TOPIC,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(most),
        "sysFlag": str(SUBSCRIPTION | (SUSPEND if hold is not None else 0)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(hold or 0),
        "subscription": tags,
        "subVersion": "1",
        "expressionType": "TAG",
        **others,
    }
    return Command(RequestCode.PULL_MESSAGE, fields, opaque=opaque, flag=flag)


def start_pull(peer: Peer, command: Command) -> None:
    """Send a pull without waiting for its reply."""
    peer.writer.write(encode(command))


async def pull(peer: Peer, command: Command) -> Command:
    """Send a pull and wait for its reply."""
    start_pull(peer, command)
    reply = await peer.receive()
    assert reply.opaque == command.opaque
    return reply


def outcome(reply: Command) -> tuple[int, int]:
    """(code, next offset)"""
    return reply.code, int(reply.fields["nextBeginOffset"])


def bodies(reply: Command) -> list[bytes]:
    return [bytes(message.body) for message in decode_records(reply.body)]


def numbered(count: int) -> list[bytes]:
    """So many different bodies."""
    return [b"m%d" % number for number in range(count)]
