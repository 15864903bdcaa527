"""Timer on demand: starts the timer with its first message; most brokers never need its files."""

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delayed.timer import Timer
from mq.daemons.broker.delivery.quarantine import Quarantine
from mq.daemons.broker.delivery.writer import MessageWriter
from mq.daemons.broker.periodic import save_periodically
from mq.daemons.broker.store import MessageStore
from mq.daemons.supervision import Tasks, Work


class TimerOnDemand:
    """Creates, starts and closes the timer. ``timer`` is None until it is started."""

    def __init__(
        self, settings: BrokerSettings, store: MessageStore, aside: Quarantine, tasks: Tasks
    ) -> None:
        self._settings = settings
        self._store = store
        self._aside = aside
        self._tasks = tasks
        self.timer: Timer | None = None

    def start(self, writer: MessageWriter) -> None:
        """Start the timer, unless it is running."""
        if self.timer is not None:
            return
        for work, name in self.open(writer):
            self._tasks.spawn(work, name)

    def open(self, writer: MessageWriter) -> list[tuple[Work, str]]:
        """Create the timer; returns its tasks with their names. Raises OSError."""
        timer = self.timer = Timer(self._settings, self._store, writer, self._aside)
        pause = self._settings.store.timer_flush_interval_ms / 1000

        async def save() -> None:
            await save_periodically(timer.save, lambda: pause, "timer")

        return [*timer.works(), (save, "timer: save")]

    async def end(self) -> None:
        """Save and close the timer after all its tasks have ended; it may be opened again. Raises
        OSError.
        """
        timer, self.timer = self.timer, None
        if timer is not None:
            await timer.close()

    async def close(self) -> None:
        """Close the files of the timer, if it was started."""
        if self.timer is not None:
            await self.timer.close()
