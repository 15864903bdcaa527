"""A store full of invalid records, in all topics that the broker itself reads."""

import asyncio
import random
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.store.errors import StoreRefused
from mq.protocol import names
from mq.protocol.flags import SysFlag
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey
from tests.daemons.broker.harness import send as send_to
from tests.daemons.broker.pop.consumers import TOPIC, PopConsumer, fill
from tests.daemons.broker.running import broker_on, now, pull, send
from tests.daemons.broker.transactions.producers import TransactionPeer
from tests.daemons.peer import Peer

RECORDS = 300  # of each topic
SETTINGS = {
    "reviveQueueNum": "1",
    "transactionCheckInterval": "100",
    "transactionTimeOut": "0",
    "timerPrecisionMs": "100",
}
NUMBERS = ["0", "-1", "1", "7", "2147483647", "2147483648", "-2147483649", "9223372036854775807"]
NUMBERS += ["9223372036854775808", "1" * 18, "9" * 5000, "1e9", "", " 1", "x", "٣"]
TEXTS = [*NUMBERS, "Later", "%RETRY%G", "%DLQ%G", names.TIMER_TOPIC, names.SCHEDULE_TOPIC]
TEXTS += [names.TRANSACTION_HALF_TOPIC, "../x", "x" * 300, "\ufffd" * 50, "true", "d", "ck", "ack"]
KEYS = [value for name, value in vars(PropertyKey).items() if name.isupper()]
FIELDS = ["so", "pt", "it", "bm", "n", "q", "ro", "ao", "t", "c", "bn", "d", "aol"]


def json_value(chance: random.Random) -> str:
    values = ["null", "[]", "{}", '"Popped"', '"G"', "[0,1]", "[9223372036854775807]", "1.5"]
    values += ['"%RETRY%G_Popped"', '"broker-a"', "true", "[[]]", '["x"]']
    return chance.choice([*values, *(n for n in NUMBERS if n.lstrip("-").isdecimal() and n != "٣")])


def body_of(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.1:
        return chance.randbytes(chance.randrange(60))
    if kind < 0.3:
        return ",".join(chance.choices(NUMBERS, k=3)).encode()
    fields = chance.sample(FIELDS, chance.randrange(len(FIELDS) + 1))
    members = ",".join(f'"{name}":{json_value(chance)}' for name in fields)
    return b"{" + members.encode() + b"}"


def spoil(broker: Broker, chance: random.Random) -> None:
    topics = [
        names.SCHEDULE_TOPIC,
        names.TIMER_TOPIC,
        names.TRANSACTION_HALF_TOPIC,
        names.TRANSACTION_OPERATION_TOPIC,
        broker.services.pop.points.topic,
    ]
    for number in range(RECORDS * len(topics)):
        properties = {
            chance.choice(KEYS): chance.choice(TEXTS) for _ in range(chance.randrange(12))
        }
        if chance.random() < 0.7:
            properties["TIMER_OUT_MS"] = str(now() + chance.randrange(-500, 500))
        if chance.random() < 0.7:
            properties |= {"TAGS": chance.choice(["ck", "ack", "bAck", "d"])}
        if chance.random() < 0.3:
            properties |= {"REAL_TOPIC": "Later", "REAL_QID": chance.choice(NUMBERS)}
        if chance.random() < 0.1:
            properties["own"] = "x" * (32767 - chance.randrange(800))
        message = StoredMessage(
            topics[number % len(topics)],
            body_of(chance),
            properties,
            sys_flag=chance.choice([0, SysFlag.TRANSACTION_PREPARED, 0x7FFFFF0F]),
            born_timestamp=chance.choice([0, now() - 1000, -(1 << 63), (1 << 63) - 1]),
            reconsume_times=chance.choice([0, -(1 << 31), (1 << 31) - 1]),
            prepared_transaction_offset=chance.choice([0, 5, (1 << 63) - 1]),
        )
        try:
            broker.delivery.writer.put(message)
        except StoreRefused as refusal:
            assert "properties of" in refusal.remark


async def work(broker: Broker, session: Session, peer: Peer, done: int) -> None:
    """A valid message of each kind is delivered."""
    address = broker.address
    marks = [b"delayed-%d" % done, b"timed-%d" % done]
    await send(session, address, marks[0], {"DELAY": "1"}, b="Honest")
    await send(session, address, marks[1], {"TIMER_DELAY_MS": "300"}, b="Honest")
    producer = TransactionPeer(session, address)
    await producer.beat()
    await producer.prepare(b"half-%d" % done, now() - 1000)
    consumer = PopConsumer(peer, broker)
    await send_to(peer, TOPIC, b"popped-%d" % done)
    wanted = {b"popped-%d" % done}
    taken = await consumer.pop(invisibleTime="300")
    assert wanted <= {one.body for one in taken}
    async with asyncio.timeout(60):
        while wanted:
            again = await consumer.pop(pollTime="1000", bornTime=str(now()))
            wanted -= {one.body for one in again}
        while (await producer.checks.get())[1].body != b"half-%d" % done:
            pass
    found = await pull(session, address, "Honest", 2 * done + 2)
    while not set(marks) <= {message.body for message in found}:
        # After a stop within a slot of the timer, messages that it had put are delivered once more.
        found = await pull(session, address, "Honest", len(found) + 1)
    assert broker.tasks.failures == {}


@pytest.mark.parametrize("seed", range(2))
def test_invalid_records_delay_nothing_and_end_no_start(tmp_path: Path, seed: int) -> None:
    async def start(done: int) -> None:
        async with (
            broker_on(tmp_path, **SETTINGS) as broker,
            Session("127.0.0.1:1") as session,
            Peer(broker.port) as peer,
        ):
            if not done:
                await fill(peer, 0)
                spoil(broker, random.Random(seed))
                broker.delivery.timer.start(broker.delivery.writer)
            await work(broker, session, peer, done)
            assert done or broker.stores.aside.counts.total() > RECORDS

    for number in range(2):
        asyncio.run(start(number))
