"""The guard against groups with a large lag, and the water marks."""

import asyncio
import re
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.daemons.broker.backlog import WaterMarks
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.daemons.broker.harness import send
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer


async def pull(peer: Peer, group: str, offset: int) -> Command:
    fields = {"consumerGroup": group, "topic": "Far", "queueId": "0", "maxMsgNums": "1"}
    fields |= {"queueOffset": str(offset), "sysFlag": "4", "commitOffset": "0"}
    fields |= {"subVersion": "0", "subscription": "*", "suspendTimeoutMillis": "0"}
    return await peer.ask(RequestCode.PULL_MESSAGE, fields)


async def fill(peer: Peer) -> None:
    for _ in range(3):
        await send(peer, "Far", bytes(1000))
    for group, offset in (("Slow", 0), ("Fast", 2)):
        assert (await pull(peer, group, offset)).code == ResponseCode.SUCCESS


def test_a_group_too_far_behind_is_disabled_and_stays_so(tmp_path: Path) -> None:
    settings = {
        "disableConsumeIfConsumerReadSlowly": "true",
        "consumerFallbehindThreshold": "2000",
    }

    async def script(broker: Broker) -> None:
        async with broker, Peer(broker.port) as peer:
            await fill(peer)
            assert broker.services.slow_consumers.check() == ["Slow"]
            reply = await pull(peer, "Slow", 1)
            assert reply.code == ResponseCode.NO_PERMISSION
            assert reply.remark == "subscription group no permission, Slow"
            assert (await pull(peer, "Fast", 2)).code == ResponseCode.SUCCESS
            assert broker.services.slow_consumers.check() == []

    async def after_restart(broker: Broker) -> None:
        async with broker, Peer(broker.port) as peer:
            assert (await pull(peer, "Slow", 1)).code == ResponseCode.NO_PERMISSION

    asyncio.run(script(broker_on(tmp_path, **settings)))
    asyncio.run(after_restart(broker_on(tmp_path)))


def test_without_the_guard_every_group_continues(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with broker, Peer(broker.port) as peer:
            await fill(peer)
            assert broker.services.slow_consumers.check() == []
            assert (await pull(peer, "Slow", 1)).code == ResponseCode.SUCCESS

    off = {"consumerFallbehindThreshold": "10"}
    asyncio.run(script(broker_on(tmp_path / "off", **off)))
    unrecorded = {**off, "disableConsumeIfConsumerReadSlowly": "true", "diskFallRecorded": "false"}
    asyncio.run(script(broker_on(tmp_path / "unrecorded", **unrecorded)))


def test_the_water_marks_show_the_waiting_requests(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with broker, Peer(broker.port) as peer:
            await fill(peer)
            line = WaterMarks(broker.stores.messages).line()
            assert re.fullmatch(
                r"water marks: \d+ bytes not flushed, 0 bytes not dispatched, \d+ readers wait, "
                r"the event loop was up to \d+ ms late",
                line,
            )

    asyncio.run(script(broker_on(tmp_path)))
