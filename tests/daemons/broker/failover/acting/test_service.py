"""A slave is acting master while its master is down: waiting messages are delivered, once."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.protocol.bodies import KVTable
from mq.protocol.codes import RequestCode
from tests import answered
from tests.daemons.broker.failover.acting.sets import (
    LONG,
    SET,
    acts,
    acts_no_more,
    bodies,
    cluster,
    have,
    is_copied,
    sees,
    send,
    stored,
)
from tests.daemons.peer import Peer

SHORT = {"messageDelayLevel": "1s 2s 3s"}


def test_a_delayed_message_is_delivered_once_through_another_broker(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            await send(other, b"topic")  # it has the topic
            async with brokers.slave(1, **SHORT) as slave:
                async with brokers.master(**LONG) as master:
                    await brokers.shows(slave, 1)
                    await send(master, b"delayed", DELAY="2", KEYS="k", own="x")
                    await is_copied(slave, master)
                await acts(slave)
                assert await have(other, 2) == [b"delayed", b"topic"]
                message = next(one for one in stored(other) if one.body == b"delayed")
                assert (message.properties["KEYS"], message.properties["own"]) == ("k", "x")
                assert "DELAY" not in message.properties
                async with brokers.master(**SHORT) as master:
                    await acts_no_more(slave)
                    await brokers.shows(master)
                    assert master.delivery.delayed.offsets == {2: 1}
                    await send(master, b"second", DELAY="1")
                    assert await have(master, 1) == [b"second"]
                    assert bodies(other) == [b"delayed", b"topic"]

    asyncio.run(script())


def test_an_acting_slave_continues_after_a_restart(tmp_path: Path) -> None:
    async def script() -> None:
        later = {"messageDelayLevel": "1s 2s 3h"}  # its second message waits for its next start
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            await send(other, b"topic")
            async with brokers.slave(1, **later) as slave:
                async with brokers.master(**LONG) as master:
                    await send(master, b"one", DELAY="1")
                    await send(master, b"two", DELAY="3")
                    await is_copied(slave, master)
                await acts(slave)
                assert delivers()
                assert await have(other, 2) == [b"one", b"topic"]
            assert not delivers()
            async with brokers.slave(1, **SHORT):
                assert await have(other, 3) == [b"one", b"topic", b"two"]
                async with brokers.master(**SHORT) as master:
                    assert master.delivery.delayed.offsets == {1: 1, 3: 1}
            assert bodies(other) == [b"one", b"topic", b"two"]

    asyncio.run(script())


def test_a_slave_that_does_not_know_its_masters_progress_delivers_nothing(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            await send(other, b"topic")
            async with brokers.master(**SHORT) as master, brokers.slave(1, **SHORT) as slave:
                await send(master, b"delayed", DELAY="1")
                await is_copied(slave, master)
            forget_copies(slave)  # as if the master had died before it was asked
            async with brokers.slave(1, **SHORT) as slave:
                await acts(slave)
                assert not delivers()
                async with brokers.master(**SHORT) as master:
                    assert await have(master, 1) == [b"delayed"]
                    assert bodies(other) == [b"topic"]

    asyncio.run(script())


def delivers() -> bool:
    """Whether any slave works on delay levels."""
    return any(task.get_name() == "acting: delay level 1" for task in asyncio.all_tasks())


def forget_copies(slave: Broker) -> None:
    """For a slave that has stopped."""
    for name in ("delayOffset.json", "delayOffset.json.bak"):
        (slave.stores.messages.root / "config" / name).unlink(missing_ok=True)


@answered.by_broker(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
def test_a_notice_makes_a_slave_poll_at_once(tmp_path: Path) -> None:
    """The name server sends NOTIFY_MIN_BROKER_ID_CHANGE; without it the slave would poll much
    later.
    """

    async def script() -> None:
        async with cluster(tmp_path) as brokers:
            async with brokers.slave(1, syncBrokerMemberGroupPeriod="600000") as slave:
                await acts(slave)  # there has never been another
                async with brokers.master() as master:
                    await sees(slave, master)
                    assert not slave.acting.is_acting
                await acts(slave)

    asyncio.run(script())


def test_without_remote_escape_deliveries_wait_for_the_master(tmp_path: Path) -> None:
    async def script() -> None:
        stays = {**SHORT, "enableRemoteEscape": "false"}
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            await send(other, b"topic")
            async with brokers.slave(1, **stays) as slave:
                async with brokers.master(**stays) as master:
                    await send(master, b"delayed", DELAY="1")
                    await is_copied(slave, master)
                await acts(slave)
                async with brokers.master(**stays) as master:
                    assert await have(master, 1) == [b"delayed"]
                assert bodies(other) == [b"topic"]

    asyncio.run(script())


def test_metrics_show_that_a_slave_is_acting(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave() as slave:
            await acts(slave)
            async with Peer(slave.port) as peer:
                reply = await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            told = KVTable.decode(reply.body).table
            assert (told["actingMaster"], told["escapedMessages"]) == ("true", "0")
            figures = {one.name: one.values for one in slave.metrics().all()}
            assert [value for _, value in figures["mq_acting_master"]] == [1]
            assert [value for _, value in figures["mq_acting_master_begins_total"]] == [1]
            assert [value for _, value in figures["mq_escaped_messages_total"]] == [0]

    asyncio.run(script())


def test_the_slave_with_the_lower_id_acts(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave(2) as second:
            async with brokers.slave(1) as first:
                async with brokers.master() as master:
                    await sees(first, second, master)
                    assert not first.acting.is_acting
                await acts(first)
                await acts_no_more(second)
            await acts(second)

    asyncio.run(script())


def test_a_slave_does_not_act_while_its_masters_log_arrives(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave() as slave:
            async with brokers.master() as master:
                await send(master, b"first")
                await is_copied(slave, master)
                await sees(slave, master)
                brokers.names.routes.unregister("DefaultCluster", SET, master.address, 0)
                await sees(slave)
                assert await stays(lambda: not slave.acting.is_acting)
            await acts(slave)

    asyncio.run(script())


async def stays(holds: Callable[[], bool]) -> bool:
    """Whether a condition holds, and still does after some turns of the event loop."""
    for _ in range(20):
        if not holds():
            return False
        await asyncio.sleep(0)
    return True
