"""Timed messages of the topic Later, sent and pulled."""

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.delayed.timer import Timer
from tests.daemons.broker.running import pull, send

SMALL = {
    **{"mappedFileSizeCommitLog": "65536", "mappedFileSizeTimerLog": "4160"},
    **{"maxHashSlotNum": "500", "maxIndexNum": "2000"},
    "timerMaxDelaySec": str(30 * 24 * 3600),
}


def timer_of(broker: Broker) -> Timer:
    timer = broker.delivery.timer.timer
    assert timer is not None
    return timer


async def send_due(session: Session, broker: Broker, body: bytes, due: int) -> None:
    reply = await send(session, broker.address, body, {"TIMER_DELIVER_MS": str(due)})
    assert reply.code == 0


async def bodies(session: Session, broker: Broker, count: int) -> list[bytes]:
    return [message.body for message in await pull(session, broker.address, "Later", count)]
