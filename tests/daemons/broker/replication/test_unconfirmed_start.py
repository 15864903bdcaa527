"""A killed master shows at its next start what its checkpoint has as confirmed, which may be ten
seconds old. Work that it has done with later records is neither repeated nor forgotten.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.protocol.codes import ResponseCode
from mq.protocol.names import SCHEDULE_TOPIC
from tests.daemons.broker.pop.consumers import TOPIC, PopConsumer, fill
from tests.daemons.broker.replication.pair import end_of, send
from tests.daemons.broker.replication.sets import ScriptedControllers, ScriptedMember, set_master
from tests.daemons.broker.store.stores import as_of_a_kill
from tests.daemons.broker.transactions.producers import COMMIT, HALF, OPERATION, TransactionPeer
from tests.daemons.peer import Peer
from tests.waiting import until


def both() -> ScriptedControllers:
    """Controllers that have two members in sync, and agree to no change."""
    controllers = ScriptedControllers((1, 2))
    controllers.gate.clear()
    return controllers


def copy_killed(living: Path, killed: Path) -> None:
    """Copy what a kill leaves, except for a state file that is just being replaced."""
    shutil.copytree(living, killed, ignore=shutil.ignore_patterns("*.tmp"))
    as_of_a_kill(killed)


@asynccontextmanager
async def producer(broker: Broker) -> AsyncIterator[TransactionPeer]:
    async with Session(broker.address) as session:
        yield TransactionPeer(session, broker.address)


@asynccontextmanager
async def follower(broker: Broker) -> AsyncIterator[None]:
    """A member that acknowledges everything."""

    async def follow(slave: ScriptedMember) -> None:
        while True:
            offset, *_, data = await slave.frame()
            slave.say(offset + len(data))

    async with ScriptedMember(broker.ha_master.port) as slave:
        await slave.handshake()
        slave.say(end_of(broker))
        following = asyncio.create_task(follow(slave))
        try:
            yield
        finally:
            following.cancel()


def in_sight(broker: Broker, topic: str) -> int:
    return broker.stores.messages.max_offset(topic, 0)


def test_a_half_that_is_unconfirmed_at_the_start_can_be_committed(tmp_path: Path) -> None:
    async def main() -> None:
        async with set_master(tmp_path, both()) as first, follower(first):
            async with producer(first) as peer:
                half = await peer.prepare(b"paid")
            copy_killed(tmp_path / "1", tmp_path / "killed" / "1")
        async with set_master(tmp_path / "killed", both()) as first:
            assert in_sight(first, HALF) == 0
            await first.delivery.checks.round()
            async with follower(first), producer(first) as peer:
                await until(lambda: in_sight(first, HALF) == 1)
                assert (await peer.end(half, COMMIT)).code == ResponseCode.SUCCESS
                await until(lambda: first.stores.messages.max_offset("Orders", 2) == 1)
                assert await peer.consumed() == [b"paid"]

    asyncio.run(main())


def test_a_commit_that_is_unconfirmed_at_the_start_is_not_repeated(tmp_path: Path) -> None:
    async def main() -> None:
        async with set_master(tmp_path, both()) as first, follower(first):
            async with producer(first) as peer:
                half = await peer.prepare(b"paid")
                assert (await peer.prepare(b"open")).offset == 1
                await first.stores.messages.checkpointer.checkpoint()
                assert (await peer.end(half, COMMIT)).code == ResponseCode.SUCCESS
            copy_killed(tmp_path / "1", tmp_path / "killed" / "1")
        async with set_master(tmp_path / "killed", both()) as first:
            assert (in_sight(first, HALF), in_sight(first, OPERATION)) == (2, 0)
            async with producer(first) as peer:
                assert (await peer.end(half, COMMIT)).code == ResponseCode.SYSTEM_ERROR
                async with follower(first):
                    await until(lambda: in_sight(first, OPERATION) == 1)
                    assert await peer.consumed() == [b"paid"]

    asyncio.run(main())


def test_acknowledged_popped_messages_are_not_redelivered(tmp_path: Path) -> None:
    async def main() -> None:
        async with set_master(tmp_path, both()) as first, follower(first):
            async with Peer(first.port) as peer:
                await fill(peer, 3)
                await first.stores.messages.checkpointer.checkpoint()
                await send(peer, b"3", TOPIC)
                popped = await PopConsumer(peer, first).pop()
                while len(popped) < 4:
                    popped += await PopConsumer(peer, first).pop()
                for one in popped:
                    reply = await PopConsumer(peer, first).ack(one)
                    assert reply.code == ResponseCode.SUCCESS
            shutil.copytree(
                tmp_path / "1", tmp_path / "killed" / "1", ignore=shutil.ignore_patterns("*.tmp")
            )
            as_of_a_kill(tmp_path / "killed" / "1")
        async with set_master(tmp_path / "killed", both()) as first, Peer(first.port) as peer:
            consumer = PopConsumer(peer, first)
            assert in_sight(first, TOPIC) == 3
            assert await consumer.pop() == []
            async with follower(first):
                await until(lambda: in_sight(first, TOPIC) == 4)
                assert await consumer.pop(pollTime="300") == []

    asyncio.run(main())


def test_delivered_delayed_messages_are_not_delivered_again(tmp_path: Path) -> None:
    async def main() -> None:
        level = {"messageDelayLevel": "0s", "flushDelayOffsetInterval": "3600000"}
        async with set_master(tmp_path, both(), **level) as first, follower(first):
            async with Peer(first.port) as peer:
                reply = await send(peer, b"later", properties="DELAY\x011")
                assert reply.code == ResponseCode.SUCCESS
            await until(lambda: in_sight(first, "Orders") == 1)
            await first.delivery.delayed.save()
            copy_killed(tmp_path / "1", tmp_path / "killed" / "1")
        async with set_master(tmp_path / "killed", both(), **level) as first:
            assert in_sight(first, SCHEDULE_TOPIC) == 0
            assert first.delivery.delayed.offsets == {1: 1}

    asyncio.run(main())
