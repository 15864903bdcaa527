"""A slave that becomes master: messages that its master's timer had delivered are not delivered
again.
"""

import asyncio
import time
from pathlib import Path

import pytest

from mq.client.machine import clock
from mq.daemons.broker.app import Broker
from mq.daemons.broker.delayed.timer_checkpoint import padded, read_values
from mq.daemons.broker.delayed.timer_inheritance import LATE_ENQUEUE_MS, Inheritance, TimerCopy
from mq.daemons.broker.replication.metadata import SlaveSynchronize
from tests.daemons.broker.replication.pair import caught_up, master, send, settings_of, slave_of
from tests.daemons.peer import Peer
from tests.waiting import until

HOUR = 3_600_000
NOW = 1_800_000_000_000
INHERITED = Inheritance(read_time=NOW, queue_offset=10, longest_wait=48 * HOUR)


@pytest.mark.parametrize(
    ("queue_offset", "stored", "due", "delivered"),
    [
        (9, NOW - HOUR, NOW - 1, True),
        (9, NOW - HOUR, NOW, False),  # its slot was not done
        (10, NOW - HOUR, NOW - 1, False),  # it was not in the wheel yet
        (9, NOW - 49 * HOUR, NOW + HOUR, True),  # it has rolled: another one waits in its place
        (9, NOW - 48 * HOUR - LATE_ENQUEUE_MS, NOW + HOUR, False),  # it may not have, yet
        (9, NOW - 47 * HOUR, NOW + 2 * HOUR, False),
    ],
)
def test_deliveries_of_a_previous_master_are_recognized(
    queue_offset: int, stored: int, due: int, delivered: bool
) -> None:
    assert INHERITED.has_delivered(queue_offset, stored, due) is delivered


def checkpoint(read_time: int) -> bytes:
    numbers = (read_time, 0, 5, 5, 0, 1, 1)
    return b"".join(number.to_bytes(8, "big", signed=True) for number in numbers)


def test_a_copy_removes_the_wheel_of_a_former_master(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "timerwheel").write_bytes(b"old")
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerlog" / "0").write_bytes(b"old")
    asyncio.run(TimerCopy(tmp_path).take(checkpoint(1000)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config"]
    written = (tmp_path / "config" / "timercheck").read_bytes()
    assert written == padded(checkpoint(1000))
    values = read_values(written)
    assert values is not None and values[0] == 1000


@pytest.mark.parametrize("content", [b"", b"short", checkpoint(1 << 60), checkpoint(-1)])
def test_an_invalid_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match="timer"):
        asyncio.run(TimerCopy(tmp_path).take(content))
    assert not list(tmp_path.iterdir())


def test_timed_messages_are_delivered_once_after_a_slave_became_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"timerFlushIntervalMs": "50", "timerPrecisionMs": "100"}
    soon, later = (clock.milliseconds() + hours * HOUR for hours in (1, 2))

    def set_clocks_ahead(hours: int) -> None:
        """However slow the machine is: messages due in an hour are not delivered before."""
        ahead = hours * HOUR * 1_000_000
        monkeypatch.setattr(clock, "time_ns", lambda: time.time_ns() + ahead)

    async def main() -> None:
        async with master(tmp_path, **settings) as first:
            slave = slave_of(tmp_path, first, **settings)
            async with slave, Peer(first.port) as peer:
                copies = slave.metadata.synchronize
                assert isinstance(copies, SlaveSynchronize)
                # Its own first round is over: that round's report may wait for the log, and
                # meanwhile nothing else is requested.
                await until(lambda: copies.age() >= 0)
                for body, at in ((b"soon", soon), (b"later", later)):
                    reply = await send(peer, body, properties=f"TIMER_DELIVER_MS\x01{at}")
                    assert reply.code == 0
                set_clocks_ahead(1)
                queue = first.stores.messages.queue("Orders", 0)
                await until(lambda: queue.readable == 1)
                timer = first.delivery.timer.timer
                assert timer is not None
                await until(lambda: timer._checkpoint.read_time >= soon)
                await caught_up(slave, first)
                await copies.round(first.address)
                copied = read_values((tmp_path / "slave" / "config" / "timercheck").read_bytes())
                assert copied is not None and copied[0] >= soon
        async with Broker(settings_of(tmp_path / "slave", **settings)) as promoted:
            promoted_timer = promoted.delivery.timer.timer
            assert promoted_timer is not None
            queue = promoted.stores.messages.queue("Orders", 0)
            assert queue.readable == 1
            set_clocks_ahead(2)
            await until(lambda: promoted_timer._read_time > later)
            assert queue.readable == 2

    asyncio.run(main())
