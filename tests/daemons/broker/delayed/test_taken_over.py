"""A broker that continues another broker's timer, and is killed."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.delayed.timer import Timer
from mq.daemons.broker.delayed.timer_checkpoint import FILE_NAME
from mq.daemons.broker.delayed.timer_inheritance import TimerCopy
from tests.daemons.broker.failover.acting.sets import have, send
from tests.daemons.broker.replication.pair import settings_of
from tests.daemons.stopped_time import StoppedClock, stopped_time
from tests.waiting import until


@pytest.mark.parametrize("kills", [1, 2])
@pytest.mark.parametrize("count", [1, 2])
def test_the_other_brokers_deliveries_are_not_repeated_after_a_kill_before_the_first_save(
    count: int, kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(timer: Timer) -> None:
        """Nothing is saved any more."""

    async def script() -> None:
        async with Broker(settings_of(tmp_path)) as broker:
            await send(broker, b"timed", TIMER_DELIVER_MS=str(stopped.now + 1500))
            if count > 1:
                await send(broker, b"later", TIMER_DELIVER_MS=str(stopped.now + 9000))
            stopped.advance(3000)
            await have(broker, 1)
            await until(lambda: broker.delivery.timer.timer._last_slot > 0)  # type: ignore[union-attr]
            await broker.delivery.timer.timer.save()  # type: ignore[union-attr]
        content = (tmp_path / "config" / FILE_NAME).read_bytes()
        await TimerCopy(tmp_path).take(content)
        with monkeypatch.context() as patch:
            patch.setattr(Timer, "save", killed)
            for _ in range(kills):
                async with Broker(settings_of(tmp_path)) as broker:
                    await reads(broker, count, stopped)
        async with Broker(settings_of(tmp_path)) as broker:
            await reads(broker, count, stopped)
            stopped.advance(8000)
            found = await have(broker, count)
            assert found == [b"later", b"timed"][-count:]

    with stopped_time() as stopped:
        asyncio.run(script())


async def reads(broker: Broker, count: int, time: StoppedClock) -> None:
    """Wait until the timer has read its queue, and has handled the messages due by then."""
    timer = broker.delivery.timer.timer
    assert timer is not None
    await until(lambda: timer._offset == count)
    await until(lambda: timer._read_time + 1000 > time.now)
