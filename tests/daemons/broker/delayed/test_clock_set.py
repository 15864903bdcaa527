"""Timed messages are delivered by the current clock, also after it was ahead or behind."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from tests.daemons.broker.delayed.timed import SMALL, bodies, send_due, timer_of
from tests.daemons.broker.killed import copy_as_killed
from tests.daemons.broker.running import broker_on, pull, send
from tests.daemons.set_clock import DAY, SetClock, set_clock
from tests.waiting import until


async def read_to(broker: Broker, moment: int) -> None:
    """Wait until the timer has read up to a time."""
    await until(lambda: timer_of(broker)._read_time >= moment)


def run(root: Path, script: Callable[[Broker, Session, SetClock], object]) -> None:
    async def main() -> None:
        with set_clock() as given:
            async with broker_on(root, **SMALL) as broker, Session("127.0.0.1:1") as session:
                await script(broker, session, given)  # type: ignore[misc]

    asyncio.run(main())


async def _go_ahead(broker: Broker, session: Session, given: SetClock) -> None:
    """Set the clock a day ahead until the timer has reached that time, then correct it."""
    await send_due(session, broker, b"first", given.now + 100)
    assert await bodies(session, broker, 1) == [b"first"]
    await send_due(session, broker, b"early", given.now + DAY // 2)
    given.ahead = DAY
    assert await bodies(session, broker, 2) == [b"first", b"early"]
    await read_to(broker, given.now - 2000)


def test_a_message_is_delivered_in_time_after_a_clock_was_ahead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(broker: Broker, session: Session, given: SetClock) -> None:
        await _go_ahead(broker, session, given)
        given.ahead = 0
        due = given.now + 1200
        await send_due(session, broker, b"new", due)
        found = await pull(session, broker.address, "Later", 3)
        assert [message.body for message in found] == [b"first", b"early", b"new"]
        assert found[2].store_timestamp >= due
        assert timer_of(broker).clock_corrections == 1

    run(tmp_path, script)
    assert "the clock was set back; setting the timer back by 86" in caplog.text


def test_a_message_that_is_due_later_than_the_wrong_time_is_kept(tmp_path: Path) -> None:
    async def script(broker: Broker, session: Session, given: SetClock) -> None:
        await _go_ahead(broker, session, given)
        given.ahead = 0
        await send_due(session, broker, b"late", given.now + DAY + DAY // 2)
        await send_due(session, broker, b"new", given.now + 300)
        assert await bodies(session, broker, 3) == [b"first", b"early", b"new"]
        given.ahead = 2 * DAY
        assert (await bodies(session, broker, 4))[3:] == [b"late"]

    run(tmp_path, script)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_start_after_the_correction_delivers_in_time(tmp_path: Path, is_killed: bool) -> None:
    root = tmp_path / "store"

    async def main() -> None:
        with set_clock() as given:
            async with broker_on(root, **SMALL) as broker, Session("127.0.0.1:1") as session:
                await _go_ahead(broker, session, given)
                await timer_of(broker).save()
                if is_killed:
                    given.ahead = 0
                    await until(lambda: timer_of(broker).clock_corrections > 0)
                    await send_due(session, broker, b"new", given.now + 3000)
                    timer = timer_of(broker)
                    await until(lambda: timer._offset == timer._queue.readable)
                    copy_as_killed(root, tmp_path / "killed")
            given.ahead = 0
            store = tmp_path / "killed" if is_killed else root
            async with broker_on(store, **SMALL) as broker, Session("127.0.0.1:1") as session:
                if not is_killed:
                    await send_due(session, broker, b"new", given.now + 300)
                assert await bodies(session, broker, 3) == [b"first", b"early", b"new"]

    asyncio.run(main())


def test_a_delay_that_started_by_a_clock_far_ahead_restarts(tmp_path: Path) -> None:
    """The wheel has two weeks: a slot further away would be overwritten."""

    async def script(broker: Broker, session: Session, given: SetClock) -> None:
        given.ahead = 40 * DAY
        reply = await send(session, broker.address, b"waits", {"TIMER_DELAY_MS": "1500"})
        assert reply.code == 0
        given.ahead = 0
        assert await bodies(session, broker, 1) == [b"waits"]

    run(tmp_path, script)


def test_messages_due_weeks_ago_are_delivered_at_a_start(tmp_path: Path) -> None:
    async def main() -> None:
        with set_clock() as given:
            async with broker_on(tmp_path, **SMALL) as broker, Session("127.0.0.1:1") as session:
                await send_due(session, broker, b"first", given.now + DAY // 4)
                await send_due(session, broker, b"second", given.now + 3 * DAY)
                timer = timer_of(broker)
                await until(lambda: timer._offset == 2)
            given.ahead = 30 * DAY
            async with broker_on(tmp_path, **SMALL) as broker, Session("127.0.0.1:1") as session:
                assert await bodies(session, broker, 2) == [b"first", b"second"]

    asyncio.run(main())


def test_after_a_jump_of_weeks_waiting_messages_are_delivered_and_later_ones_in_time(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, session: Session, given: SetClock) -> None:
        await send_due(session, broker, b"first", given.now + DAY // 4)
        given.ahead = 30 * DAY
        await send_due(session, broker, b"second", given.now + 800)
        assert await bodies(session, broker, 2) == [b"first", b"second"]

    run(tmp_path, script)


def test_the_queue_is_read_again_after_the_clock_was_back_for_a_moment(tmp_path: Path) -> None:
    async def script(broker: Broker, session: Session, given: SetClock) -> None:
        due = given.now + 300
        await send_due(session, broker, b"first", due)
        assert await bodies(session, broker, 1) == [b"first"]
        await read_to(broker, due)
        timer = timer_of(broker)
        given.ahead += timer._read_time - given.now - 950
        timer._changed.set()  # so that the delivery task waits for the clock
        for _ in range(5):
            await asyncio.sleep(0)
        given.ahead -= 300
        await send_due(session, broker, b"second", given.now + 1500)
        given.ahead += 400
        assert await bodies(session, broker, 2) == [b"first", b"second"]
        assert timer.clock_corrections == 0

    run(tmp_path, script)


def test_a_message_put_after_the_correction_survives_a_kill(tmp_path: Path) -> None:
    """The next start is later than the last save, which was by the wrong clock."""

    async def main() -> None:
        with set_clock() as given:
            root = tmp_path / "store"
            async with broker_on(root, **SMALL) as broker, Session("127.0.0.1:1") as session:
                await send_due(session, broker, b"first", given.now + 500)
                assert await bodies(session, broker, 1) == [b"first"]
                given.ahead = 5000
                timer = timer_of(broker)
                await read_to(broker, given.now - 1500)
                await timer.save()
                given.ahead = 0
                await until(lambda: timer.clock_corrections > 0)
                await send_due(session, broker, b"second", given.now + 1500)
                await until(lambda: timer._offset == timer._queue.readable)
                copy_as_killed(root, tmp_path / "killed")
            given.ahead = 10_000
            async with (
                broker_on(tmp_path / "killed", **SMALL) as broker,
                Session("127.0.0.1:1") as session,
            ):
                assert await bodies(session, broker, 2) == [b"first", b"second"]

    asyncio.run(main())
