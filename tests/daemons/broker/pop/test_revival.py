"""What is popped and not acknowledged comes again: how much of it at a time."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import revival
from mq.protocol.codes import ResponseCode
from tests.daemons.broker.pop.consumers import PopConsumer, bodies, fill, run
from tests.daemons.broker.running import now
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time
from tests.waiting import until


def test_large_messages_that_are_due_at_once_come_again_some_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 check points with as many megabytes as a pop gives came in one turn, and one write."""
    monkeypatch.setattr(revival, "_MOST_BYTES", 2)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        pop = broker.services.pop
        await fill(peer, 5)
        with stopped_time():
            for _ in range(5):
                (popped,) = await consumer.pop(maxMsgNums="1")
                assert (await consumer.hide(popped, 1)).code == ResponseCode.SUCCESS
            in_turn: list[int] = []
            put = pop.revival._put

            def counted(*given: object) -> None:
                in_turn[-1] += 1
                put(*given)  # type: ignore[arg-type]

            def turn() -> None:
                in_turn.append(0)
                asyncio.get_running_loop().call_soon(turn)

            turn()
            monkeypatch.setattr(pop.revival, "_put", counted)
        await until(lambda: not len(pop.points))
        assert (sum(in_turn), max(in_turn)) == (5, 2)
        again = await consumer.pop(pollTime="20000", bornTime=str(now()))
        assert bodies(again) == [b"%d" % number for number in range(5)]

    run(tmp_path, script)
