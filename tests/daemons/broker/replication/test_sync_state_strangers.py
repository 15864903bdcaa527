"""Peers that are not members of the sync state set: strangers, learners, a second connection of a
slave.
"""

import asyncio
import struct
from pathlib import Path

from mq.protocol.codes import ResponseCode
from tests.daemons.broker.replication.pair import end_of, send
from tests.daemons.broker.replication.sets import (
    ScriptedControllers,
    ScriptedMember,
    asked_set,
    follow,
    set_master,
    shown,
    state_of,
)
from tests.daemons.peer import Peer
from tests.waiting import until


def test_strangers_get_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with asked_set(tmp_path, ScriptedControllers()) as (first, peer):
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            said = (
                b"GET / HTTP/1.1\r\n\r\n",
                struct.pack(">q", 0) * 3,  # a slave without a controller
                struct.pack(">ihhqiq", 1, 0, 0, 0, 2, 0),  # an unknown id
                struct.pack(">ihhqiq", 1, 0, 0, 2, 2, -1),
                # an offset that was never sent
                struct.pack(">ihhqiqiq", 1, 0, 0, 2, 2, 0, 2, 1 << 40),
                struct.pack(">ihhqihhq", 1, 0, 0, 2, 1, 0, 0, 3),  # two ids
            )
            for data in said:
                async with ScriptedMember(first.ha_master.port) as stranger:
                    stranger.writer.write(data)
                    assert await stranger.is_closed()
            await until(lambda: not first.ha_master.slaves)
            assert state_of(first).slaves == {}
            assert (await send(peer, b"a table")).code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_learner_never_joins(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers()
        async with (
            set_master(tmp_path, controllers) as first,
            ScriptedMember(first.ha_master.port) as slave,
            ScriptedMember(first.ha_master.port, broker_id=3) as other,
            Peer(first.port) as peer,
        ):
            await slave.handshake(learner=1)
            slave.say(0)
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            await slave.frame()
            slave.say(end_of(first))
            await other.handshake()
            other.say(end_of(first))
            await until(lambda: state_of(first).members == {1, 3})

    asyncio.run(main())


def test_a_second_connection_of_a_slave_ends_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers((1, 2, 3))
        async with (
            set_master(tmp_path, controllers, slaveTimeout="100") as first,
            ScriptedMember(first.ha_master.port) as slave,
            ScriptedMember(first.ha_master.port) as again,
            Peer(first.port) as peer,
        ):
            controllers.gate.clear()
            await slave.handshake()
            slave.say(0)
            await again.handshake()
            again.say(0)
            assert await slave.is_closed()
            following = asyncio.create_task(follow(again))
            assert (await send(peer, b"x")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            following.cancel()
            assert shown(first) == 0

    asyncio.run(main())


def test_nothing_is_kept_of_disconnected_strangers(tmp_path: Path) -> None:
    async def main() -> None:
        async with set_master(tmp_path, ScriptedControllers()) as first:
            for number in (7, 8, 9):
                async with ScriptedMember(first.ha_master.port, number) as stranger:
                    await stranger.handshake()
                await until(lambda: not state_of(first).slaves)
            assert not state_of(first)._gone

    asyncio.run(main())
