"""A name server and a broker in one process: for first steps, tests and development."""

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Protocol

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


class CompanionDaemon(Protocol):
    """An additional daemon."""

    def ready_text(self) -> str: ...

    def reload(self) -> None: ...

    def state(self) -> Iterator[str]: ...


MakeCompanion = Callable[["Standalone"], AbstractAsyncContextManager[CompanionDaemon]]


class Standalone(Lifecycle):
    """Both daemons on loopback: `async with Standalone() as pair`.

    ``store`` is the folder for all files; None uses a temporary one that is deleted at the end.
    Port 0 means any free port. ``properties`` are settings of the broker by name; those of TLS
    apply to both. ``companion`` makes another daemon, which is started after them.
    """

    def __init__(
        self,
        store: Path | None = None,
        *,
        name_server_port: int = 9876,
        broker_port: int = 10911,
        properties: Mapping[str, str] | None = None,
        companion: "MakeCompanion | None" = None,
    ) -> None:
        self.companion: CompanionDaemon | None = None
        self._companion = companion
        self.name_server: NameServer
        self.broker: Broker
        self._store = store
        self._ports = (name_server_port, broker_port)
        self._properties = dict(properties or {})

    async def _start(self, parts: AsyncExitStack) -> None:
        folder = self._store
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="mq-standalone-")
            folder = Path(parts.enter_context(temporary))
        self.folder = folder
        self.name_server = await parts.enter_async_context(
            NameServer(self._name_server_settings(folder))
        )
        self.broker = await parts.enter_async_context(Broker(self._broker_settings(folder)))
        if self._companion is not None:
            self.companion = await parts.enter_async_context(self._companion(self))

    @property
    def name_server_address(self) -> str:
        """host:port of the name server: all that a client needs."""
        return self.name_server.address

    def ready_text(self) -> str:
        """The line that reports that both are ready, and how to use them."""
        kept = "" if self._store else " (temporary, deleted at the end)"
        return (
            f"standalone: name server {self.name_server_address}, broker {self.broker.address}, "
            f"store {self.folder}{kept}. Talk to it: mq topicList -n {self.name_server_address}"
            + (f"; {self.companion.ready_text()}" if self.companion else "")
        )

    def status_text(self) -> str:
        return self.ready_text()

    def reload(self) -> None:
        self.name_server.reload()
        self.broker.reload()
        if self.companion is not None:
            self.companion.reload()

    def state(self) -> Iterator[str]:
        yield from self.name_server.state()
        yield from self.broker.state()
        if self.companion is not None:
            yield from self.companion.state()

    def _name_server_settings(self, folder: Path) -> NamesrvSettings:
        return NamesrvSettings.load(
            None,
            {
                "listenPort": str(self._ports[0]),
                "bindAddress": LOOPBACK,
                "kvConfigPath": str(folder / "kvConfig.json"),
                "configStorePath": str(folder / "namesrv.properties"),
                **{k: v for k, v in self._properties.items() if k.startswith("tls.")},
            },
        )

    def _broker_settings(self, folder: Path) -> BrokerSettings:
        return BrokerSettings.load(
            None,
            {
                "brokerName": "broker-a",
                "listenPort": str(self._ports[1]),
                "brokerIP1": LOOPBACK,
                "namesrvAddr": self.name_server_address,
                "storePathRootDir": str(folder / "store"),
                **self._properties,
            },
        )
