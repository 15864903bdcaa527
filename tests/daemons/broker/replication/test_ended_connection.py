"""A connection to a master that has ended while its slave was busy with something else."""

import asyncio
from pathlib import Path

import pytest
import uvloop

from mq.daemons.broker.replication.controlled_slave import (
    ControlledMasterConnection,
    ControlledSlave,
)
from mq.daemons.broker.replication.slave import MasterConnection, MasterConnectionLost
from tests.daemons.broker.replication.pair import pair, settings_of
from tests.daemons.broker.replication.sets import ScriptedControllers, set_master, set_slave


async def ended(connection: MasterConnection) -> None:
    """Connect it to a peer that closes at once."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await asyncio.get_running_loop().create_connection(lambda: connection, "127.0.0.1", port)
        await asyncio.wait((connection.ended,))
    await asyncio.sleep(0)  # uvloop removes its handle after the end


def test_nothing_is_requested_over_an_ended_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as (_, slave):
            replica = slave.stores.messages.replica
            assert replica is not None
            connection = MasterConnection(settings_of(tmp_path / "other"), replica)
            await ended(connection)
            connection.ask(0)
            connection.resume(lambda: replica.decide({}))
            with pytest.raises(MasterConnectionLost, match="the master has closed it"):
                connection.ended.result()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_no_handshake_is_sent_over_an_ended_connection(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers()
        async with set_master(tmp_path, controllers) as first, set_slave(tmp_path, first) as slave:
            has = slave.replication.slave
            assert isinstance(has, ControlledSlave)
            connection = has._connect()
            assert isinstance(connection, ControlledMasterConnection)
            await ended(connection)
            with pytest.raises(MasterConnectionLost, match="the master has closed it"):
                await connection.handshake()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
