"""A stop cancels a save, whose thread continues, and saves later changes."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.delayed.delay_levels import decode_delay_offsets
from mq.daemons.broker.delayed.timer import Timer
from mq.daemons.broker.delayed.timer_checkpoint import TimerCheckpoint
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.state_file import read_with_backup
from tests.daemons.broker.running import broker_on, send


class LateThread:
    """Starts the first job of a thread when the second is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._calls = 0
        self._begun = asyncio.Event()
        self._done = threading.Event()
        self._real = asyncio.to_thread
        monkeypatch.setattr(asyncio, "to_thread", self._to_thread)

    async def _to_thread(self, work: Callable[..., Any], *given: Any) -> Any:
        self._calls += 1
        number = self._calls

        def run() -> Any:
            if number == 1:
                self._done.wait(5)
            try:
                return work(*given)
            finally:
                if number == 2:
                    self._done.set()

        self._begun.set()
        return await self._real(run)

    async def cancel(self, save: Callable[[], Awaitable[None]]) -> None:
        """Begin a save, and cancel it once its thread runs."""
        saving = asyncio.ensure_future(save())
        await self._begun.wait()
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)


def test_a_late_save_does_not_restore_old_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "consumerOffset.json"

    async def script() -> None:
        offsets = ConsumerOffsets(path)
        offsets.commit("g", "t", 0, 1)
        await LateThread(monkeypatch).cancel(offsets.save)
        offsets.commit("g", "t", 0, 2)
        await offsets.save()

    asyncio.run(script())  # it ends when its threads have
    assert ConsumerOffsets(path).query("g", "t", 0) == 2


def test_a_late_save_does_not_restore_old_delay_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivered messages would be delivered again."""

    async def script() -> None:
        async with broker_on(tmp_path) as broker:
            delayed = broker.services.delivery.delayed
            delayed.offsets[3] = 1
            with monkeypatch.context() as late:
                await LateThread(late).cancel(delayed.save)
                delayed.offsets[3] = 2
                await delayed.save()

    asyncio.run(script())
    assert read_with_backup(tmp_path / "config" / "delayOffset.json", decode_delay_offsets) == {
        3: 2
    }


async def _has_read(timer: Timer, offset: int) -> None:
    async with asyncio.timeout(30):
        while timer._offset < offset:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_late_save_does_not_set_the_timer_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, b"one", {"TIMER_DELAY_MS": "60000"})
            timer = broker.services.delivery.timer.timer
            assert timer is not None
            await _has_read(timer, 1)
            with monkeypatch.context() as late:
                await LateThread(late).cancel(timer.save)
                await send(session, broker.address, b"two", {"TIMER_DELAY_MS": "60000"})
                await _has_read(timer, 2)
                await timer.save()

    asyncio.run(script())
    assert TimerCheckpoint(tmp_path / "config" / "timercheck").queue_offset == 2
