"""Peers of the replication port that are not slaves."""

import asyncio
import logging
import random
from pathlib import Path

import pytest

from mq.daemons.broker.replication import master as master_module
from mq.daemons.broker.replication.admission import Admission
from mq.daemons.config import ConfigError
from tests.daemons.broker.replication.pair import (
    OFFSET,
    ScriptedSlave,
    end_of,
    master,
    send,
    settings_of,
)
from tests.daemons.peer import Peer
from tests.waiting import until


async def fill(port: int, count: int = 5) -> None:
    async with Peer(port) as peer:
        for _ in range(count):
            await send(peer, bytes(1000))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_random_bytes_end_the_connection_and_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with master(tmp_path) as first:
            await fill(first.port)
            for seed in range(20):
                async with ScriptedSlave(first.ha_master.port) as stranger:
                    stranger.writer.write(b"GET / HTTP/1.1\r\n" + random.Random(seed).randbytes(80))
                    assert await stranger.is_closed()
            await until(lambda: not first.ha_master.slaves)

    asyncio.run(main())
    about = [text for text in warnings(caplog) if "is not a slave of this broker" in text]
    assert len(about) == 1


@pytest.mark.parametrize("offset", [-1, 1 << 62, "end"])
def test_an_offset_that_no_slave_can_have_ends_the_connection(
    tmp_path: Path, offset: int | str
) -> None:
    async def main() -> None:
        async with master(tmp_path) as first:
            await fill(first.port)
            async with ScriptedSlave(first.ha_master.port) as stranger:
                stranger.say(end_of(first) + 1 if isinstance(offset, str) else offset)
                assert await stranger.is_closed()
            assert first.ha_master.nearest() is None

    asyncio.run(main())


def test_a_slave_with_a_longer_log_never_gets_later_records(
    tmp_path: Path,
) -> None:
    """The master has lost its end. Java continues there as soon as its log is long enough."""

    async def main() -> None:
        async with master(tmp_path) as first:
            await fill(first.port)
            beyond = end_of(first) + 500
            async with ScriptedSlave(first.ha_master.port) as slave:
                slave.say(beyond)
                assert await slave.is_closed()
            await fill(first.port)
            assert end_of(first) > beyond
            async with ScriptedSlave(first.ha_master.port) as slave:
                slave.say(beyond)
                assert await slave.is_closed()

    asyncio.run(main())


def test_an_early_request_of_a_stranger_does_not_block_slaves(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as first:
            await fill(first.port)
            beyond = 2 * end_of(first)
            stranger = await asyncio.open_connection(
                "127.0.0.1", first.ha_master.port, local_addr=("127.0.0.2", 0)
            )
            stranger[1].write(OFFSET.pack(beyond))
            assert await stranger[0].read() == b""
            stranger[1].close()
            await fill(first.port)
            assert end_of(first) == beyond
            async with ScriptedSlave(first.ha_master.port) as slave:
                slave.say(beyond)
                await until(lambda: first.ha_master.nearest() == beyond)

    asyncio.run(main())


def test_an_acknowledgement_of_unsent_data_ends_the_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, brokerRole="SYNC_MASTER", slaveTimeout="200") as first:
            async with ScriptedSlave(first.ha_master.port) as stranger, Peer(first.port) as peer:
                stranger.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                stranger.say(1 << 40)
                assert await stranger.is_closed()
                reply = await send(peer, b"not replicated")
                assert reply.code != 0

    asyncio.run(main())


def test_a_silent_peer_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_module, "TICK", 0.05)

    async def main() -> None:
        async with master(tmp_path, haHousekeepingInterval="200") as first:
            async with ScriptedSlave(first.ha_master.port) as stranger:
                assert await stranger.is_closed()

    asyncio.run(main())


def test_a_peer_that_does_not_read_is_buffered_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq.daemons.broker.replication import slave_connection

    monkeypatch.setattr(slave_connection, "MOST_UNSENT", 20_000)
    monkeypatch.setattr(slave_connection, "_AT_ONCE", 20_000)

    async def main() -> None:
        changes = {"mappedFileSizeCommitLog": str(64 << 20)}
        async with master(tmp_path, **changes) as first:
            _, writer = await asyncio.open_connection("127.0.0.1", first.ha_master.port, limit=1)
            writer.write(OFFSET.pack(0))
            await until(lambda: first.ha_master.nearest() == 0)
            async with Peer(first.port) as peer:
                for _ in range(24):
                    await send(peer, bytes(1_000_000))
            (slow,) = first.ha_master.slaves
            transport = slow._transport
            assert transport.get_write_buffer_size() < 2_100_000
            assert slow.lag == end_of(first)
            writer.close()

    asyncio.run(main())


def test_connections_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_module, "MOST_SLAVES", 2)

    async def main() -> None:
        async with master(tmp_path) as first:
            async with (
                ScriptedSlave(first.ha_master.port) as one,
                ScriptedSlave(first.ha_master.port) as two,
            ):
                one.say(0)
                two.say(0)
                await until(lambda: len(first.ha_master.slaves) == 2)
                async with ScriptedSlave(first.ha_master.port) as three:
                    assert await three.is_closed()
                assert first.ha_master.turned_away == 1

    asyncio.run(main())


def test_a_silent_peer_makes_room_for_a_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_module, "MOST_SLAVES", 2)

    async def main() -> None:
        async with master(tmp_path) as first:
            port = first.ha_master.port
            async with ScriptedSlave(port) as one, ScriptedSlave(port) as silent:
                one.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                await until(lambda: len(first.ha_master.slaves) == 2)
                async with ScriptedSlave(port) as slave:
                    assert await silent.is_closed()
                    slave.say(0)
                    await fill(first.port, 1)
                    assert (await slave.frame())[0] == 0

    asyncio.run(main())


def test_an_unlisted_address_may_not_replicate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with master(tmp_path, haAllowedAddresses="10.0.0.5;10.1.0.0/16") as first:
            await fill(first.port)
            for _ in range(3):
                async with ScriptedSlave(first.ha_master.port) as stranger:
                    stranger.say(0)
                    assert await stranger.is_closed()
            assert first.ha_master.turned_away == 3

    asyncio.run(main())
    about = [text for text in warnings(caplog) if "may not replicate" in text]
    assert about == ["127.0.0.1 may not replicate: if it is a slave, name it in haAllowedAddresses"]


def test_with_access_control_only_this_machine_replicates_unless_others_are_listed(
    tmp_path: Path,
) -> None:
    open_to_all = Admission(settings_of(tmp_path))
    assert open_to_all.admits("10.9.9.9")
    guarded = Admission(settings_of(tmp_path, aclEnable="true"))
    assert not guarded.admits("10.9.9.9") and guarded.admits("127.0.0.1")
    named = Admission(settings_of(tmp_path, aclEnable="true", haAllowedAddresses="10.9.0.0/16"))
    assert named.admits("10.9.9.9") and not named.admits("10.8.0.1")
    with pytest.raises(ConfigError, match="haAllowedAddresses: there is neither"):
        settings_of(tmp_path, haAllowedAddresses="there")
