"""Open transactions: half messages that are neither committed nor rolled back."""

import asyncio
from dataclasses import dataclass

from mq.client.admin import Admin
from mq.client.operations.messages.transactions import (
    OpenTransaction,
    OpenTransactions,
    open_transactions,
)
from mq.daemons.console.call import Call
from mq.daemons.console.pages.message_rows import turn
from mq.daemons.console.pages.waiting import masters
from mq.daemons.console.permissions import Permission
from mq.daemons.console.route import N_, Page, Route, Sheet

SECONDS = 20.0
MOST_SHOWN = 500


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """The open transactions of a broker: ``open`` is None if it did not report them, and if
    ``is_all`` is False there may be more. ``not_passed`` are halves that it has yet to pass."""

    broker_name: str
    open: int | None
    oldest: int | None
    not_passed: int | None
    is_all: bool
    problem: str | None


@dataclass(frozen=True, slots=True)
class OpenTransactionsPage:
    """Open transactions, the oldest first, and their number per broker."""

    brokers: tuple[BrokerRow, ...]
    transactions: tuple[OpenTransaction, ...]
    shown: int


async def show(call: Call) -> Page:
    """List the open transactions."""
    admin = Admin(call.cluster.session)
    brokers = await masters(call)
    async with turn(call.cluster):
        found = await asyncio.gather(
            *(open_transactions(admin, name, address) for name, address in brokers.items())
        )
    seen = [
        item
        for one in found
        for item in one.found
        if item.topic is None or call.sees_topic(item.topic)
    ]
    seen.sort(key=lambda item: item.born_time)
    shown = tuple(seen[:MOST_SHOWN])
    return Page(
        "messages/transactions.html",
        call.text("Open transactions"),
        OpenTransactionsPage(tuple(map(_row, found)), shown, len(shown)),
        sheet=Sheet(
            ("broker", "messageId", "topic", "group", "bornTime", "checks", "keys", "halfOffset"),
            [
                (item.broker_name, item.message_id, item.topic, item.group, item.born_time,
                 item.checks, item.keys, item.half_offset)
                for item in seen
            ],
        ),
    )  # fmt: skip


def _row(item: OpenTransactions) -> BrokerRow:
    count = None if item.problem else len(item.found)
    return BrokerRow(
        item.broker_name, count, item.oldest, item.not_passed, item.is_all, item.problem
    )


ROUTES = (
    Route(
        "/transactions",
        show,
        Permission.READ,
        N_("Open transactions: their number, the oldest, and the checks of each."),
        menu=N_("Transactions"),
        seconds=SECONDS,
        data=OpenTransactionsPage,
    ),
)
