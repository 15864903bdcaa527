"""Queues that are cleaned when all their messages have expired: they restart at offset 0, and so do
their groups.
"""

import asyncio
import os
from pathlib import Path

import pytest

from mq.daemons.broker.admin import retention_handlers
from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import revival
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.broker.killed import copy_as_killed
from tests.daemons.broker.pop.consumers import TOPIC, PopConsumer, Popped, bodies, fill, run
from tests.daemons.broker.pop.small_files import SMALL
from tests.daemons.peer import Peer

LONG_AGO = 1_000_000_000


async def clean_what_is_expired(broker: Broker, peer: Peer) -> None:
    """Let all messages expire, and their queues be cleaned."""
    await create_topic(peer, "Other", 1)
    for _ in range(4):  # more than a file
        await send(peer, "Other", bytes(20_000), 0)
    store = broker.stores.messages
    await store.flusher.drain()
    await store.checkpointer.checkpoint()
    for file in store.log.files[:-1]:
        os.utime(file.path, (LONG_AGO, LONG_AGO))
    for code in (RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE):
        assert (await peer.ask(code)).code == ResponseCode.SUCCESS
    assert store.end_offset(TOPIC, 0) == 0


@pytest.mark.parametrize("in_order", ["true", "false"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_new_messages_are_delivered_to_a_group_with_old_ones_in_flight(
    tmp_path: Path, in_order: str, is_killed: bool
) -> None:
    """The group skipped it, and old receipts acknowledged it."""
    killed, copy = tmp_path / "killed", tmp_path / "copy"
    old: list[Popped] = []

    async def before(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 3)
        old.extend(await consumer.pop(order=in_order))
        await broker.services.pop.save()
        await broker.stores.offsets.save()
        await clean_what_is_expired(broker, peer)
        for number in range(3):
            await send(peer, TOPIC, b"new %d" % number)
        copy_as_killed(killed, copy)
        if not is_killed:
            await after(broker, peer, consumer)

    async def after(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        assert len(broker.services.pop.points) == 0
        assert bodies(await consumer.pop(order=in_order)) == [b"new 0", b"new 1", b"new 2"]
        if in_order == "true":
            codes = [(await consumer.ack(one)).code for one in old]
            assert codes == [ResponseCode.NO_MESSAGE] * 3

    run(killed, before, **SMALL)
    if is_killed:
        run(copy, after, **SMALL)


def test_new_messages_are_delivered_to_a_group_that_had_acknowledged_all_old_ones(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 3)
        for one in await consumer.pop():
            assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
        await clean_what_is_expired(broker, peer)
        for number in range(3):
            await send(peer, TOPIC, b"new %d" % number)
        assert bodies(await consumer.pop()) == [b"new 0", b"new 1", b"new 2"]

    run(tmp_path, script, **SMALL)


def test_a_check_point_rewritten_while_queues_are_cleaned_restores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted if its queue was not among the first: the next message there was redelivered, and
    a start advanced the group past it.
    """
    monkeypatch.setattr(retention_handlers, "_QUEUES_A_TURN", 1)
    monkeypatch.setattr(revival, "_OLDEST", 0)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        pop, loop = broker.services.pop, asyncio.get_running_loop()

        def write_again(_: object) -> None:
            loop.call_soon(pop.revival._rewrite_old)

        broker.stores.offsets.on_queues_cleared.append(write_again)
        await fill(peer, 4, queues=2)
        assert len(await consumer.pop()) == 4
        await clean_what_is_expired(broker, peer)
        await send(peer, TOPIC, b"new", 1)
        assert len(pop.points) == 0
        assert bodies(await consumer.pop()) == [b"new"]

    run(tmp_path, script, **SMALL)
