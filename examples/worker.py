"""A worker: bills each order once, retries later what cannot be done now, and stops on request.

    python worker.py                    NAMESRV_ADDR has the name servers

Run as many as needed: they share the queues of the topic Orders. The bills go to the topic Bills. A
message may be redelivered (after a crash, or after a rebalance), so billed orders are stored in a
database, BILLS_DB, which is checked first. If two workers get one order at the same moment, or one
is killed in the middle of its work, there may be two bills with one key.
"""

import asyncio
import json
import logging
import os
import signal
import sqlite3
from pathlib import Path
from weakref import WeakValueDictionary

from mq.client import ConsumeFromWhere, Consumer, Message, Producer, RetryLater, StoredMessage

log = logging.getLogger("worker")

NAME_SERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
DATABASE = Path(os.environ.get("BILLS_DB", "bills.db"))
DEAD_LETTER = -1


class Ledger:
    """The billed orders, in SQLite."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._database.execute("PRAGMA busy_timeout = 5000")
        self._database.execute("CREATE TABLE IF NOT EXISTS bills (id TEXT PRIMARY KEY, euro INT)")

    def has(self, order: str) -> bool:
        found = self._database.execute("SELECT 1 FROM bills WHERE id = ?", [order])
        return found.fetchone() is not None

    def add(self, order: str, euro: int) -> None:
        with self._database:
            self._database.execute("INSERT OR IGNORE INTO bills VALUES (?, ?)", [order, euro])

    def close(self) -> None:
        self._database.close()


class Worker:
    """Handles orders."""

    def __init__(self, producer: Producer, ledger: Ledger) -> None:
        self._producer = producer
        self._ledger = ledger
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def bill(self, message: StoredMessage) -> None:
        """The listener: a message is done when it returns, and is redelivered when it raises."""
        try:
            order = json.loads(message.body)
            name, euro = str(order["id"]), int(order["euro"])
        except (ValueError, TypeError, KeyError) as error:
            # It will never be readable. Sixteen retries would only delay others.
            log.error("%s is not an order: %s", message.message_id, error)
            raise RetryLater(DEAD_LETTER) from error
        # Messages are handled concurrently: another one of the same order waits until this one is
        # billed.
        async with self._locks.setdefault(name, asyncio.Lock()):
            await self._bill_once(name, euro)

    async def _bill_once(self, name: str, euro: int) -> None:
        if self._ledger.has(name):
            log.info("%s: billed before", name)
            return
        # SQLite is quick enough for the loop. For slower work use a plain function as listener:
        # each call gets a thread.
        #
        # First send the bill, then record it: a crash in between sends it twice, with one key. The
        # other way round it might never be sent.
        body = json.dumps({"order": name, "euro": euro}).encode()
        await self._producer.send(Message("Bills", body, keys=name))
        self._ledger.add(name, euro)
        log.info("%s: billed %d euro", name, euro)


async def main() -> None:
    ledger = Ledger(DATABASE)
    try:
        async with (
            Producer(NAME_SERVERS, "billing-bills") as producer,
            Consumer(
                NAME_SERVERS,
                "billing",
                {"Orders": "*"},
                listener=Worker(producer, ledger).bill,
                consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                max_reconsume_times=5,
            ) as consumer,
        ):
            ended = asyncio.ensure_future(consumer.wait_closed())
            for how in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(how, ended.cancel)
            log.info("ready")
            await asyncio.wait([ended])
            if not ended.cancelled():
                ended.result()  # raises the error that has ended the consumer
    finally:
        ledger.close()
    log.info("stopped: the queues are other members' now")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    asyncio.run(main())
