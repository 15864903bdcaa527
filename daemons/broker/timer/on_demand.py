"""Timer on demand: it starts with the first message for it; most brokers never need its files."""

from mq.daemons.broker.aside import SetAside
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.periodic import save_again_and_again
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.timer.service import Timer
from mq.daemons.broker.writer import MessageWriter
from mq.daemons.supervision import Tasks


class TimerOnDemand:
    """``timer`` is None until it is started."""

    def __init__(
        self, settings: BrokerSettings, store: MessageStore, aside: SetAside, tasks: Tasks
    ) -> None:
        self._settings = settings
        self._store = store
        self._aside = aside
        self._tasks = tasks
        self.timer: Timer | None = None

    def start(self, writer: MessageWriter) -> None:
        """Start it, unless it runs already."""
        if self.timer is not None:
            return
        timer = self.timer = Timer(self._settings, self._store, writer, self._aside)
        for work, name in timer.works():
            self._tasks.spawn(work, name)
        pause = self._settings.store.timer_flush_interval_ms / 1000
        self._tasks.spawn(
            lambda: save_again_and_again(timer.save, lambda: pause, "timer"), "timer: save"
        )

    async def close(self) -> None:
        """Close its files, if it was ever started."""
        if self.timer is not None:
            await self.timer.close()
