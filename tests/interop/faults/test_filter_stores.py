"""Consumer filters and bit maps of matched filters, written by one broker and read by the other."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.protocol import message
from mq.protocol.bodies import (
    ConsumeQueueData,
    ConsumerData,
    HeartbeatData,
    QueryConsumeQueueResponseBody,
    SubscriptionData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.interop.peers import JavaBroker
from tests.system.daemon import BrokerProcess

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

TOPIC, GROUP = "Filtered", "sql-readers"
SETTINGS = {
    "enablePropertyFilter": "true",
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "mappedFileSizeCommitLog": str(64 << 20),
    "diskMaxUsedSpaceRatio": "95",
    "defaultTopicQueueNums": "1",
}
FILTER = "a BETWEEN 3 AND 5 OR a > 100"


@contextmanager
def broker(kind: str, tmp: Path) -> Iterator[JavaBroker | BrokerProcess]:
    process: JavaBroker | BrokerProcess
    if kind == "java":
        process = JavaBroker("4.9.7", tmp, "", SETTINGS, store=tmp / "store")
    else:
        process = BrokerProcess(tmp / "store", SETTINGS)
    with process:
        yield process
        process.stop()


class Reader:
    """A consumer with a filter, on its own connection."""

    def __init__(self, session: Session, address: str) -> None:
        self._session = session
        self._address = address

    async def _ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> Command:
        return await self._session.invoke(self._address, Command(code, fields, body))

    async def beat(self) -> None:
        subscription = SubscriptionData(
            topic=TOPIC, sub_string=FILTER, expression_type="SQL92", sub_version=1
        )
        data = ConsumerData(group_name=GROUP, subscription_data_set=[subscription])
        body = HeartbeatData(client_id="reader", consumer_data_set=[data]).encode()
        assert (await self._ask(RequestCode.HEART_BEAT, {}, body)).code == ResponseCode.SUCCESS

    async def send(self, number: int) -> None:
        fields = {
            **{"a": "P", "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "j": "0"},
            **{"g": "1700000000000", "h": "0", "i": f"a\x01{number}\x02TAGS\x01t", "k": "false"},
            **{"m": "false"},
        }
        reply = await self._ask(RequestCode.SEND_MESSAGE_V2, fields, b"%d" % number)
        assert reply.code == ResponseCode.SUCCESS, reply

    async def entries(self, count: int) -> list[ConsumeQueueData]:
        """Return the entries of the queue when enough exist (Java writes them after the log)."""
        fields = {"topic": TOPIC, "queueId": "0", "index": "0", "count": str(count)}
        deadline = time.monotonic() + 20
        while True:
            reply = await self._ask(
                RequestCode.QUERY_CONSUME_QUEUE, {**fields, "consumerGroup": GROUP}
            )
            if reply.body:
                body = QueryConsumeQueueResponseBody.decode(reply.body)
                if len(body.queue_data) >= count:
                    assert json.loads(body.filter_data or "")["expression"] == FILTER
                    return body.queue_data
            assert time.monotonic() < deadline, reply
            await asyncio.sleep(0.05)

    async def pull(self) -> list[str]:
        bodies: list[str] = []
        offset = "0"
        while True:
            fields = {
                **{"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": offset},
                **{"maxMsgNums": "32", "sysFlag": "0", "commitOffset": "0", "subVersion": "1"},
                **{"suspendTimeoutMillis": "0"},
            }
            reply = await self._ask(RequestCode.PULL_MESSAGE, fields)
            assert reply.code in (0, 19, 20), reply
            if reply.code == ResponseCode.PULL_NOT_FOUND:
                return bodies
            bodies += [record.body.decode() for record in message.decode_records(reply.body)]
            offset = reply.fields["nextBeginOffset"]


async def turn(address: str, before: int, after: int) -> list[ConsumeQueueData]:
    """Read the messages, send more, and read all; returns the entries."""
    async with Session("127.0.0.1:1", timeout=10) as session:
        reader = Reader(session, address)
        await reader.beat()
        if before:
            await reader.entries(before)
            assert await reader.pull() == ["3", "4", "5"]
        for number in range(before, after):
            await reader.send(number)
        entries = await reader.entries(after)
        assert await reader.pull() == ["3", "4", "5"]
        return entries


@pytest.mark.parametrize("order", [("java", "ours", "java"), ("ours", "java", "ours")])
def test_filters_and_bit_maps_of_one_broker_serve_the_other(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    seen: list[ConsumeQueueData] = []
    for number, kind in enumerate(order):
        with broker(kind, tmp_path) as process:
            entries = asyncio.run(turn(process.address, 10 * number, 10 * number + 10))
        # Each broker shows an entry of the other as the writer does.
        for old, new in zip(seen, entries, strict=False):
            assert (new.tags_code, new.bit_map) == (old.tags_code, old.bit_map)
            assert (new.extend_data_json, new.eval) == (old.extend_data_json, old.eval)
        assert all(entry.extend_data_json for entry in entries), kind
        seen = entries
    # The first message may have the same millisecond as the creation of the filter.
    assert [entry.eval for entry in seen[2:8]] == [False, True, True, True, False, False]
    assert not any(entry.eval for entry in seen[10:])
