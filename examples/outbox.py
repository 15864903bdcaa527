"""An outbox: an order and its message are both written, or neither, even if processes are killed.

    python outbox.py < orders.txt       lines of an order and its price: order-1 40

The message is sent first, and held back by the broker; then the order is written to a database,
ORDERS_DB; then the message is committed. If the program dies in between, the broker does not know
the outcome of the message. It asks any producer of the group, and `check` finds the answer in the
database: the next run settles the messages of this one. This needs neither a table of messages to
send, nor a job that reads one.

The next run must not be long in coming. A broker asks transactionCheckMax times, once each
transactionCheckInterval, even if no producer can answer: 15 minutes by default. Then it moves the
message to TRANS_CHECK_MAX_TIME_TOPIC and logs it. If a shop may be down for longer, raise these
settings.
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path

from mq.client import (
    Message,
    MQError,
    SendStatus,
    TransactionCheck,
    TransactionProducer,
    TransactionState,
)

NAME_SERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
DATABASE = Path(os.environ.get("ORDERS_DB", "orders.db"))
LONGEST_WRITE = 60.0  # seconds; an order that is absent after this time was never written


class Orders:
    """The orders, in SQLite."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._database.execute("PRAGMA busy_timeout = 5000")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, euro INT, transaction_id TEXT)"
        )

    def has(self, order: str, transaction_id: str) -> bool:
        """Whether this transaction has written the order; another one may have done so before."""
        found = self._database.execute(
            "SELECT 1 FROM orders WHERE id = ? AND transaction_id = ?", [order, transaction_id]
        )
        return found.fetchone() is not None

    def add(self, order: str, euro: int, transaction_id: str | None) -> None:
        """Raises sqlite3.IntegrityError if the order exists."""
        with self._database:
            self._database.execute(
                "INSERT INTO orders VALUES (?, ?, ?)", [order, euro, transaction_id]
            )

    def close(self) -> None:
        self._database.close()


class Outbox:
    """Places orders, and answers whether orders of interrupted runs were placed."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders

    async def place(self, producer: TransactionProducer, order: str, euro: int) -> bool:
        """Place an order; returns False if an order of that name exists.

        Raises MQError if the message could not be stored: then the order is not written, either.
        """

        async def write(message: Message) -> TransactionState:
            try:
                self._orders.add(order, euro, message.transaction_id)
            except sqlite3.IntegrityError:
                return TransactionState.ROLLBACK
            return TransactionState.COMMIT

        body = json.dumps({"id": order, "euro": euro}).encode()
        result = await producer.send_in_transaction(Message("Orders", body, keys=order), write)
        if result.sent.status is not SendStatus.SEND_OK:
            raise MQError(f"the broker has not stored the message safely: {result.sent.status}")
        return result.state is TransactionState.COMMIT

    async def check(self, question: TransactionCheck) -> TransactionState:
        """Answer the broker's question about a message whose outcome it does not know."""
        (order,) = question.message.keys
        if self._orders.has(order, question.transaction_id):
            return TransactionState.COMMIT
        # Another process may be about to write it: only after a while is it certain that none is.
        if time.time() - question.message.born_timestamp / 1000 < LONGEST_WRITE:
            return TransactionState.UNKNOWN
        return TransactionState.ROLLBACK


async def main() -> int:
    orders = Orders(DATABASE)
    outbox = Outbox(orders)
    failed = 0
    try:
        async with TransactionProducer(NAME_SERVERS, "shop", outbox.check) as producer:
            # In a thread, so that the broker's questions are answered while no line arrives.
            while line := await asyncio.to_thread(sys.stdin.readline):
                try:
                    order, euro = line.split()
                    placed = await outbox.place(producer, order, int(euro))
                except (ValueError, MQError) as error:
                    print(f"{line.strip()}: {error}", file=sys.stderr)
                    failed += 1
                    continue
                print(order, "placed" if placed else "was there before", flush=True)
    finally:
        orders.close()
    return 1 if failed else 0


if __name__ == "__main__":
    # Ctrl-C kills it, as SIGTERM does: asyncio would wait until the thread has read another line.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(asyncio.run(main()))
