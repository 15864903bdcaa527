"""A whole broker on the machine, and requests to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delayed import timer, timer_wheel
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.simulation.crash_points import model
from tests.simulation.crash_points.machine import ROOT
from tests.simulation.crash_points.store import Ledger

# A wheel of an hour instead of weeks, because it is copied at each point.
_WHEEL = 4096
setattr(timer_wheel, "SLOTS", _WHEEL)  # noqa: B010
setattr(timer, "SLOTS", _WHEEL)  # noqa: B010

ADDRESS = "10.0.0.1:10911"
TOPIC = "Orders"
_SETTINGS = {
    "brokerName": "broker",
    "listenPort": "10911",
    "bindAddress": "10.0.0.1",
    "brokerIP1": "10.0.0.1",
    "storePathRootDir": ROOT,
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "400",
    "mappedFileSizeTimerLog": "200",
    "maxHashSlotNum": "10",
    "maxIndexNum": "20",
}


@asynccontextmanager
async def serving(ledger: Ledger, **changes: str) -> AsyncIterator[tuple[Broker, Session]]:
    """A broker from its start to an orderly stop; ``changes`` are settings."""
    async with Broker(BrokerSettings.load(None, {**_SETTINGS, **changes})) as broker:
        ledger.store = broker.stores.messages
        async with Session("10.0.0.1:1", timeout=10) as session:
            yield broker, session
    ledger.store = None


async def ask(session: Session, code: RequestCode, fields: dict[str, str]) -> Command:
    """A request that must succeed."""
    reply = await session.invoke(ADDRESS, Command(code, fields))
    assert reply.code == ResponseCode.SUCCESS, reply
    return reply


async def send(
    ledger: Ledger, session: Session, body: str, flags: int = 0, /, **properties: str
) -> Command:
    """Send a message, and record that it must be delivered, unless it belongs to a transaction."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    fields = {"a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "1", "f": str(flags), "g": "7"}
    fields |= {"h": "0", "i": text, "j": "0", "k": "false", "m": "false"}
    ledger.note(model.Begun(body))
    command = Command(RequestCode.SEND_MESSAGE_V2, fields, body.encode())
    reply = await session.invoke(ADDRESS, command)
    assert reply.code == ResponseCode.SUCCESS, reply
    if not flags:
        ledger.note(model.Due(body))
    return reply
