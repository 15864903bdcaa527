"""Messages that consumers read in a set under controllers, at masters and slaves, are never
truncated.

Before each kill of the master its slaves are suspended for a moment: then it has messages that they
lack, and the next master truncates them. With allAckInSyncStateSet=false they are readable before.
"""

import asyncio
import os
from pathlib import Path

import pytest

from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import decode_records
from tests.daemons.broker.failover.membership.controller import ScriptedController
from tests.system.controlled_set import NAME, member, point_to, until_more
from tests.system.daemon import BrokerProcess
from tests.system.ledger import QUEUES, TOPIC, SenderProcess, audit

pytestmark = [pytest.mark.longer, pytest.mark.timeout(2400)]

ROUNDS = 100 if os.environ.get("MQ_TEST_LONG") else 3
STILL_SECONDS = 0.4
# This many messages are read again each time, because they may have been truncated.
_AGAIN = 40

# by queue and offset: the body, and the broker that had it
Reads = dict[tuple[int, int], tuple[bytes, str]]


async def read(
    session: Session, address: str, queue_id: int, offset: int, found: Reads, wrong: list[str]
) -> int:
    """Read a queue of a broker to its end, and return that; ``wrong`` gets messages that differ
    from those read before.
    """
    while True:
        fields = {
            **{"consumerGroup": "readers", "topic": TOPIC, "queueId": str(queue_id)},
            **{"queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "4"},
            **{"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*"},
            **{"subVersion": "1", "expressionType": "TAG"},
        }
        reply = await session.invoke(address, Command(RequestCode.PULL_MESSAGE, fields), 2)
        if reply.code != ResponseCode.SUCCESS:
            return offset
        for message in decode_records(reply.body):
            body = bytes(message.body)
            before, where = found.setdefault((queue_id, message.queue_offset), (body, address))
            if before != body:
                wrong.append(
                    f"queue {queue_id}, {message.queue_offset}: {where} had {before[:20]!r}, and "
                    f"{address} has {body[:20]!r}"
                )
            offset = message.queue_offset + 1


async def read_on(broker: BrokerProcess, found: Reads, wrong: list[str]) -> None:
    """Read from a broker repeatedly, until cancelled."""
    ends = dict.fromkeys(range(QUEUES), 0)
    async with Session("127.0.0.1:1", timeout=3) as session:
        while True:
            for queue_id, end in ends.items():
                begin = max(0, end - _AGAIN)
                try:
                    ends[queue_id] = await read(
                        session, broker.address, queue_id, begin, found, wrong
                    )
                except MQError:
                    pass  # it is dead or suspended
            await asyncio.sleep(0.003)


def test_read_messages_are_never_truncated(tmp_path: Path) -> None:
    address_file = tmp_path / "address"
    found: Reads = {}
    wrong: list[str] = []

    async def play(brokers: list[BrokerProcess], controller: ScriptedController) -> None:
        await asyncio.gather(*(asyncio.to_thread(one.start) for one in brokers))
        there = controller.sets[NAME]
        await controller.until(lambda: len(there.members) == 3)
        sender = SenderProcess(tmp_path, 0, address_file)

        def at() -> str:
            return there.ids[there.master][0]

        address_file.write_text(at())
        await asyncio.to_thread(sender.start)
        reading = [asyncio.create_task(read_on(one, found, wrong)) for one in brokers]
        try:
            for _ in range(ROUNDS):
                await controller.until(lambda: len(there.members) == 3)
                await until_more(sender, 300)
                killed = next(one for one in brokers if one.address == at())
                others = [one for one in brokers if one is not killed]
                epoch = there.epoch
                for other in others:
                    other.pause()
                await asyncio.sleep(STILL_SECONDS)
                killed.kill()
                for other in others:
                    other.go_on()
                await controller.until(lambda: there.epoch > epoch and bool(there.master))  # noqa: B023
                point_to(address_file, at())
                await until_more(sender, 1)
                await asyncio.to_thread(killed.start)
        finally:
            await asyncio.to_thread(sender.stop)
            for one in reading:
                one.cancel()
        await controller.until(lambda: len(there.members) == 3)
        assert wrong == []
        last: Reads = {}
        async with Session("127.0.0.1:1", timeout=5) as session:
            for queue_id in range(QUEUES):
                await read(session, at(), queue_id, 0, last, wrong)
        assert found
        assert [
            place for place, (body, _) in found.items() if last.get(place, (b"", ""))[0] != body
        ] == []

    async def run() -> None:
        async with ScriptedController() as controller:
            brokers = [
                member(tmp_path, number, controller.address, minInSyncReplicas="2")
                for number in range(3)
            ]
            try:
                await play(brokers, controller)
                for one in brokers:
                    (await asyncio.to_thread(audit, tmp_path, one.address)).check()
            finally:
                for one in brokers:
                    await asyncio.to_thread(one.kill)

    asyncio.run(run())
