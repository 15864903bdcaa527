"""Replication in a set with controllers: epochs, truncation, and what consumers may read."""

import asyncio
import shutil
import struct
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.replication.epochs import Epochs
from mq.daemons.broker.store.log.mapped_file import MappedFile
from mq.daemons.config import ConfigError
from mq.protocol.bodies import EpochEntryCache, HARuntimeInfo
from mq.protocol.codes import RequestCode, ResponseCode
from tests import answered
from tests.daemons.broker.pulls import pull
from tests.daemons.broker.pulls import request as pull_request
from tests.daemons.broker.replication.pair import (
    LOG_FILE,
    caught_up,
    content,
    end_of,
    entries,
    master,
    send,
    settings_of,
)
from tests.daemons.broker.replication.sets import (
    ScriptedControllers,
    ScriptedMember,
    empty_member,
    followed_set,
    set_master,
    set_slave,
    shown,
)
from tests.daemons.broker.store.stores import as_of_a_kill
from tests.daemons.peer import Peer
from tests.waiting import until


def log_of(broker: Broker) -> bytes:
    return content(broker.stores.messages.log)


def epochs_of(broker: Broker) -> list[tuple[int, int]]:
    epochs = broker.replication.epochs
    assert epochs is not None
    return [tuple(epoch) for epoch in epochs.all]  # type: ignore[misc]


