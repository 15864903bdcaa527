"""The pre-online steps of a broker: it asks the others of its set, and waits for none of them for
long.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mq.daemons.broker.delayed.timer_checkpoint import FILE_NAME, TimerCheckpoint
from mq.daemons.broker.failover.acting import pre_online, service
from tests.daemons.broker.failover.acting.sets import (
    SET,
    acts,
    acts_no_more,
    bodies,
    cluster,
    have,
    is_copied,
    send,
)
from tests.daemons.namesrv.servers import header, register
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_monotonic, stopped_time
from tests.waiting import until


@asynccontextmanager
async def silent_member() -> AsyncIterator[str]:
    """The address of a broker that accepts connections, and answers nothing."""

    writers: list[asyncio.StreamWriter] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            while await reader.read(1024):
                pass

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"127.0.0.1:{port}"
        for writer in writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def test_a_silent_slave_delays_its_master_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pre_online, "PATIENCE", 0.2)
    monkeypatch.setattr(pre_online, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(pre_online, "RETRY_SECONDS", 0.01)

    async def script() -> None:
        async with cluster(tmp_path) as brokers, silent_member() as address:
            async with Peer(brokers.names.port) as peer:
                await register(peer, told=header(SET, address, 1, enable_acting_master=True))
                async with brokers.master() as master:
                    await brokers.shows(master)
                    await send(master, b"first")

    asyncio.run(script())
    assert "but does not report its progress: its deliveries are repeated" in caplog.text


def test_deliveries_of_a_slave_while_its_master_waits_for_another_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops acting for a limited time, and was asked long before that ends."""
    monkeypatch.setattr(pre_online, "PATIENCE", 4.0)
    monkeypatch.setattr(pre_online, "FRESH_SECONDS", 0.2)
    monkeypatch.setattr(service, "WAY_SECONDS", 0.5)
    short = {"messageDelayLevel": "1s 2s 3s"}

    async def script() -> None:
        async with (
            cluster(tmp_path) as brokers,
            brokers.other() as other,
            Peer(brokers.names.port) as peer,
        ):
            await send(other, b"topic")
            async with brokers.slave(1, **short) as slave:
                async with brokers.master(**short) as master:
                    await send(master, b"delayed", DELAY="3")
                    await is_copied(slave, master)
                await acts(slave)
                gone = header(SET, "127.0.0.1:1", 2, enable_acting_master=True)
                await register(peer, told=gone)
                with stopped_monotonic() as passed:
                    master = brokers.master(**short)
                    starting = asyncio.ensure_future(master.__aenter__())
                    await acts_no_more(slave)
                    passed.advance(600)
                    await acts(slave)
                    stopped.advance(4000)
                    assert await have(other, 2) == [b"delayed", b"topic"]
                    assert not starting.done()
                    passed.advance(4000)
                    await starting
                try:
                    await until(lambda: master.delivery.delayed.offsets == {3: 1})
                    assert bodies(master) == []
                finally:
                    await master.__aexit__(None, None, None)

    with stopped_time() as stopped:
        asyncio.run(script())


def test_a_master_without_slaves_to_ask_starts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pre_online, "ASK_SECONDS", 60.0)

    async def script() -> None:
        async with cluster(tmp_path) as brokers, silent_member() as address:
            async with Peer(brokers.names.port) as peer:
                await register(peer, told=header(SET, address, 1, enable_acting_master=True))
                async with asyncio.timeout(pre_online.ASK_SECONDS / 2):
                    async with brokers.master(skipPreOnline="true") as master:
                        await brokers.shows(master)

    asyncio.run(script())


def test_a_slave_registers_when_the_log_of_its_master_arrives(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.master() as master:
            await brokers.shows(master)
            slave = brokers.slave()
            starting = asyncio.ensure_future(slave.__aenter__())
            await until(lambda: 1 in brokers.names.routes.brokers[SET].broker_addrs)
            assert slave.replication.slave is not None
            assert slave.replication.slave.connected.is_set()
            await starting
            await slave.__aexit__(None, None, None)

    asyncio.run(script())


@pytest.mark.parametrize(("told", "taken"), [(1000, 2000), (3000, 3000)])
def test_a_master_continues_the_timer_that_is_ahead(told: int, taken: int, tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave() as slave:
            own, other = (tmp_path / name / "config" / FILE_NAME for name in ("master", "slave-1"))
            own.parent.mkdir(parents=True)
            other.parent.mkdir(exist_ok=True)
            TimerCheckpoint(own).save(2000, 0, 0)
            TimerCheckpoint(other).save(told, 0, 0)
            slave.stores.offsets.version.has_acted = True
            async with brokers.master():
                assert TimerCheckpoint(own).read_time == taken

    asyncio.run(script())
