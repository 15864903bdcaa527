"""Timed messages: delivered at their time, in order, across stops, unless withdrawn."""

import asyncio
import errno
import os
import shutil
import struct
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.delayed.timer_log import TimerLog
from mq.daemons.broker.delayed.timer_wheel import EMPTY, Slot, TimerWheel
from mq.daemons.service import CannotStart
from mq.protocol.codes import ResponseCode
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey
from tests.daemons.broker.running import broker_on, now, pull, send
from tests.daemons.broker.store.stores import note_fsyncs
from tests.daemons.peer import PATIENCE
from tests.daemons.stopped_time import stopped_time
from tests.waiting import until

WHEEL = "rmq_sys_wheel_timer"
# A copy of a store has the full length of its files, including holes: a gigabyte by default.
SMALL = {
    **{"mappedFileSizeCommitLog": "65536", "mappedFileSizeTimerLog": "4160"},
    **{"maxHashSlotNum": "500", "maxIndexNum": "2000"},
}


def test_a_message_is_delivered_at_its_exact_time(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            with stopped_time() as stopped:
                due = stopped.now + 1300
                properties = {"TIMER_DELIVER_MS": str(due), "UNIQ_KEY": "U", "TAGS": "t"}
                reply = await send(session, broker.address, b"body", properties)
                assert (reply.code, reply.fields["queueId"]) == (0, "1")
                assert broker.stores.messages.max_offset("Later", 1) == 0
            (message,) = await pull(session, broker.address, "Later", 1)
            assert now() >= due
            assert message.store_timestamp >= due
            assert (message.body, message.tags) == (b"body", "t")
            assert message.properties[PropertyKey.TIMER_OUT_MS] == str((due - 1) // 1000 * 1000)

    asyncio.run(script())


@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELAY_SEC"])
def test_a_delay_counts_from_when_the_message_is_stored(tmp_path: Path, name: str) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            began = now()
            value = "1" if name == "TIMER_DELAY_SEC" else "1000"
            await send(session, broker.address, b"x", {name: value})
            (message,) = await pull(session, broker.address, "Later", 1)
            assert message.store_timestamp >= began + 1000

    asyncio.run(script())


def test_messages_are_delivered_in_the_order_of_their_times(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            with stopped_time() as stopped:
                base = stopped.now + 500
                times = [base + (number * 7919) % 1500 for number in range(300)]
                for due in times:
                    properties = {"TIMER_DELIVER_MS": str(due)}
                    await send(session, broker.address, b"%d" % due, properties)
            found = await pull(session, broker.address, "Later", len(times))
            assert [int(message.body) for message in found] == sorted(times)
            early = [m for m in found if m.store_timestamp < int(m.body)]
            assert early == []

    asyncio.run(script())


def test_due_messages_are_delivered_while_clients_send_faster_than_the_timer_reads(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            with stopped_time() as stopped:
                due = {"TIMER_DELIVER_MS": str(stopped.now + 100)}
                await send(session, broker.address, b"due", due)
                timer = broker.delivery.timer.timer
                assert timer is not None
                await until(lambda: timer._offset == 1)
                far_off = {"TIMER_OUT_MS": str(stopped.now + 3_600_000)}

                def put(count: int) -> None:
                    for _ in range(count):
                        broker.delivery.writer.put(StoredMessage(WHEEL, b"-", dict(far_off)))

                put(20_000)
                end = timer._queue.appended
                stopped.advance(200)
                while timer.delivered == 0:
                    put(1024)
                    await asyncio.sleep(0)
                assert timer._offset < end

    asyncio.run(script())


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": "1"},
        {"TIMER_DELIVER_MS": "+1"},
        {"TIMER_DELIVER_MS": "-1"},
        {"TIMER_DELAY_MS": "-5"},
        {"TIMER_DELAY_SEC": "-9223372036854775808"},
        {"TIMER_DELAY_SEC": "-1", "TIMER_DELIVER_MS": "9999999999999"},
    ],
)
def test_a_time_that_has_passed_is_now(tmp_path: Path, properties: dict[str, str]) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, b"x", properties)
            assert broker.stores.messages.max_offset("Later", 1) == 1
            assert broker.delivery.timer.timer is None
            assert not (tmp_path / "timerwheel").exists()

    asyncio.run(script())


def test_a_delay_level_overrides_the_time(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            properties = {"TIMER_DELAY_SEC": "3600", "DELAY": "1"}
            await send(session, broker.address, b"x", properties)
            (message,) = await pull(session, broker.address, "Later", 1)
            assert PropertyKey.TIMER_DELAY_SEC not in message.properties

    asyncio.run(script())


@pytest.mark.parametrize("key", ["U", "Later+U"])
def test_a_withdrawn_message_is_never_delivered(tmp_path: Path, key: str) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            with stopped_time() as stopped:
                due = str((stopped.now // 1000 + 2) * 1000)
                for unique in ("U", "V"):
                    properties = {"TIMER_DELIVER_MS": due, "UNIQ_KEY": unique}
                    await send(session, broker.address, unique.encode(), properties)
                back = {"TIMER_DELIVER_MS": due, "TIMER_DEL_UNIQKEY": key}
                assert (await send(session, broker.address, b"-", back)).code == 0
            (message,) = await pull(session, broker.address, "Later", 1)
            assert message.body == b"V"
            assert broker.stores.messages.max_offset("Later", 1) == 1

    asyncio.run(script())


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"TIMER_DELAY_SEC": "300000"}, "timerMaxDelaySec"),
        ({"TIMER_DELIVER_MS": "soon"}, "not a whole number"),
        ({"TIMER_DELAY_MS": "5.0"}, "not a whole number"),
        ({"TIMER_DELAY_MS": "9223372036854775808"}, "not a whole number"),
        ({"TIMER_DELAY_SEC": "x", "TIMER_DELIVER_MS": "5"}, "not a whole number"),
        ({"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "U"}, "cannot be withdrawn"),
    ],
)
def test_impossible_timer_requests_are_refused(
    tmp_path: Path, properties: dict[str, str], text: str
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            reply = await send(session, broker.address, b"x", properties)
            assert reply.code == ResponseCode.MESSAGE_ILLEGAL
            assert text in (reply.remark or "")

    asyncio.run(script())


async def run_until_saved(broker: Broker) -> None:
    assert broker.delivery.timer.timer is not None
    await broker.delivery.timer.timer.save()


def test_acknowledged_messages_are_delivered_although_a_power_failure_lost_the_timers_files(
    tmp_path: Path,
) -> None:
    """They were created by the first message, and not saved yet; the message is in the log."""

    async def before() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            due = {"TIMER_DELIVER_MS": str(stopped.now + 1000)}
            await send(session, broker.address, b"body", due)

    async def after() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            (message,) = await pull(session, broker.address, "Later", 1)
            assert message.body == b"body"

    with stopped_time() as stopped:
        asyncio.run(before())
    remove_the_files_of_the_timer(tmp_path)
    asyncio.run(after())


def test_acknowledged_messages_are_delivered_although_a_power_failure_lost_the_wheels_name(
    tmp_path: Path,
) -> None:
    """The timer's log still has it, as if it were in the wheel."""
    root, left = tmp_path / "store", tmp_path / "left"

    async def before() -> None:
        async with broker_on(root, **SMALL) as broker, Session("127.0.0.1:1") as session:
            due = {"TIMER_DELIVER_MS": str(stopped.now + 1500)}
            await send(session, broker.address, b"body", due)
            log = next((root / "timerlog").iterdir())
            await until(lambda: bool(log.read_bytes().strip(b"\0")))
            shutil.copytree(root, left, ignore=shutil.ignore_patterns("*.tmp"))

    async def after() -> None:
        async with broker_on(left, **SMALL) as broker, Session("127.0.0.1:1") as session:
            (message,) = await pull(session, broker.address, "Later", 1)
            assert message.body == b"body"

    with stopped_time() as stopped:
        asyncio.run(before())
    (left / "timerwheel").unlink()
    asyncio.run(after())


def flip_a_bit_of_a_time(wheel: Path) -> None:
    data = bytearray(wheel.read_bytes())
    slot = next(at for at in range(0, len(data), 32) if any(data[at : at + 8]))
    data[slot + 4] ^= 1
    wheel.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda wheel: os.truncate(wheel, 1),
        lambda wheel: os.truncate(wheel, 50_000_000),
        flip_a_bit_of_a_time,
    ],
    ids=["short", "long", "flipped"],
)
def test_a_damaged_wheel_is_rebuilt_with_due_messages_and_nothing_twice(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def before() -> None:
        async with broker_on(tmp_path, **SMALL) as broker, Session("127.0.0.1:1") as session:
            first = now() + 300
            await send(session, broker.address, b"gone", {"TIMER_DELIVER_MS": str(first)})
            await pull(session, broker.address, "Later", 1)
            timer = broker.delivery.timer.timer
            assert timer is not None
            await until(lambda: timer._read_time > first)  # the slot has ended
            due = {"TIMER_DELIVER_MS": str(now() + 800)}
            await send(session, broker.address, b"due", due)

    async def after() -> None:
        async with broker_on(tmp_path, **SMALL) as broker, Session("127.0.0.1:1") as session:
            found = await pull(session, broker.address, "Later", 2)
            assert [message.body for message in found] == [b"gone", b"due"]

    asyncio.run(before())
    damage(tmp_path / "timerwheel")
    asyncio.run(after())
    assert "timerwheel from the log: " in caplog.text


def remove_the_files_of_the_timer(root: Path) -> None:
    (root / "timerwheel").unlink()
    (root / "config" / "timercheck").unlink()
    shutil.rmtree(root / "timerlog")


def test_a_failed_fsync_is_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint stays; the next start puts everything after it into the wheel."""
    real = os.fdatasync

    def fail_in_timer_log(descriptor: int) -> None:
        if "timerlog" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    async def before() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            due = {"TIMER_DELIVER_MS": str(stopped.now + 1500)}
            await send(session, broker.address, b"body", due)
            timer = broker.delivery.timer.timer
            assert timer is not None
            await until(lambda: timer._log.end > 0)
            with monkeypatch.context() as patch:
                patch.setattr(files, "fdatasync", fail_in_timer_log)
                with pytest.raises(OSError, match="until the broker is restarted"):
                    await timer.save()
            await timer.save()
            assert timer._checkpoint.log_position == 0

    async def after() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            (message,) = await pull(session, broker.address, "Later", 1)
            assert message.body == b"body"

    with stopped_time() as stopped:
        asyncio.run(before())
    asyncio.run(after())


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_during_a_save_covers_nothing_that_is_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The save is cancelled, and its fsync continues in a thread."""
    began, go_on = threading.Event(), threading.Event()
    real = os.fdatasync

    def hold(descriptor: int) -> None:
        if "timerlog" in os.readlink(f"/proc/self/fd/{descriptor}"):
            began.set()
            assert go_on.wait(PATIENCE)
            if fails:
                raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    async def script() -> None:
        broker = broker_on(tmp_path, timerFlushIntervalMs="3600000")
        async with AsyncExitStack() as stack, Session("127.0.0.1:1") as session:
            await stack.enter_async_context(broker)
            due = str(now() + 60_000)
            await send(session, broker.address, b"body", {"TIMER_DELIVER_MS": due})
            timer = broker.delivery.timer.timer
            assert timer is not None
            await until(lambda: timer._log.end > 0)
            monkeypatch.setattr(files, "fdatasync", hold)
            saving = asyncio.create_task(timer.save())
            assert await asyncio.to_thread(began.wait, PATIENCE)
            saving.cancel()
            stopping = asyncio.create_task(stack.aclose())
            await asyncio.wait({stopping}, timeout=0.5)
            assert timer._checkpoint.log_position == 0
            go_on.set()
            with pytest.raises(OSError, match="are not saved") if fails else nullcontext():
                await stopping
            assert timer._checkpoint.log_position == (0 if fails else 52)

    asyncio.run(script())


def test_truncated_slots_are_on_the_disk_before_the_log_grows_past_their_old_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a second power failure the old slots would point to units of other slots."""

    async def before() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            for number in range(2):
                properties = {"TIMER_DELIVER_MS": str(now() + 60_000)}
                await send(session, broker.address, b"%d" % number, properties)

    async def after() -> None:
        async with broker_on(tmp_path, timerFlushIntervalMs="3600000") as broker:
            timer = broker.delivery.timer.timer
            assert timer is not None
            await until(lambda: bool(wheel_synced))
        assert wheel_synced[0]

    asyncio.run(before())
    lose_the_end_of_the_timer_log(tmp_path)
    synced = note_fsyncs(monkeypatch)
    wheel_synced: list[bool] = []
    real = TimerLog.append

    def append(log: TimerLog, *unit: int) -> int:
        wheel_synced.append(str(tmp_path / "timerwheel") in synced)
        return real(log, *unit)

    monkeypatch.setattr(TimerLog, "append", append)
    asyncio.run(after())


def test_an_offset_past_the_queue_is_corrected_and_saved_before_new_messages(
    tmp_path: Path,
) -> None:
    """Java does not wait for the log before it saves an offset, and a power failure loses the log's
    end.
    """
    check = tmp_path / "config" / "timercheck"

    def queue_offset() -> int:
        return int(struct.unpack(">7q", check.read_bytes()[:56])[2])

    async def before() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            properties = {"TIMER_DELIVER_MS": str(now() + 60_000)}
            await send(session, broker.address, b"body", properties)

    async def after() -> None:
        async with broker_on(tmp_path, timerFlushIntervalMs="3600000"):
            assert queue_offset() == 1

    asyncio.run(before())
    values = struct.unpack(">7q", check.read_bytes()[:56])
    check.write_bytes(struct.pack(">7q", *values[:2], 9, 9, *values[4:]))
    asyncio.run(after())


def test_a_slot_written_by_java_is_truncated_whatever_its_count(tmp_path: Path) -> None:
    """It counts messages that withdraw others as negative, and as none at a recovery
    (TimerMessageStore.doEnqueue, TimerWheel.reviseSlot).
    """
    wheel = TimerWheel(tmp_path / "timerwheel", 1000)
    for number, units in enumerate((-1, 0, 1)):
        wheel.put(1_790_000_000_000 + number * 1000, Slot(52, 104, units))
    times = [1_790_000_000_000 + number * 1000 for number in range(3)]
    assert sorted(wheel.times_after(104)) == times
    assert not wheel.times_after(156)
    wheel.put(times[0], EMPTY)
    assert sorted(wheel.times_after(0)) == times[1:]
    wheel.close()


def lose_the_end_of_the_timer_log(root: Path) -> None:
    """Remove all but the first unit, to which the wheel still points."""
    check = root / "config" / "timercheck"
    values = struct.unpack(">7q", check.read_bytes()[:56])
    check.write_bytes(struct.pack(">7q", values[0], 52, 1, *values[3:]))
    (path,) = (root / "timerlog").iterdir()
    path.write_bytes(path.read_bytes()[:52].ljust(path.stat().st_size, b"\0"))


@pytest.mark.parametrize("lose", ["nothing", "checkpoint", "wheel", "end of the log"])
def test_messages_due_while_the_broker_is_down_are_delivered_after_its_start(
    tmp_path: Path, lose: str
) -> None:

    async def before() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            for number in range(3):
                properties = {"TIMER_DELIVER_MS": str(due + number)}
                await send(session, broker.address, b"%d" % number, properties)

    async def after() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            found = await pull(session, broker.address, "Later", 3)
            assert [message.body for message in found] == [b"0", b"1", b"2"]
            assert min(message.store_timestamp for message in found) >= due

    with stopped_time() as stopped:
        due = stopped.now + 1500
        asyncio.run(before())
    check = tmp_path / "config" / "timercheck"
    if lose == "checkpoint":  # as before the messages arrived
        values = struct.unpack(">7q", check.read_bytes()[:56])
        check.write_bytes(struct.pack(">7q", due - 5000, 0, 0, 0, *values[4:]))
    elif lose == "wheel":
        values = struct.unpack(">7q", check.read_bytes()[:56])
        check.write_bytes(struct.pack(">7q", values[0], 0, *values[2:]))
        (tmp_path / "timerwheel").write_bytes(bytes((tmp_path / "timerwheel").stat().st_size))
    elif lose == "end of the log":
        lose_the_end_of_the_timer_log(tmp_path)
    asyncio.run(after())


def test_a_message_beyond_the_roll_window_is_rolled(tmp_path: Path) -> None:
    async def script() -> None:
        broker = broker_on(tmp_path, timerRollWindowSlot="2")
        async with broker, Session("127.0.0.1:1") as session:
            with stopped_time() as stopped:
                due = stopped.now + 4200
                await send(session, broker.address, b"far", {"TIMER_DELIVER_MS": str(due)})
                timer = broker.delivery.timer.timer
                assert timer is not None
                await until(lambda: timer._log.end > 0)
            (message,) = await pull(session, broker.address, "Later", 1)
            assert message.store_timestamp >= due
            assert int(message.properties[PropertyKey.TIMER_ROLL_TIMES]) >= 1
            assert broker.stores.messages.max_offset(WHEEL, 0) >= 2

    asyncio.run(script())


def test_the_timer_log_continues_in_further_files(tmp_path: Path) -> None:
    async def script() -> None:
        broker = broker_on(tmp_path, mappedFileSizeTimerLog=str(52 * 10))
        async with broker, Session("127.0.0.1:1") as session:
            with stopped_time() as stopped:
                due = str(stopped.now + 1500)
                for number in range(35):
                    await send(session, broker.address, b"%d" % number, {"TIMER_DELIVER_MS": due})
            found = await pull(session, broker.address, "Later", 35)
            assert [int(message.body) for message in found] == list(range(35))
        assert len(list((tmp_path / "timerlog").iterdir())) == 4

    asyncio.run(script())


def test_a_partial_write_of_a_slot_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = TimerWheel(tmp_path / "timerwheel", 1000)
    monkeypatch.setattr(
        files, "pwrite", lambda descriptor, data, at: os.pwrite(descriptor, data[:10], at)
    )
    wheel.put(1_790_000_000_000, Slot(52, 104, 2))
    assert wheel.slot(1_790_000_000_000) == Slot(52, 104, 2)
    wheel.close()


def test_without_the_timers_files_all_its_messages_are_delivered_again(tmp_path: Path) -> None:
    """As the refusal of another precision says: nothing else shows which were delivered."""

    async def before() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            with stopped_time() as stopped:
                due = {"TIMER_DELIVER_MS": str(stopped.now + 500)}
                await send(session, broker.address, b"body", due)
            assert len(await pull(session, broker.address, "Later", 1)) == 1

    async def after() -> None:
        broker = broker_on(tmp_path, timerPrecisionMs="500")
        async with broker, Session("127.0.0.1:1") as session:
            found = await pull(session, broker.address, "Later", 2)
            assert [message.body for message in found] == [b"body", b"body"]

    asyncio.run(before())
    remove_the_files_of_the_timer(tmp_path)
    asyncio.run(after())


@pytest.mark.parametrize("other", [100, 500, 2000])
def test_a_wheel_of_another_precision_is_refused_with_a_remedy(tmp_path: Path, other: int) -> None:
    now = 1_790_000_000_000
    wheel = TimerWheel(tmp_path / "timerwheel", 1000)
    wheel.check_precision(now)  # nothing in it yet
    wheel.put(now + 60_000, Slot(0, 0, 1))
    wheel.check_precision(now)
    wheel.close()
    wheel = TimerWheel(tmp_path / "timerwheel", other)
    with pytest.raises(CannotStart, match=f"timerPrecisionMs={other}.*were delivered before"):
        wheel.check_precision(now)
    wheel.close()