async def fill(broker: Broker, count: int, first: int = 0, size: int = 1000) -> None:
    async with Peer(broker.port) as peer:
        for number in range(first, first + count):
            reply = await send(peer, b"%d" % number * (size // 4), queue_id=number % 4)
            assert reply.code == ResponseCode.SUCCESS, reply


@answered.by_broker(RequestCode.GET_BROKER_EPOCH_CACHE)
def test_a_slave_has_the_log_the_queues_and_the_epochs_of_its_master(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers()
        async with set_master(tmp_path, controllers) as first:
            await fill(first, 100)
            async with set_slave(tmp_path, first) as slave:
                await caught_up(slave, first)
                await until(lambda: controllers.members == {1, 2})
                await fill(first, 100, 100)
                assert log_of(slave) == log_of(first)  # the whole set has the answered messages
                await until(lambda: entries(slave) == entries(first))
                assert epochs_of(slave) == epochs_of(first) == [(1, 0)]
                async with Peer(first.port) as peer, Peer(slave.port) as other:
                    reply = await peer.ask(RequestCode.GET_BROKER_EPOCH_CACHE)
                    told = EpochEntryCache.decode(reply.body)
                    assert (told.broker_id, told.max_offset) == (0, end_of(first))
                    (epoch,) = told.epoch_list
                    assert (epoch.epoch, epoch.start_offset) == (1, 0)
                    assert epoch.end_offset == 2**63 - 1
                    told = EpochEntryCache.decode(
                        (await other.ask(RequestCode.GET_BROKER_EPOCH_CACHE)).body
                    )
                    assert told.broker_id == 2
                    reply = await peer.ask(RequestCode.GET_BROKER_HA_STATUS)
                    info = HARuntimeInfo.decode(reply.body)
                    assert info.master and info.in_sync_slave_nums == 1
                    assert [one.in_sync for one in info.ha_connection_info] == [True]
                figures = {metric.name: metric.values for metric in first.metrics().all()}
                assert [value for _, value in figures["mq_in_sync_replicas"]] == [2]
                assert [value for _, value in figures["mq_replication_epoch"]] == [1]
                assert [value for _, value in figures["mq_replication_unconfirmed_bytes"]] == [0]

    asyncio.run(main())


def test_without_controllers_a_broker_has_no_epochs(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as first, Peer(first.port) as peer:
            reply = await peer.ask(RequestCode.GET_BROKER_EPOCH_CACHE)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert reply.remark == "this request only for controllerMode "

    asyncio.run(main())


@pytest.mark.parametrize("is_cold", [True, False])  # read by a thread; sent from memory
def test_no_frame_crosses_the_start_of_an_epoch(
    is_cold: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_cold:
        monkeypatch.setattr(MappedFile, "read_if_in_memory", lambda *_: None)

    async def main() -> None:
        controllers = ScriptedControllers()
        ends = []
        for number in (1, 2, 4):
            async with set_master(tmp_path, controllers, number) as first:
                await fill(first, 5)
                ends.append(end_of(first))
        async with (
            set_master(tmp_path, controllers, 4) as first,
            ScriptedMember(first.ha_master.port) as slave,
        ):
            starts = {1: 0, 2: ends[0], 4: ends[1]}
            assert await slave.handshake() == (ends[2], [list(each) for each in starts.items()])
            slave.say(0)
            position, seen = 0, set()
            whole = log_of(first)
            while position < ends[2]:
                offset, epoch, confirmed, data = await slave.frame()
                assert offset == position
                assert data == whole[offset : offset + len(data)]
                number = max(each for each, start in starts.items() if start <= offset)
                assert epoch == (number, starts[number])
                last = offset + len(data) - 1
                assert max(each for each, start in starts.items() if start <= last) == number
                assert confirmed == ends[2]  # the set has no other member
                seen.add(number)
                position += len(data)
            assert seen == {1, 2, 4}
            async with set_slave(tmp_path, first) as real:
                await caught_up(real, first)
                assert epochs_of(real) == epochs_of(first) == list(starts.items())
                assert log_of(real) == whole

    asyncio.run(main())


def test_a_slave_starts_at_the_requested_offset(tmp_path: Path) -> None:
    async def main() -> None:
        async with set_master(tmp_path, ScriptedControllers()) as first:
            await fill(first, 200)
            end = end_of(first)
            assert end > 2 * LOG_FILE
            port = first.ha_master.port
            for last_file, begin in ((0, 0), (1, end - end % LOG_FILE)):
                async with ScriptedMember(port) as slave:
                    await slave.handshake(last_file=last_file)
                    slave.say(0)
                    assert (await slave.frame())[0] == begin
            async with ScriptedMember(port) as slave:
                await slave.handshake()
                await slave.handshake()  # Java repeats it when it waits for long
                slave.say(1000)
                assert (await slave.frame())[0] == 1000
            async with ScriptedMember(port) as slave:
                await slave.handshake()
                slave.say(end + 1)
                assert await slave.is_closed()
            async with ScriptedMember(port) as slave:
                slave.say(0)  # it has not sent its handshake
                assert await slave.is_closed()
            async with ScriptedMember(port, broker_id=1) as slave:  # the master's own
                slave.writer.write(struct.pack(">ihhq", 1, 0, 0, 1))
                assert await slave.is_closed()

    asyncio.run(main())


def test_a_slave_is_no_master(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            set_master(tmp_path, ScriptedControllers()) as first,
            set_slave(tmp_path, first) as slave,
            ScriptedMember(slave.ha_master.port, broker_id=3) as other,
        ):
            assert await other.is_closed()

    asyncio.run(main())


async def part_ways(tmp_path: Path) -> tuple[int, bytes]:
    """Broker 1 writes messages that no other has, broker 2 is elected and writes others; returns
    where their logs diverge, and broker 1's log from there on.
    """
    async with set_master(tmp_path, ScriptedControllers()) as first:
        await fill(first, 50)
        async with set_slave(tmp_path, first) as slave:
            await caught_up(slave, first)
        fork = end_of(first)
    async with set_master(tmp_path, ScriptedControllers()) as first:
        await fill(first, 90, 1000)
        lost = content(first.stores.messages.log, fork)
    async with set_master(tmp_path, ScriptedControllers((2,)), 2, 2) as second:
        await fill(second, 70, 2000)
    return fork, lost


def test_records_of_a_former_master_alone_are_truncated_and_kept(tmp_path: Path) -> None:
    async def main() -> None:
        fork, lost = await part_ways(tmp_path)
        controllers = ScriptedControllers((2,))
        async with (
            set_master(tmp_path, controllers, 2, 2) as second,
            set_slave(tmp_path, second, 1) as former,
        ):
            await caught_up(former, second)
            assert log_of(former) == log_of(second)
            assert epochs_of(former) == epochs_of(second) == [(1, 0), (2, fork)]
            await until(lambda: entries(former) == entries(second))
            kept = sorted((tmp_path / "1" / "damaged").iterdir())
            assert kept[0].name == f"{fork:020d}"
            assert kept[0].read_bytes() == lost[: kept[0].stat().st_size]
            await until(lambda: controllers.members == {1, 2})

    asyncio.run(main())


def test_truncated_records_do_not_reappear_after_a_kill(tmp_path: Path) -> None:
    """Java only moves its positions: its recovery reads on (issue 10666)."""

    async def main() -> None:
        fork, lost = await part_ways(tmp_path)
        async with set_master(tmp_path, ScriptedControllers((2,)), 2, 2) as second:
            former = set_slave(tmp_path, second, 1)
            async with former:
                await until(lambda: former.replication.slave.connection is not None)  # type: ignore[union-attr]
                # As after a kill: nothing that a stop writes.
                await asyncio.to_thread(shutil.copytree, tmp_path / "1", tmp_path / "killed")
                as_of_a_kill(tmp_path / "killed")
            assert lost[:200] not in (tmp_path / "killed" / "commitlog" / f"{0:020d}").read_bytes()
            end = end_of(second)
        async with set_master(tmp_path, ScriptedControllers((1,)), 3, 2) as second:
            again = set_slave(tmp_path, second, 1, "killed")
            async with again:
                assert again.stores.messages.report.crashed
                await caught_up(again, second)
                assert fork < end == end_of(again)
                assert log_of(again) == log_of(second)

    asyncio.run(main())


def test_two_elections_without_a_write_truncate_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with set_master(tmp_path, ScriptedControllers()) as first:
            await fill(first, 5)
            async with set_slave(tmp_path, first) as slave:
                await caught_up(slave, first)
        for epoch in (2, 3):
            async with set_master(tmp_path, ScriptedControllers(), epoch) as first:
                async with set_slave(tmp_path, first) as slave:
                    await until(lambda: slave.replication.slave.connection is not None)  # type: ignore[union-attr]
        async with set_master(tmp_path, ScriptedControllers(), 4) as first:
            async with set_slave(tmp_path, first) as slave:
                start = end_of(first)
                await fill(first, 5)
                await caught_up(slave, first)
                assert epochs_of(slave) == epochs_of(first) == [(1, 0), (4, start)]
                assert log_of(slave) == log_of(first)
        assert not (tmp_path / "2" / "damaged").exists()

    asyncio.run(main())


def test_records_that_a_master_still_has_after_a_machine_crash_are_not_truncated(
    tmp_path: Path,
) -> None:
    """It starts its epoch again at the end of its log: the common part of it belongs to the
    previous epoch there. If that were truncated, only the master would have it until it is
    copied again.
    """

    async def main() -> None:
        async with set_master(tmp_path, ScriptedControllers()) as first:
            await fill(first, 20)
            async with set_slave(tmp_path, first) as slave:
                await caught_up(slave, first)
            start = end_of(first)
        async with set_master(tmp_path, ScriptedControllers(), 2) as first:
            async with set_slave(tmp_path, first) as slave:
                await fill(first, 20, 100)
                await caught_up(slave, first)
                assert epochs_of(slave) == [(1, 0), (2, start)]
            end = end_of(first)
        epochs = Epochs(tmp_path / "1" / "epochFileCheckpoint")
        epochs.load(end)
        epochs.begin(2, 0, end, is_whole=False)  # as a start after a power failure does
        async with (
            set_master(tmp_path, ScriptedControllers((1, 2)), 2) as first,
            set_slave(tmp_path, first) as slave,
        ):
            assert epochs_of(first) == [(1, 0), (2, end)]
            await fill(first, 20, 200)
            await caught_up(slave, first)
            assert log_of(slave) == log_of(first)
            assert epochs_of(slave) == epochs_of(first)
        assert not (tmp_path / "2" / "damaged").exists()

    asyncio.run(main())


def test_a_store_without_epochs_is_compared_byte_for_byte(tmp_path: Path) -> None:
    """Like the store of a slave without controllers. (Java keeps all of it, whatever it is.)"""

    async def main() -> None:
        await part_ways(tmp_path)
        (tmp_path / "1" / "epochFileCheckpoint").unlink()
        (tmp_path / "1" / "epochFileCheckpoint.bak").unlink(missing_ok=True)
        async with (
            set_master(tmp_path, ScriptedControllers((2,)), 2, 2) as second,
            set_slave(tmp_path, second, 1) as former,
        ):
            await caught_up(former, second)
            assert log_of(former) == log_of(second)
            assert epochs_of(former) == epochs_of(second)

    asyncio.run(main())


def test_a_former_master_without_controllers_is_followed_from_the_start_of_its_log(
    tmp_path: Path,
) -> None:
    """From Java's master an empty slave gets nothing: no epoch has the earlier records."""

    async def main() -> None:
        async with master(tmp_path) as before:
            await fill(before, 200)
            end = end_of(before)
        (tmp_path / "master").rename(tmp_path / "1")
        async with (
            set_master(tmp_path, ScriptedControllers()) as first,
            set_slave(tmp_path, first) as slave,
        ):
            await fill(first, 10, 200)
            await caught_up(slave, first)
            assert end_of(first) > end > LOG_FILE
            assert log_of(slave) == log_of(first)
            assert epochs_of(slave) == epochs_of(first) == [(1, 0)]

    asyncio.run(main())


def test_a_slave_may_start_with_the_last_file_as_a_learner(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers()
        changes = {"syncFromLastFile": "true", "asyncLearner": "true"}
        async with set_master(tmp_path, controllers, checkSyncStateSetPeriod="20") as first:
            await fill(first, 200)
            async with set_slave(tmp_path, first, **changes) as slave:
                await caught_up(slave, first)
                minimum = slave.stores.messages.log.minimum
                assert minimum == end_of(first) - end_of(first) % LOG_FILE > 0
                await fill(first, 10, 200)
                await caught_up(slave, first)
                assert log_of(slave) == content(first.stores.messages.log, minimum)
                await until(lambda: slave.replication.confirmed == end_of(first))
                await asyncio.sleep(0.1)
                assert controllers.asked == []

    asyncio.run(main())


def test_messages_that_the_set_does_not_have_are_not_readable(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        async with followed_set(tmp_path, controllers) as (first, peer, slave):
            await until(lambda: bool(first.replication.state and first.replication.state.slaves))
            sending = asyncio.create_task(send(peer, b"a chair", properties="KEYS\x01k"))
            *_, confirmed, data = await slave.frame()
            assert confirmed == 0
            assert shown(first) == 0 and not sending.done()
            slave.say(len(data))
            assert (await sending).code == ResponseCode.SUCCESS
            assert shown(first) == 1
            # The slave is sent the confirm offset separately.
            assert await slave.frame() == (len(data), (1, 0), len(data), b"")

    asyncio.run(main())


def test_unconfirmed_messages_stay_unreadable_after_a_start(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        controllers.gate.clear()  # the slave leaves below
        async with set_master(tmp_path, controllers, slaveTimeout="20000") as first:
            async with empty_member(first) as slave, Peer(first.port) as peer:
                sending = asyncio.create_task(send(peer, b"a chair"))
                *_, data = await slave.frame()
                slave.say(len(data))
                assert (await sending).code == ResponseCode.SUCCESS
                first.settings.update({"slaveTimeout": "100"})
                reply = await send(peer, b"a table")
                assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                assert shown(first) == 1
                reply = await peer.ask(
                    RequestCode.GET_MAX_OFFSET, {"topic": "Orders", "queueId": "0"}
                )
                assert reply.fields["offset"] == "1"
        checkpoint = (tmp_path / "1" / "checkpoint").read_bytes()
        assert struct.unpack_from(">q", checkpoint, 32) == (len(data),)
        # In a set it waits for the others. Alone its whole log counts.
        async with set_master(tmp_path, ScriptedControllers((1, 2))) as first:
            assert shown(first) == 1
            async with Peer(first.port) as peer:  # a group that has read more at another broker
                reply = await pull(peer, pull_request(2, topic="Orders"))
                assert reply.code == ResponseCode.PULL_NOT_FOUND
                reply = await pull(peer, pull_request(3, topic="Orders"))
                assert reply.code == ResponseCode.PULL_OFFSET_MOVED
        async with set_master(tmp_path, ScriptedControllers()) as first:
            assert shown(first) == 2
            assert entries(first)["Orders", 0][0] == 2

    asyncio.run(main())


def test_a_slave_shows_messages_up_to_its_masters_confirm_offset(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers()
        async with set_master(tmp_path, controllers, slaveTimeout="100") as first:
            async with set_slave(tmp_path, first) as slave:
                await fill(first, 8)
                await until(lambda: controllers.members == {1, 2})
                await until(lambda: shown(slave) == shown(first) == 2)
                controllers.gate.clear()  # nothing leaves the set
                controllers.tell(frozenset((1, 2, 3)), controllers.epoch + 1)
                async with Peer(first.port) as peer:
                    reply = await send(peer, b"a table")
                    assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                await caught_up(slave, first)
                assert shown(slave) == shown(first) == 2
            async with set_slave(tmp_path, first) as slave:
                await caught_up(slave, first)
                assert shown(slave) == 2
                controllers.tell(frozenset((1, 2)), controllers.epoch + 2)
                await until(lambda: shown(slave) == shown(first) == 3)

    asyncio.run(main())


def test_a_queue_with_unconfirmed_messages_does_not_count_as_deleted_by_the_master(
    tmp_path: Path,
) -> None:
    """Another queue of its topic restarts; the master reports nothing that it may not show."""

    async def main() -> None:
        controllers = ScriptedControllers()
        async with (
            set_master(tmp_path, controllers, slaveTimeout="100") as first,
            set_slave(tmp_path, first) as slave,
            Peer(first.port) as peer,
        ):
            await send(peer, b"old")
            await until(lambda: controllers.members == {1, 2})
            await caught_up(slave, first)
            await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"})
            controllers.gate.clear()
            controllers.tell(frozenset((1, 2, 3)), controllers.epoch + 1)  # which is empty
            for queue_id in (1, 0):
                reply = await send(peer, b"new", queue_id=queue_id)
                assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            await caught_up(slave, first)
            controllers.tell(frozenset((1, 2)), controllers.epoch + 2)
            await until(lambda: shown(first, 0) == shown(first, 1) == 1)
            await until(lambda: shown(slave, 0) == 1)
            assert entries(slave) == entries(first)

    asyncio.run(main())


def test_role_and_settings_must_agree(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="controllers have made this broker a master"):
            async with set_master(
                tmp_path, ScriptedControllers(), brokerRole="SLAVE", brokerId="2"
            ):
                pass
        settings = settings_of(tmp_path / "1")
        settings.broker = settings.broker.replace(enable_controller_mode=True)
        with pytest.raises(ConfigError, match="enableControllerMode"):
            async with Broker(settings):
                pass

    asyncio.run(main())
