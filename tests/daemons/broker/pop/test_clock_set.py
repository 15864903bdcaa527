"""Messages popped by a clock that is ahead are redelivered in time when the clock is corrected."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from tests.daemons.broker.pop.consumers import PopConsumer, bodies, fill, run
from tests.daemons.broker.running import broker_on, now
from tests.daemons.peer import Peer
from tests.daemons.set_clock import DAY, set_clock

WAITING = {"pollTime": "20000"}


def test_a_popped_message_is_redelivered_after_its_invisible_time(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        with set_clock() as given:
            given.ahead = DAY
            assert bodies(await consumer.pop(invisibleTime="300")) == [b"0"]
            given.ahead = 0
            again = await consumer.pop(bornTime=str(now()), **WAITING)
            assert bodies(again) == [b"0"]

    run(tmp_path, script)


def test_a_popped_message_is_redelivered_after_a_restart_too(tmp_path: Path) -> None:
    async def main() -> None:
        with set_clock() as given:
            given.ahead = DAY
            async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
                await fill(peer, 1)
                popped = await PopConsumer(peer, broker).pop(invisibleTime="300")
                assert bodies(popped) == [b"0"]
            given.ahead = 0
            async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
                again = await PopConsumer(peer, broker).pop(bornTime=str(now()), **WAITING)
                assert bodies(again) == [b"0"]

    asyncio.run(main())


@pytest.mark.parametrize("is_held", [True, False])
def test_an_ordered_queue_is_not_blocked_for_longer(tmp_path: Path, is_held: bool) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        ordered = {"order": "true", "queueId": "0", "invisibleTime": "300"}
        with set_clock() as given:
            given.ahead = DAY
            assert bodies(await consumer.pop(**ordered)) == [b"0"]
            given.ahead = 0
            more = {"bornTime": str(now()), **WAITING} if is_held else {}
            assert bodies(await consumer.pop(**ordered, **more)) == [b"0"]

    run(tmp_path, script)
