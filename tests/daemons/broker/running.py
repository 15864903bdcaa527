"""A whole broker in this process, created by its app, and the requests of tests to it."""

import time
from pathlib import Path

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage, decode_records
from tests.daemons.peer import PATIENCE


def broker_on(root: Path, **settings: str) -> Broker:
    fixed = {"listenPort": "0", "brokerIP1": "127.0.0.1", "storePathRootDir": str(root)}
    return Broker(BrokerSettings.load(None, {**fixed, **settings}))


async def send(
    session: Session, address: str, body: bytes, properties: dict[str, str], **fields: str
) -> Command:
    """Send to queue 1 of the topic Later; returns the reply."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    header = {"a": "P", "b": "Later", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "7"}
    header |= {"h": "5", "i": text, "j": "0", "k": "false", "m": "false", **fields}
    return await session.invoke(address, Command(RequestCode.SEND_MESSAGE_V2, header, body))


async def pull(session: Session, address: str, topic: str, count: int) -> list[StoredMessage]:
    """The first messages of queue 1 (0 of retries), once there are so many."""
    queue = "0" if topic.startswith("%") else "1"
    found: list[StoredMessage] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages of {topic}"
        fields = {"consumerGroup": "G", "topic": topic, "queueId": queue, "maxMsgNums": "32"}
        fields |= {"queueOffset": str(len(found)), "sysFlag": "6", "commitOffset": "0"}
        fields |= {"suspendTimeoutMillis": "5000", "subscription": "*", "subVersion": "0"}
        reply = await session.invoke(address, Command(RequestCode.PULL_MESSAGE, fields), 20)
        if reply.code == ResponseCode.SUCCESS:
            found += decode_records(reply.body)
        else:
            assert reply.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST), reply
    return found


def send_back(offset: int, **fields: str) -> Command:
    """The request of group G to consume a message of Later again, by its position in the log."""
    header = {"offset": str(offset), "group": "G", "delayLevel": "1", "originTopic": "Later"}
    return Command(RequestCode.CONSUMER_SEND_MSG_BACK, {**header, **fields})


def now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
