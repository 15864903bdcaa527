"""A master and its slaves, as daemons in one process: the same log, the same queues."""

import asyncio
import shutil
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.replication import slave as slave_module
from mq.daemons.broker.replication import slave_connection
from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.log.mapped_file import MappedFile
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import HARuntimeInfo
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.record import AT
from tests import answered
from tests.client.scripted import scripted
from tests.daemons.broker.replication.filling import fill
from tests.daemons.broker.replication.pair import (
    LOG_FILE,
    ScriptedSlave,
    caught_up,
    content,
    end_of,
    entries,
    follow,
    ha_address,
    master,
    pair,
    send,
    settings_of,
    slave_of,
)
from tests.daemons.broker.store.stores import as_of_a_kill
from tests.daemons.peer import Peer
from tests.interop.ports import free_port
from tests.waiting import until

# Files that a running broker is writing, and renames when they are complete.
WRITTEN_NOW = shutil.ignore_patterns("*.tmp")


def assert_equal(slave: Broker, its_master: Broker) -> None:
    logs = [one.stores.messages.log for one in (slave, its_master)]
    assert content(logs[0]) == content(logs[1], logs[0].minimum)
    assert entries(slave) == entries(its_master)


def test_a_slave_has_the_log_of_its_master_byte_for_byte_and_its_queues(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as (first, slave):
            await fill(first, 120)
            await caught_up(slave, first)
            assert end_of(slave) > 4 * LOG_FILE
            assert_equal(slave, first)
            found = query_by_key(slave.stores.messages, "Orders", "key-1-77", 5, 0, 1 << 62)[2]
            assert len(found) == 1 and b"key-1-77" in found[0]

    asyncio.run(main())


def test_two_slaves_replicate_and_one_of_a_slave_does_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as first, slave_of(tmp_path, first, "one") as one:
            async with slave_of(tmp_path, first, "two") as two:
                async with slave_of(tmp_path, one, "of-a-slave") as three:
                    await fill(first, 40)
                    for slave in (one, two, three):
                        await caught_up(slave, first)
                        assert_equal(slave, first)
                    assert len(first.ha_master.slaves) == 2

    asyncio.run(main())


def test_a_slave_continues_where_it_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as first:
            async with slave_of(tmp_path, first) as slave:
                await fill(first, 30)
                await caught_up(slave, first)
                before = end_of(slave)
            await fill(first, 30, seed=2)
            async with slave_of(tmp_path, first) as slave:
                assert slave.stores.messages.report.end == before
                assert not slave.stores.messages.report.crashed
                await caught_up(slave, first)
                assert_equal(slave, first)

    asyncio.run(main())


def test_a_returning_master_is_followed_again(tmp_path: Path) -> None:
    async def main() -> None:
        # Not ports that a connection may use while the master is down.
        ports = {"listenPort": str(free_port()), "haListenPort": str(free_port())}
        async with master(tmp_path, **ports) as first:
            slave = slave_of(tmp_path, first)
            async with slave:
                await fill(first, 30)
                await caught_up(slave, first)
                await first.__aexit__()
                async with master(tmp_path, **ports) as again:
                    await fill(again, 30, seed=2)
                    await caught_up(slave, again)
                    assert_equal(slave, again)

    asyncio.run(main())


def test_a_new_slave_starts_with_the_last_file_as_in_java(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as first:
            await fill(first, 60)
            last = first.stores.messages.log.files[-1].start
            assert last > 0
            async with slave_of(tmp_path, first) as slave:
                await caught_up(slave, first)
                assert slave.stores.messages.log.minimum == last
                logs = [one.stores.messages.log for one in (slave, first)]
                assert content(logs[0]) == content(logs[1], last)
                for queue in slave.stores.messages.queues:
                    theirs = first.stores.messages.queues.get(queue.topic, queue.queue_id)
                    assert theirs is not None
                    assert queue.readable == theirs.readable
                    assert queue.entries(queue.minimum, 1) == theirs.entries(queue.minimum, 1)
                await fill(first, 20, seed=2)
                await caught_up(slave, first)
            async with slave_of(tmp_path, first) as slave:  # and it starts again from that
                await fill(first, 20, seed=3)
                await caught_up(slave, first)
                assert content(slave.stores.messages.log) == content(
                    first.stores.messages.log, last
                )

    asyncio.run(main())


def test_a_slave_wakes_a_suspended_pull_and_refuses_sends(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as (first, slave):
            await fill(first, 4)
            await caught_up(slave, first)
            async with Peer(slave.port) as peer:
                refused = await send(peer, b"to a slave")
                assert refused.code != ResponseCode.SUCCESS
            assert end_of(slave) == end_of(first)

    asyncio.run(main())


def test_a_slave_without_a_master_connects_when_one_is_set(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as first:
            slave = slave_of(tmp_path, first)
            slave.master_addresses.ha_address = ""
            async with slave:
                await fill(first, 3)
                assert slave.replication.slave is not None
                await until(lambda: bool(slave.replication.slave.problem))  # type: ignore[union-attr]
                slave.master_addresses.set(first.address, ha_address(first))
                slave.master_addresses.changed.set()
                await caught_up(slave, first)

    asyncio.run(main())


@answered.by_broker(RequestCode.GET_BROKER_HA_STATUS)
def test_ha_status_reports_slaves_and_the_master(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as (first, slave):
            await fill(first, 5)
            await caught_up(slave, first)
            connection = next(iter(first.ha_master.slaves))
            await until(lambda: connection.lag == 0)
            async with Peer(first.port) as peer, Peer(slave.port) as other:
                reply = await peer.ask(RequestCode.GET_BROKER_HA_STATUS)
                of_master = HARuntimeInfo.decode(reply.body)
                reply = await other.ask(RequestCode.GET_BROKER_HA_STATUS)
                of_slave = HARuntimeInfo.decode(reply.body)
            assert of_master.master and not of_slave.master
            assert of_master.in_sync_slave_nums == 1
            (one,) = of_master.ha_connection_info
            assert (one.slave_ack_offset, one.diff, one.in_sync) == (end_of(first), 0, True)
            assert one.transfer_from_where == end_of(first)
            client = of_slave.ha_client_runtime_info
            assert client.master_addr == ha_address(first)
            assert client.max_offset == end_of(first)
            assert client.last_read_timestamp > 1_600_000_000_000

    asyncio.run(main())


def test_a_slave_killed_during_a_record_has_the_same_log_in_the_end(tmp_path: Path) -> None:
    """Nothing of an incomplete record is in a file: the next start finds whole records only."""

    async def main() -> None:
        async with master(tmp_path) as first:
            async with slave_of(tmp_path, first) as slave:
                await fill(first, 10)
                await caught_up(slave, first)
                replica = slave.stores.messages.replica
                assert replica is not None
                # As if the connection had brought a part, and the process died before the rest.
                connection = next(iter(first.ha_master.slaves))
                connection.next = -1
                await fill(first, 1, seed=5)
                log = first.stores.messages.log
                more = content(log, replica.received)
                replica.receive(replica.received, more[: len(more) - 3])
                shutil.copytree(tmp_path / "slave", tmp_path / "killed", ignore=WRITTEN_NOW)
                as_of_a_kill(tmp_path / "killed")
            async with slave_of(tmp_path, first, "killed") as again:
                assert again.stores.messages.report.crashed
                assert not again.stores.messages.report.damages
                await caught_up(again, first)
                assert_equal(again, first)

    asyncio.run(main())


def test_a_slave_replaces_nothing_with_data_of_another_peer(tmp_path: Path) -> None:
    """A port that sends first is not a replication port."""

    async def main() -> None:
        async with master(tmp_path) as first:
            slave = slave_of(tmp_path, first)

            async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(talk, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            slave.master_addresses.ha_address = f"127.0.0.1:{port}"
            async with slave:
                assert slave.replication.slave is not None
                await until(lambda: bool(slave.replication.slave.problem))  # type: ignore[union-attr]
                assert "not a replication port" in slave.replication.slave.problem
                assert end_of(slave) == 0
            server.close()

    asyncio.run(main())


def test_frames_go_out_in_pieces_of_the_batch_size_and_never_across_files(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, haTransferBatchSize="1000") as first:
            async with ScriptedSlave(first.ha_master.port) as slave:
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                await fill(first, 60)
                got = b""
                while len(got) < end_of(first):
                    offset, piece = await slave.frame()
                    assert offset == len(got)
                    assert 0 < len(piece) <= 1000
                    assert offset // LOG_FILE == (offset + len(piece) - 1) // LOG_FILE
                    got += piece
                assert got == content(first.stores.messages.log)

    asyncio.run(main())


def test_data_that_is_not_in_memory_is_read_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave_connection, "_AT_ONCE", 20_000)

    async def main() -> None:
        async with master(tmp_path) as first:
            async with slave_of(tmp_path, first) as slave:
                await fill(first, 3)
                await caught_up(slave, first)
            await fill(first, 80, seed=2)
            assert first.ha_master._reader is None
            monkeypatch.setattr(MappedFile, "read_if_in_memory", lambda *_: None)
            async with slave_of(tmp_path, first) as slave:
                await caught_up(slave, first)
                assert first.ha_master._reader is not None
                assert_equal(slave, first)

    asyncio.run(main())


def test_a_slave_leaves_a_living_master_when_another_is_set(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            master(tmp_path) as first,
            Broker(settings_of(tmp_path / "second")) as second,
            slave_of(tmp_path, first) as slave,
        ):
            of_slave = slave.replication.slave
            assert of_slave is not None
            await until(lambda: of_slave.connection is not None)
            follow(slave, second)
            await fill(second, 3)
            await caught_up(slave, second)
            assert_equal(slave, second)
            assert of_slave.master == ha_address(second)
            await until(lambda: not first.ha_master.slaves)

    asyncio.run(main())


def test_a_master_with_an_unknown_host_name_is_reported_and_retried(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as (first, slave):
            of_slave = slave.replication.slave
            assert of_slave is not None
            slave.master_addresses.set(first.address, "a..b:10912")
            await until(lambda: "is empty or too long" in of_slave.problem)
            assert not slave.tasks.failures
            follow(slave, first)
            await fill(first, 3)
            await caught_up(slave, first)

    asyncio.run(main())


def spoil_offset(broker: Broker, queue_id: int, index: int) -> None:
    """Flip a bit of the log: the message at an offset claims that its queue restarts."""
    log = broker.stores.messages.log
    entry = broker.stores.messages.queue("Orders", queue_id).entry(index)
    assert entry is not None and index.bit_count() == 1
    file = log.file_at(entry[0])
    assert file is not None
    file.write(memoryview(bytes(8)), entry[0] - file.start + AT["queue_offset"])


def test_a_slave_keeps_a_queue_although_a_wrong_bit_of_its_masters_log_claims_a_restart(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with master(tmp_path) as first:
            async with slave_of(tmp_path, first) as slave:
                await fill(first, 4)
                await caught_up(slave, first)
            await fill(first, 60)
            spoil_offset(first, 1, 8)
            spoil_offset(first, 3, 1)
            async with slave_of(tmp_path, first) as slave:
                await caught_up(slave, first)
                assert_equal(slave, first)

    asyncio.run(main())


def test_a_slave_keeps_a_queue_whose_only_message_at_the_master_has_the_wrong_bit(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        settings = {"fileReservedTime": "0", "deleteCommitLogFilesInterval": "0"}
        async with master(tmp_path, **settings) as first, Peer(first.port) as peer:
            store = first.stores.messages
            async with slave_of(tmp_path, first) as slave:
                for _ in range(4):
                    await send(peer, b"a chair")
                while len(store.log.files) < 3:
                    await send(peer, bytes(20_000), queue_id=1)
                await caught_up(slave, first)
            await send(peer, b"a table")
            spoil_offset(first, 0, 4)
            await until(lambda: store.log.flushed == store.log.written)
            await asyncio.sleep(0.01)  # a retention of 0 hours
            assert await store.retention.clean(manual=True)
            assert store.queue("Orders", 0).minimum == 4
            async with slave_of(tmp_path, first) as slave:
                await caught_up(slave, first)
                queue = slave.stores.messages.queue("Orders", 0)
                assert (queue.minimum, queue.readable) == (0, 5)
                assert queue.entry(4) == store.queue("Orders", 0).entry(4)

    asyncio.run(main())


def test_a_master_that_does_not_resolve_a_doubt_is_asked_less_and_less_often(
    tmp_path: Path,
) -> None:
    """It sends its log each time, and nothing of that is stored."""

    async def main() -> None:
        async with master(tmp_path) as first:
            async with slave_of(tmp_path, first) as slave:
                await fill(first, 20)
                await caught_up(slave, first)
            await fill(first, 20)
            spoil_offset(first, 0, 8)

            def view(request: Command, channel: Channel) -> Command:
                record = first.stores.messages.record_at(int(request.fields["offset"]))
                return request.reply(body=bytes(record or b""))

            def refuse(request: Command, channel: Channel) -> Command:
                return request.reply(ResponseCode.NO_PERMISSION, remark="no")

            handlers: dict[int, Handler] = {
                RequestCode.VIEW_MESSAGE_BY_ID: view,
                RequestCode.GET_MIN_OFFSET: refuse,
            }
            async with scripted(handlers) as address, slave_of(tmp_path, first) as slave:
                slave.master_addresses.set(address, ha_address(first))
                replication = slave.replication.slave
                assert replication is not None
                await until(lambda: "does not let this slave read" in replication.problem)
                loop, before = asyncio.get_running_loop(), replication.endings
                began = loop.time()
                await until(lambda: replication.endings >= before + 3)
                # pauses of 1, 2 and 4; the first is over
                assert loop.time() - began > 5 * slave_module.FIRST_PAUSE

    asyncio.run(main())


def test_queues_of_a_connected_slave_restart_with_those_of_its_master(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with pair(tmp_path) as (first, slave):
            await fill(first, 60)
            for seed in range(2, 5):
                await caught_up(slave, first)
                connection = slave.replication.slave.connection  # type: ignore[union-attr]
                async with Peer(first.port) as peer:
                    await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"})
                await fill(first, 40, seed)
                await caught_up(slave, first)
                assert_equal(slave, first)
                assert slave.replication.slave.connection is connection  # type: ignore[union-attr]

    asyncio.run(main())


def test_groups_of_a_promoted_slave_get_the_messages_of_a_recreated_topic(
    tmp_path: Path,
) -> None:
    """Their offsets in the earlier topic counted until the slave had copied the offsets."""

    async def main() -> None:
        async with pair(tmp_path) as (first, slave), Peer(first.port) as peer:
            for number in range(3):
                await send(peer, b"old %d" % number)
            await caught_up(slave, first)
            slave.stores.offsets.commit("G", "Orders", 0, 3)  # as if copied
            await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"})
            for number in range(2):
                await send(peer, b"new %d" % number)
            await caught_up(slave, first)
        async with Broker(settings_of(tmp_path / "slave")) as promoted:
            assert promoted.stores.messages.max_offset("Orders", 0) == 2
            assert promoted.stores.offsets.query("G", "Orders", 0) == 0

    asyncio.run(main())


def test_a_group_past_the_end_of_a_promoted_slave_gets_the_next_messages(tmp_path: Path) -> None:
    """The slave never had the messages by which a group is ahead; clean stops and a kill change
    nothing.
    """

    async def main() -> None:
        port = str(free_port())
        async with pair(tmp_path) as (first, slave):
            await fill(first, 20)
            await caught_up(slave, first)
        same = settings_of(tmp_path / "slave", listenPort=port)
        async with Broker(same) as promoted:
            await fill(promoted, 12)
            assert await moved(promoted.port) == 5
            shutil.copytree(tmp_path / "slave", tmp_path / "killed", ignore=WRITTEN_NOW)
            as_of_a_kill(tmp_path / "killed")
        for root in ("slave", "slave", "killed"):
            async with Broker(settings_of(tmp_path / root, listenPort=port)) as again:
                assert await moved(again.port) == 5
                await fill(again, 4)

    asyncio.run(main())


def test_a_group_past_the_end_of_a_truncated_slave_gets_the_next_messages(tmp_path: Path) -> None:
    """Messages that it stored as a master itself, and that its next master never had; then it is
    master again.
    """

    async def main() -> None:
        port = free_port()
        same = settings_of(tmp_path / "slave", listenPort=str(port))
        async with (
            master(tmp_path) as first,
            slave_of(tmp_path, first, listenPort=str(port)) as slave,
        ):
            await fill(first, 20)
            await caught_up(slave, first)
        async with Broker(same) as promoted:
            await fill(promoted, 4)
            shutil.copytree(tmp_path / "slave", tmp_path / "later", ignore=WRITTEN_NOW)
            await fill(promoted, 12)
        later = settings_of(tmp_path / "later")
        async with Broker(later) as other, slave_of(tmp_path, other, listenPort=str(port)) as slave:
            await caught_up(slave, other)
        async with Broker(same) as promoted:
            await fill(promoted, 8)
            assert await moved(promoted.port) == 6
        async with Broker(same) as again:
            assert await moved(again.port) == 6

    asyncio.run(main())


async def moved(port: int) -> int:
    """The offset that a group gets that asks for one far past the end of a queue."""
    fields = {"consumerGroup": "g", "topic": "Orders", "queueId": "0", "queueOffset": "99"}
    fields |= {"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0"}
    fields |= {"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}
    async with Peer(port) as peer:
        reply = await peer.ask(RequestCode.PULL_MESSAGE, fields)
    assert reply.code == ResponseCode.PULL_OFFSET_MOVED
    return int(reply.fields["nextBeginOffset"])
