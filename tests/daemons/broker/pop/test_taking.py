"""Where a group is while it pops: each message is given out once, and comes again if need be."""

import asyncio
from pathlib import Path

from mq.protocol.codes import ResponseCode
from tests.daemons.broker.pop.consumers import GROUP, TOPIC, PopConsumer, bodies, fill
from tests.daemons.broker.running import broker_on, now
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time


def test_what_is_popped_twice_in_a_millisecond_from_one_place_all_comes_again(
    tmp_path: Path,
) -> None:
    """The group was put back in between: of the second pop nothing came again."""

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 3)
            with stopped_time():
                await consumer.pop(invisibleTime="1", maxMsgNums="1")
                broker.stores.offsets.commit(GROUP, TOPIC, 0, 0)
                second = await consumer.pop(invisibleTime="1")
                assert bodies(second) == [b"0", b"1", b"2"]
                assert len(broker.services.pop.points) == 2
            again: list[bytes] = []
            while len(again) < 4:
                again += bodies(await consumer.pop(pollTime="20000", bornTime=str(now())))
            assert sorted(again) == [b"0", b"0", b"1", b"2"]

    asyncio.run(script())


def test_of_two_queues_the_one_that_needs_a_later_time_is_left_for_the_next_pop(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 2, queues=2)
            with stopped_time():
                await consumer.pop(queueId="1")
                broker.stores.offsets.commit(GROUP, TOPIC, 1, 0)
                got = [*await consumer.pop(), *await consumer.pop()]
                assert bodies(got) == [b"0", b"1"]
            for one in got:
                assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
            (left,) = broker.services.pop.points._table.values()
            assert (left.queue_id, left.missing) == (1, [0])

    asyncio.run(script())
