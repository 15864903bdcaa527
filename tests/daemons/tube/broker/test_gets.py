"""Gets: start, result, offsets, and refusals."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from mq.client.machine import files
from mq.daemons.tube.broker.app import Broker
from mq.daemons.tube.broker.store.layout import HEAD_SIZE
from mq.protocol.tube.flow_control import FlowControl
from tests.daemons.tube.broker.harness import Client, bodies, run

ALL_DAY = (
    '[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":21,"limitInM":0,"freqInMs":700}]}]'
)


async def fill(client: Client, count: int = 3, **changes: Any) -> None:
    for number in range(count):
        assert (await client.send(b"m%d" % number, **changes)).success


def test_a_partition_has_its_messages_and_no_others(tmp_path: Path) -> None:
    async def check(_: Broker, client: Client) -> None:
        await fill(client, partitionId=0)
        await client.send(b"other", partitionId=1)
        await client.send(b"store", partitionId=10_000)
        assert (await client.register(partitionId=0)).currOffset == 0
        answer = await client.get()
        assert bodies(answer) == [b"m0", b"m1", b"m2"]
        assert (answer.success, answer.errCode, answer.errMsg) == (True, 200, "OK!")
        assert (answer.currOffset, answer.maxOffset, answer.currDataDlt) == (0, 112, 0)
        assert (answer.escFlowCtrl, answer.requireSlow) == (False, False)

    run(tmp_path, check)


def test_the_end_is_not_found_and_what_was_read_is_committed_by_the_next_get(
    tmp_path: Path,
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        await client.register()
        await client.get()
        assert broker.serving.offsets.committed("group", ("demo", 0)) == 0
        answer = await client.get()
        assert (answer.success, answer.errCode) == (False, 404)
        assert (answer.currOffset, answer.currDataDlt) == (-1, -1)
        assert broker.serving.offsets.committed("group", ("demo", 0)) == 84

    run(tmp_path, check)


def test_what_was_not_consumed_is_read_again(tmp_path: Path) -> None:
    async def check(_: Broker, client: Client) -> None:
        await fill(client)
        await client.register()
        first = await client.get()
        assert bodies(await client.get(lastPackConsumed=False)) == bodies(first)

    run(tmp_path, check)


def test_with_manual_commits_gets_go_on_behind_what_is_pending(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client, 1)
        await client.register()
        assert bodies(await client.get(manualCommitOffset=True)) == [b"m0"]
        await client.send(b"next")
        assert bodies(await client.get(manualCommitOffset=True)) == [b"next"]
        assert broker.serving.offsets.committed("group", ("demo", 0)) == 0
        assert (await client.commit()).currOffset == 56

    run(tmp_path, check)


def test_an_answer_has_the_message_that_reaches_the_size_and_no_more(tmp_path: Path) -> None:
    async def check(_: Broker, client: Client) -> None:
        for letter in b"abc":
            await client.send(bytes([letter]) * 1000)
        await client.register()
        first = await client.get()
        assert [body[:1] for body in bodies(first)] == [b"a", b"b", b"c"]
        await client.register(currOffset=0)
        second = await client.get()  # its lag is not known yet: 327,680 bytes
        assert len(second.messages) == 3

    run(tmp_path, check, transferSize=1500)


def test_the_size_of_an_answer_holds_once_the_lag_is_known(tmp_path: Path) -> None:
    async def check(_: Broker, client: Client) -> None:
        await client.send(b"first")
        await client.register()
        await client.get()
        for letter in b"abc":
            await client.send(bytes([letter]) * 1000)
        answer = await client.get()
        assert [body[:1] for body in bodies(answer)] == [b"a", b"b"]
        assert answer.currDataDlt == 1000 + HEAD_SIZE

    run(tmp_path, check, transferSize=1500)


def test_filters_find_messages_by_their_key_code(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await client.send(b"a", msgType="abc")
        await client.send(b"b", msgType="polygenelubricants")  # its hash is negative
        await client.send(b"c")
        await client.register(filterCondStr=["polygenelubricants"])
        answer = await client.get()
        assert bodies(answer) == [b"b"]
        assert answer.requireSlow is True
        assert (await client.get()).errCode == 404
        assert broker.serving.offsets.committed("group", ("demo", 0)) == 84

    run(tmp_path, check)


def test_where_nothing_matches_the_answer_is_empty_and_committed(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client, msgType="abc")
        await client.register(filterCondStr=["xyz"])
        answer = await client.get()
        assert (answer.success, answer.errCode, bodies(answer)) == (True, 200, [])
        assert broker.serving.offsets.committed("group", ("demo", 0)) == 84

    run(tmp_path, check)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"clientId": ""}, 400),
        ({"groupName": "9"}, 400),
        ({"topicName": "other"}, 403),
        ({"groupName": "stranger"}, 411),
        ({"partitionId": 1}, 411),
        ({"clientId": "another_client"}, 412),
    ],
)
def test_who_has_not_the_partition_is_refused(
    tmp_path: Path, changes: dict[str, Any], code: int
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await client.register()
        answer = await client.get(**changes)
        assert (answer.success, answer.errCode, answer.currOffset) == (False, code, -1)
        assert broker.gets.refused == {code: 1}

    run(tmp_path, check)


def test_gets_that_the_master_has_stopped_are_refused(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await client.register()
        broker.serving.reads.set_by_master(True)
        assert (await client.get()).errCode == 503

    run(tmp_path, check)


def test_a_rule_limits_who_is_behind_and_lets_go_who_has_rules_of_its_own(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        broker.serving.rules = FlowControl.parse(ALL_DAY)
        await fill(client, 5)
        await client.register()
        assert len((await client.get()).messages) == 5  # its lag was not known
        await fill(client, 5)
        limited = await client.get()
        assert (limited.errCode, limited.minLimitTime) == (452, 700)
        assert (await client.get(escFlowCtrl=True)).success

    run(tmp_path, check)


def test_an_offset_behind_the_end_is_lowered_to_it(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        await client.register()
        offsets = broker.serving.offsets
        await offsets.replace([("group", ("demo", 0), 2800)])
        assert (await client.get()).errCode == 404
        assert offsets.committed("group", ("demo", 0)) == 84

    run(tmp_path, check)


def test_a_disk_that_is_waited_for_does_not_hold_up_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        await client.register()
        await client.register(groupName="other")

        def not_in_memory(*_: object) -> int:
            raise BlockingIOError(errno.EAGAIN, "not in memory")

        monkeypatch.setattr(files, "preadv", not_in_memory)
        first, second, third = await asyncio.gather(
            client.get(), client.get(groupName="other"), client.get()
        )
        assert bodies(first) == bodies(second) == [b"m0", b"m1", b"m2"]
        assert third.errCode == 404  # one get of a partition at a time
        assert broker.gets.from_disk == 2
        store = broker.serving.stores.get("demo", 0)
        assert store is not None and not store.data.segments[0].readers

    run(tmp_path, check)


def test_errors_of_the_disk_are_told_and_stop_gets_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        await client.register()

        def broken(*_: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(files, "preadv", broken)
            codes = [(await client.get()).errCode for _ in range(5)]
        assert codes == [500, 500, 500, 500, 503]
        assert broker.serving.reads.report == -1

    run(tmp_path, check)


def test_a_damaged_record_is_left_out_and_those_beside_it_are_not(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        path = next((tmp_path / "store" / "demo-0").glob("*.tube"))
        content = bytearray(path.read_bytes())
        content[54 + 5] ^= 1  # the token of the second record
        path.write_bytes(content)
        await client.register()
        assert bodies(await client.get()) == [b"m0", b"m2"]
        assert broker.gets.bad_records == 1

    run(tmp_path, check)


def test_a_record_of_the_index_that_points_nowhere_keeps_nobody_from_the_next(
    tmp_path: Path,
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        path = next((tmp_path / "store" / "demo-0" / "index").glob("*.index"))
        content = bytearray(path.read_bytes())
        content[28 + 6] ^= 0x40  # where the data of the second record is
        path.write_bytes(content)
        await client.register()
        assert bodies(await client.get()) == [b"m0", b"m2"]
        assert broker.gets.bad_records == 1

    run(tmp_path, check)


def test_no_message_comes_in_a_partition_that_is_not_its_own(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        path = next((tmp_path / "store" / "demo-0" / "index").glob("*.index"))
        content = bytearray(path.read_bytes())
        content[28 + 3] ^= 1  # the partition of the second record
        path.write_bytes(content)
        await client.register(partitionId=1)
        assert bodies(await client.get(partitionId=1)) == []
        assert broker.gets.bad_records == 1

    run(tmp_path, check)


def test_what_was_said_not_to_be_consumed_is_not_committed_by_a_later_get(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        broker.serving.rules = FlowControl.parse(ALL_DAY)
        await fill(client, 5)
        await client.register()
        assert len((await client.get()).messages) == 5  # its lag was not known
        await fill(client, 5)
        assert (await client.get(lastPackConsumed=False)).errCode == 452
        answer = await client.get(lastPackConsumed=True, escFlowCtrl=True)
        # without a report of consumption
        assert (bodies(answer), answer.currOffset) == ([b"m0"], 0)

    run(tmp_path, check)


def test_a_topic_that_is_removed_amid_reads_is_no_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await fill(client)
        groups = [f"group{number}" for number in range(12)]
        for group in groups:
            await client.register(groupName=group)

        def not_in_memory(*_: object) -> int:
            raise BlockingIOError(errno.EAGAIN, "not in memory")

        monkeypatch.setattr(files, "preadv", not_in_memory)
        # the maximum of readers are about to
        async with broker.gets._threads, broker.gets._threads:
            for _ in range(6):
                await broker.gets._threads.acquire()
            asking = [asyncio.ensure_future(client.get(groupName=group)) for group in groups]
            await client.heartbeat()  # they have been read
            await broker._remove_topic(broker.serving.topics["demo"])
            for _ in range(6):
                broker.gets._threads.release()
        assert {answer.errCode for answer in await asyncio.gather(*asking)} <= {403, 411}
        assert broker.serving.reads.report == 0

    run(tmp_path, check)


def test_with_sync_nothing_is_given_out_that_is_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    real, may_go = files.fdatasync, threading.Event()

    async def check(_: Broker, client: Client) -> None:
        await client.register()

        def slow(descriptor: int) -> None:
            may_go.wait(30)
            real(descriptor)

        monkeypatch.setattr(files, "fdatasync", slow)
        sending = asyncio.ensure_future(client.send(b"x"))
        await client.heartbeat()  # it has been read
        assert (await client.get()).errCode == 404
        assert not sending.done()
        may_go.set()
        assert (await sending).success
        assert bodies(await client.get()) == [b"x"]

    run(tmp_path, check, flushMode="sync")


def test_with_memory_a_get_at_the_end_has_the_cache_written(tmp_path: Path) -> None:
    async def check(_: Broker, client: Client) -> None:
        await client.register()
        await fill(client)
        assert bodies(await client.get()) == [b"m0", b"m1", b"m2"]

    run(tmp_path, check, flushMode="memory")


def test_gets_go_on_from_file_to_file(tmp_path: Path) -> None:
    async def check(_: Broker, client: Client) -> None:
        await fill(client, 40)
        await client.register()
        found: list[bytes] = []
        while (answer := await client.get()).success:
            found += bodies(answer)
        assert found == [b"m%d" % number for number in range(40)]

    run(tmp_path, check, maxSegmentSize=1024, maxIndexSegmentSize=28 * 7)
