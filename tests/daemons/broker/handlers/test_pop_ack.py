"""Receipts that are not as they were given out: they make nothing, and move nothing elsewhere."""

import asyncio
from pathlib import Path

import pytest

from mq.protocol.codes import ResponseCode
from tests.daemons.broker.pop.consumers import PopConsumer, fill
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer


def with_revive_queue(receipt: str, number: int) -> str:
    parts = receipt.split(" ")
    parts[3] = str(number)
    return " ".join(parts)


@pytest.mark.parametrize("number", [8, 1000, 2**31 - 1, -1])
def test_a_revive_queue_that_is_made_up_is_refused_before_anything_is_written(
    tmp_path: Path, number: int
) -> None:
    """Each of them was a queue on the disk, and a check point in it that brought the message."""

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 1)
            (popped,) = await consumer.pop()
            points, log = broker.services.pop.points, broker.stores.messages.log
            before, real = log.position, popped.receipt
            popped.receipt = with_revive_queue(real, number)
            for reply in (await consumer.hide(popped, 3000), await consumer.ack(popped)):
                assert reply.code == ResponseCode.SYSTEM_ERROR
                assert reply.remark == f"there is no revive queue {number}"
            assert log.position == before
            assert number not in broker.stores.messages.queues_of(points.topic)
            assert not points._fresh
            popped.receipt = real
            assert (await consumer.ack(popped)).code == ResponseCode.SUCCESS

    asyncio.run(script())


def test_what_is_written_of_a_check_point_is_written_beside_it_whatever_its_receipt_says(
    tmp_path: Path,
) -> None:
    """Read before its check point, as an early one, it may be too much to be kept."""

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 2)
            popped = await consumer.pop()
            points, store = broker.services.pop.points, broker.stores.messages
            (point,) = points._table.values()
            used = point.revive_queue_id
            for one in popped:
                one.receipt = with_revive_queue(one.receipt, (used + 1) % 8)
            hidden = await consumer.hide(popped[0], 60000)
            assert hidden.fields["reviveQid"] == str(used)
            assert (await consumer.ack(popped[1])).code == ResponseCode.SUCCESS
            # The check point, the one that hides, the two acknowledgements.
            assert store.max_offset(points.topic, used) == 4
            ends = [store.max_offset(points.topic, number) for number in range(8)]
            assert [number for number, end in enumerate(ends) if end] == [used]

    asyncio.run(script())
