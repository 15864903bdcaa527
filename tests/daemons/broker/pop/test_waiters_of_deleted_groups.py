"""Suspended pops whose group is deleted: they end, and take no new messages."""

import asyncio
import time
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.store.log.residency import NotInMemory
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.harness import send
from tests.daemons.broker.pop.consumers import GROUP, TOPIC, PopConsumer, bodies, fill, run
from tests.daemons.broker.pop.deletions import DELETIONS
from tests.daemons.broker.pop.small_files import SMALL
from tests.daemons.broker.pop.waiting import held_before_the_end_of_a_file, put_and_do_not_store
from tests.daemons.peer import Peer
from tests.waiting import until


def test_a_suspended_pop_of_a_deleted_group_gets_no_new_message(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        async with Peer(broker.port) as other:
            await fill(peer, 2)
            await held_before_the_end_of_a_file(broker, peer, consumer, other)
            offsets = broker.stores.offsets
            offsets.on_group_removed.insert(0, lambda group: put_and_do_not_store(broker))
            code = RequestCode.DELETE_SUBSCRIPTIONGROUP
            assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS
            assert (await other.receive()).code == ResponseCode.POLLING_TIMEOUT
            assert offsets.query(GROUP, TOPIC, 0) == -1
            assert len(broker.services.pop.points) == 0

    run(tmp_path, script, **SMALL)


@pytest.mark.parametrize("offsets", ["true", "false"])
def test_the_waits_of_a_group_end_empty_when_it_is_deleted(tmp_path: Path, offsets: str) -> None:
    """New messages were taken by a pop whose group did not exist: they were never redelivered."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 0)
        lines = broker.services.pop._pop._waiters._wait_queues
        async with Peer(broker.port) as second, Peer(broker.port) as third:
            waits = {"pollTime": "3600000", "bornTime": str(time.time_ns() // 10**6)}
            held = asyncio.create_task(PopConsumer(second, broker).ask(**waits))
            other = asyncio.create_task(PopConsumer(third, broker, "other").ask(**waits))
            await until(lambda: len(lines) == 2)
            fields = {"groupName": GROUP, "removeOffset": offsets}
            reply = await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
            assert reply.code == ResponseCode.SUCCESS
            assert (await held).code == ResponseCode.POLLING_TIMEOUT
            await send(peer, TOPIC, b"new")
            assert (await other).code == ResponseCode.SUCCESS
        assert bodies(await consumer.pop()) == [b"new"]

    run(tmp_path, script)


def test_a_pop_whose_group_is_deleted_while_it_waits_for_the_disk_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        pop = broker.services.pop._pop
        take = pop._pops.take
        is_asked, goes_on = asyncio.Event(), asyncio.Event()

        def absent(*_: object) -> None:
            raise NotInMemory([0])

        async def read_late(_: NotInMemory) -> None:
            monkeypatch.setattr(pop._pops, "take", take)
            is_asked.set()
            await goes_on.wait()

        monkeypatch.setattr(pop._pops, "take", absent)
        monkeypatch.setattr(pop._reader.residency, "load", read_late)
        async with Peer(broker.port) as second:
            late = asyncio.create_task(PopConsumer(second, broker).ask())
            await is_asked.wait()
            fields = {"groupName": GROUP}
            await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
            goes_on.set()
            assert (await late).code == ResponseCode.POLLING_TIMEOUT
        assert not len(broker.services.pop.points)
        assert bodies(await consumer.pop()) == [b"0"]

    run(tmp_path, script)
