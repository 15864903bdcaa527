"""Messages that brokers deliver later: delayed and timed ones."""

import asyncio
from dataclasses import dataclass, replace

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations.messages.waiting import Level, TimedMessages, delayed, timed
from mq.daemons.console.call import Call
from mq.daemons.console.pages.message_rows import turn
from mq.daemons.console.permissions import Permission
from mq.daemons.console.route import N_, Page, Route, Sheet
from mq.protocol.names import MASTER_ID

SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class WaitingMessages:
    """Delayed messages, by broker. ``failures`` has a line for each broker that did not report
    them.
    """

    delayed: tuple[Level, ...]
    timed: tuple[TimedMessages, ...]
    brokers: int
    failures: tuple[str, ...]


async def masters(call: Call) -> dict[str, str]:
    """Return the addresses of the brokers with delayed messages, by name.

    They are from the snapshot, or from the name server before the first snapshot."""
    found = {row.name: row.address for row in call.cluster.snapshot.brokers if row.id == MASTER_ID}
    if found:
        return found
    info = await Admin(call.cluster.session).cluster_info()
    return {
        name: broker.broker_addrs[MASTER_ID]
        for name, broker in sorted(info.broker_addr_table.items())
        if MASTER_ID in broker.broker_addrs
    }


async def show(call: Call) -> Page:
    """List delayed and timed messages."""
    # Topics of messages are read and no bodies are shown, so this needs no permission for bodies.
    admin = Admin(call.cluster.session)
    brokers = await masters(call)

    async def of(name: str, address: str) -> tuple[list[Level], TimedMessages | None, str]:
        try:
            levels = await delayed(admin, name, address)
            return levels, await timed(admin, name, address, call.now), ""
        except MQError as error:
            return [], None, f"{name}: {error}"

    async with turn(call.cluster):
        found = await asyncio.gather(*(of(*item) for item in brokers.items()))
    levels = tuple(_level(call, level) for levels, _, _ in found for level in levels)
    timers = tuple(_timed(call, item) for _, item, _ in found if item is not None)
    failures = tuple(line for _, _, line in found if line)
    return Page(
        "messages/waiting.html",
        call.text("Lag"),
        WaitingMessages(levels, timers, len(brokers), failures),
        sheet=Sheet(
            ("broker", "level", "delayMillis", "waiting", "nextDue", "nextTopic"),
            [
                (item.broker_name, item.level, item.delay_millis, item.waiting, item.next_due,
                 item.next_topic)
                for item in levels
            ],
        ),
    )  # fmt: skip


def _level(call: Call, item: Level) -> Level:
    """Return the level without the name of a topic that the user may not see."""
    seen = item.next_topic is None or call.sees_topic(item.next_topic)
    return item if seen else replace(item, next_topic=None)


def _timed(call: Call, item: TimedMessages) -> TimedMessages:
    seen = item.next_topic is None or call.sees_topic(item.next_topic)
    return item if seen else replace(item, next_topic=None)


ROUTES = (
    Route(
        "/waiting",
        show,
        Permission.READ,
        N_("Delayed and timed messages: their number, and when the next one is due."),
        menu=N_("Delayed"),
        seconds=SECONDS,
        data=WaitingMessages,
    ),
)
