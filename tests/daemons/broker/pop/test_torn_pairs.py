"""Two records that belong together at the end of a log file: the disk refuses the first of them."""

import asyncio
from pathlib import Path

import pytest

from mq.protocol.codes import ResponseCode
from tests.daemons.broker.harness import send
from tests.daemons.broker.pop.consumers import TOPIC, PopConsumer, bodies, fill
from tests.daemons.broker.pop.refused_writes import refuse_one
from tests.daemons.broker.pop.small_files import SMALL, leave_room
from tests.daemons.broker.running import broker_on, now
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time


def test_a_message_whose_new_check_point_is_refused_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path, **SMALL) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            log = broker.stores.messages.log
            await fill(peer, 1)
            before = log.position
            with stopped_time():
                (popped,) = await consumer.pop(invisibleTime="1000")
                check_point = log.position - before
                await leave_room(peer, broker, check_point + 40)  # and no acknowledgement
                with monkeypatch.context() as failing:
                    failed = refuse_one(failing, b"TAGS\x01ck")
                    reply = await consumer.hide(popped, 500)
                    assert failed.is_set()
                assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            again = await consumer.pop(pollTime="20000", bornTime=str(now()))
            assert bodies(again) == [b"0"]

    asyncio.run(script())


def test_a_redelivery_that_is_refused_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path, **SMALL) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 0)
            await send(peer, TOPIC, b"m" * 1000)
            with monkeypatch.context() as failing:
                with stopped_time():
                    await consumer.pop(invisibleTime="300")
                    await leave_room(peer, broker, 1300)  # the message, and no acknowledgement
                    failed = refuse_one(failing, b"m" * 1000)
                await failed.wait()
            again = await consumer.pop(pollTime="20000", bornTime=str(now()))
            assert bodies(again) == [b"m" * 1000]

    asyncio.run(script())
