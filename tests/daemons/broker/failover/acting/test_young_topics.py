"""Topics and groups that were created at the master last, and not copied by its slave, whose log
has messages for them.
"""

import asyncio
from pathlib import Path

from mq.daemons.broker.app import Broker
from tests.daemons.broker.failover.acting.sets import LONG, acts, cluster, have, is_copied, send
from tests.daemons.broker.harness import create_topic
from tests.daemons.broker.pop.consumers import GROUP, PopConsumer, fill
from tests.daemons.broker.pop.consumers import TOPIC as POPPED
from tests.daemons.broker.replication.pair import caught_up
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time

SHORT = {"messageDelayLevel": "1s 2s 3s", "autoCreateTopicEnable": "false"}


def end_copying() -> None:
    for task in asyncio.all_tasks():
        if task.get_name() == "copies of the master's metadata":
            task.cancel()


def aside(broker: Broker) -> int:
    return broker.stores.aside.counts.total()


def test_a_delayed_message_for_a_young_topic_is_delivered(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.other(**SHORT) as other:
            async with Peer(other.port) as peer:
                await create_topic(peer, "Young")
            async with brokers.slave(1, **SHORT) as slave:
                async with brokers.master(**{**SHORT, **LONG}) as master:
                    await is_copied(slave, master)
                    end_copying()  # as if everything below happened within ten seconds
                    async with Peer(master.port) as peer:
                        await create_topic(peer, "Young")
                    await send(master, b"delayed", "Young", DELAY="1")
                    await caught_up(slave, master)
                await acts(slave)
                assert await have(other, 1, "Young") == [b"delayed"]
                assert not aside(slave)

    asyncio.run(script())


def test_messages_popped_by_a_new_group_are_redelivered(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            async with brokers.slave() as slave:
                async with brokers.master() as master, Peer(master.port) as peer:
                    await is_copied(slave, master)
                    end_copying()
                    await fill(peer, 1)
                    popped = await PopConsumer(peer, master).pop(invisibleTime="2000")
                    assert len(popped) == 1
                    await caught_up(slave, master)
                await acts(slave)
                stopped.advance(3000)
                assert len(await have(other, 1, f"%RETRY%{GROUP}_{POPPED}")) == 1

    with stopped_time() as stopped:
        asyncio.run(script())
