"""Pop consumption on a broker that is killed at random moments.

`make test-long` kills it 30 times, MQ_CRASH_ROUNDS says another number.
"""

import asyncio
import contextlib
import os
import random
from pathlib import Path

import pytest

from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.message import decode_records
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.peer import Peer
from tests.system.daemon import BrokerProcess

ROUNDS = int(os.environ.get("MQ_CRASH_ROUNDS", 30 if os.environ.get("MQ_TEST_LONG") else 2))
MESSAGES = 300  # per round
TOPIC = "Popped"
SETTINGS = {"mappedFileSizeCommitLog": str(256 * 1024), "diskMaxUsedSpaceRatio": "95"}


class Consumer:
    """Pops and acknowledges, and checks for errors."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.unsure: set[int] = set()  # acknowledgements without a reply
        self.popped = 0

    async def fill(self, port: int) -> None:
        """Send more messages; each is answered."""
        async with Peer(port) as peer:
            await create_topic(peer, TOPIC, 3)
            for number in range(self.sent, self.sent + MESSAGES):
                await send(peer, TOPIC, b"%d" % number, number % 3)
            self.sent += MESSAGES

    @property
    def is_done(self) -> bool:
        return len(self.acknowledged | self.unsure) == self.sent

    async def consume(self, port: int, *, all_of_it: bool) -> None:
        """Pop until everything is acknowledged; some messages are left unless `all_of_it`."""
        async with Peer(port) as peer:
            while not self.is_done:
                await self._pop(peer, all_of_it)

    async def _pop(self, peer: Peer, acknowledge_all: bool) -> None:
        fields = {"consumerGroup": "G", "topic": TOPIC, "queueId": "-1", "maxMsgNums": "7"}
        fields |= {"invisibleTime": "400", "pollTime": "3000", "bornTime": "0", "initMode": "0"}
        reply = await peer.ask(RequestCode.POP_MESSAGE, fields)
        if reply.code != ResponseCode.SUCCESS:
            assert reply.code == ResponseCode.POLLING_TIMEOUT, reply
            return
        starts = {
            mark_and_queue: start
            for mark_and_queue, start in (
                part.rsplit(" ", 1) for part in reply.fields["startOffsetInfo"].split(";")
            )
        }
        for message in decode_records(reply.body):
            number = int(message.body)
            self.popped += 1
            assert number not in self.acknowledged, f"{number} comes again"
            if not acknowledge_all and self._chance.random() < 0.4:
                continue
            receipt = message.properties.get("POP_CK") or (
                f"{starts[f'0 {message.queue_id}']} {reply.fields['popTime']} 400 "
                f"{reply.fields['reviveQid']} 0 broker-a {message.queue_id} {message.queue_offset}"
            )
            again = receipt.split(" ")[4] == "1"
            ack = {"consumerGroup": "G", "topic": f"%RETRY%G_{TOPIC}" if again else TOPIC}
            ack |= {"queueId": str(message.queue_id), "offset": str(message.queue_offset)}
            self.unsure.add(number)
            answer = await peer.ask(RequestCode.ACK_MESSAGE, {**ack, "extraInfo": receipt})
            self.unsure.discard(number)
            if answer.code == ResponseCode.SUCCESS:
                self.acknowledged.add(number)
            else:
                assert answer.code == ResponseCode.NO_MESSAGE, answer  # too late: it is redelivered


@pytest.mark.longer
@pytest.mark.timeout(60 + 10 * ROUNDS)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_after_kill_9_exactly_the_unacknowledged_messages_are_redelivered(
    tmp_path: Path, flush: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    consumer = Consumer(chance)
    settings = {**SETTINGS, "flushDiskType": flush, "brokerName": "broker-a"}
    broker = BrokerProcess(tmp_path / "store", settings)

    def port() -> int:
        return int(broker.address.rpartition(":")[2])

    async def round_with_kill() -> None:
        await consumer.fill(port())
        work = asyncio.create_task(consumer.consume(port(), all_of_it=False))
        # The moment of the kill is varied.
        await asyncio.wait({work}, timeout=chance.uniform(0.02, 0.5))
        await asyncio.to_thread(broker.kill)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await work

    for _ in range(ROUNDS):
        broker.start()
        asyncio.run(round_with_kill())
    broker.start()
    try:
        asyncio.run(asyncio.wait_for(consumer.consume(port(), all_of_it=True), 40))
        assert broker.stop() == 0
    finally:
        broker.kill()
    print(f"{consumer.sent} sent, {consumer.popped} popped, {len(consumer.unsure)} unsure")
    assert len(consumer.acknowledged) > MESSAGES
