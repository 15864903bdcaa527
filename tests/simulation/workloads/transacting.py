"""Producers of transactions: commits, roll-backs, ends that are not known yet, and checks."""

import asyncio

from mq.client import (
    ProducerOptions,
    TransactionCheck,
    TransactionProducer,
    TransactionState,
)
from mq.client.errors import MQError
from mq.protocol.message import Message
from tests.simulation.model import Sent
from tests.simulation.model.content import make, number_of
from tests.simulation.workloads.context import Context, Workload

_ENDS = {"commit": TransactionState.COMMIT, "rollback": TransactionState.ROLLBACK}


def transact(topic: str, pause: float) -> Workload:
    """Transactions, one after the other. Decisions are kept as in a database."""

    async def run(context: Context) -> None:
        rows: dict[int, asyncio.Event] = {}  # of its database that are locked

        async def check(question: TransactionCheck) -> TransactionState:
            context.model.requests += 1
            sent = context.model.sent.get(number_of(question.message))
            if sent is None:
                context.model.wrong(f"asked for {question.message!r}, which nobody sent")
                return TransactionState.ROLLBACK
            if sent.number in rows and context.random.random() < 0.7:
                await rows[sent.number].wait()  # and ends it at the same moment as its producer
            if not sent.decided:  # its producer never learnt that it is stored
                sent.decided = "rollback"
            if context.random.random() < 0.2:
                return TransactionState.UNKNOWN
            return _ENDS[sent.decided]

        options = ProducerOptions(retries=1)
        async with TransactionProducer(
            context.name_servers, "payers", check, options, client=context.client("payer")
        ) as producer:
            while context.now < context.until:
                number = next(context.numbers)
                sent = context.model.begin(Sent(number, topic, context.now, 2, "transaction"))
                try:
                    await _one(context, producer, sent, rows)
                except (MQError, _Failed) as error:
                    context.tell(f"{number}: {error!r}")
                await asyncio.sleep(context.random.uniform(0.2, 1.8) * pause)
            await asyncio.Event().wait()  # to be asked

    return run


class _Failed(Exception):
    """The producer's own work has failed after it was done."""


async def _one(
    context: Context, producer: TransactionProducer, sent: Sent, rows: dict[int, asyncio.Event]
) -> None:
    random = context.random

    async def execute(_: Message) -> TransactionState:
        if random.random() < 0.2:
            row = rows[sent.number] = asyncio.Event()
            try:
                await asyncio.sleep(random.uniform(0.0, 5.0))
            finally:
                del rows[sent.number]
                row.set()
        if not sent.decided:  # a check may have been earlier
            sent.decided = "commit" if random.random() < 0.7 else "rollback"
        sent.acknowledged_at = context.now
        chance = random.random()
        if chance < 0.1:
            raise _Failed
        return TransactionState.UNKNOWN if chance < 0.25 else _ENDS[sent.decided]

    result = await producer.send_in_transaction(make(sent.number, sent.topic), execute)
    if result.sent.status.name == "SEND_OK":
        sent.waits_at = result.sent.queue.broker_name
