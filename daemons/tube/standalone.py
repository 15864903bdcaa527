"""A TubeMQ master and a broker in one process: for trials, tests and development."""

import asyncio
import logging
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mq.daemons.config import ConfigError
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.tube.broker.app import Broker
from mq.daemons.tube.broker.config import BrokerSettings
from mq.daemons.tube.master.admin.brokers import addition
from mq.daemons.tube.master.admin.topics import with_control
from mq.daemons.tube.master.app import Master
from mq.daemons.tube.master.catalog import ChangeRefused
from mq.daemons.tube.master.config import MasterSettings
from mq.daemons.tube.master.records import Audit, BrokerConf, ManageStatus, Props, TopicDeploy
from mq.daemons.tube.master.storage import Changes
from mq.protocol.tube.errors import IllegalName
from mq.protocol.tube.names import check_topic

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
BROKER_ID = 1

# Of the master: no waits for the steps of a broker's start, short ones for partitions.
_QUICK_MASTER = {
    "consumerBalancePeriodMs": "200",
    "subscribeWaitMs": "0",
    "publishWaitMs": "0",
}
# Of the broker: it gets topics with its heartbeats.
_QUICK_BROKER = {"heartbeatPeriodMs": "100"}
_POLL_SECONDS = 0.01
# A broker makes each step with a heartbeat, and a busy machine is slow.
_TOPIC_SECONDS = 30.0


def parse_topics(texts: Sequence[str]) -> dict[str, int]:
    """Return partitions by topic, from `name` or `name:partitions`. Raises ConfigError."""
    topics = {}
    for text in texts:
        name, colon, count = text.partition(":")
        try:
            check_topic(name)
        except IllegalName as error:
            raise ConfigError(str(error)) from None
        if colon and not re.fullmatch(r"[1-9][0-9]{0,3}", count):
            raise ConfigError(f"{text}: expected name:partitions, 1 to 9999 of them")
        topics[name] = int(count) if colon else 3
    return topics


class TubeStandalone(Lifecycle):
    """Both daemons on loopback: `async with TubeStandalone() as pair`.

    ``store`` is the folder for all stored data; with None a temporary one is used and deleted at
    the end. With port 0 a free port is chosen. ``topics`` has partitions by topic. ``properties``
    are settings of both by their names.
    """

    def __init__(
        self,
        store: Path | None = None,
        *,
        master_port: int = 8715,
        broker_port: int = 8123,
        web_port: int = 8080,
        topics: Mapping[str, int] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.master: Master
        self.broker: Broker
        self._store = store
        self._ports = (master_port, broker_port, web_port)
        self._topics = dict(topics or {})
        self._properties = dict(properties or {})

    async def _start(self, parts: AsyncExitStack) -> None:
        folder = self._store
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="mq-tube-")
            folder = Path(parts.enter_context(temporary))
        self.folder = folder
        self.master = await parts.enter_async_context(Master(self._master_settings(folder)))
        self.broker = await parts.enter_async_context(
            Broker(self._broker_settings(folder), self._admit)
        )
        for topic, partitions in self._topics.items():
            await self.create_topic(topic, partitions)

    @property
    def master_address(self) -> str:
        """host:port of the master: all that a client needs."""
        return self.master.address

    async def create_topic(self, name: str, partitions: int = 3, stores: int = 1) -> None:
        """Create a topic, unless it exists; return when it can be sent to and consumed.

        Raises ChangeRefused, and TimeoutError if the broker does not apply it.
        """
        catalog = self.master.catalog
        audit = self._audit()

        def step() -> Changes:
            if catalog.deploy(BROKER_ID, name) is not None:
                return {}
            props = Props(num_partitions=partitions, num_topic_stores=stores)
            new = TopicDeploy(BROKER_ID, name, props=props, audit=audit)
            return {(TopicDeploy.kind, new.key): new, **with_control(self.master.core, name, audit)}

        await catalog.change(step)
        views = self.master.core.brokers.views
        async with asyncio.timeout(_TOPIC_SECONDS):
            while views.produced.get(BROKER_ID, name) is None:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)

    def ready_text(self) -> str:
        """Return the log line for the ready pair, with its addresses."""
        kept = "" if self._store else " (temporary, deleted at the end)"
        topics = f", topics {', '.join(sorted(self._topics))}" if self._topics else ""
        return (
            f"tube standalone: master {self.master_address}, broker {self.broker.address}, web "
            f"http://{LOOPBACK}:{self.master.web_port}/webapi.htm?method=admin_get_methods, store "
            f"{self.folder}{kept}{topics}"
        )

    def status_text(self) -> str:
        return self.ready_text()

    def reload(self) -> None:
        self.master.reload()
        self.broker.reload()

    def state(self) -> Iterator[str]:
        yield from self.master.state()
        yield from self.broker.state()

    async def _admit(self, broker: Broker) -> None:
        """Set the broker up at the master, when its port is known and it has not registered."""
        core, catalog = self.master.core, self.master.catalog
        conf = BrokerConf(
            BROKER_ID,
            LOOPBACK,
            broker.port,
            status=ManageStatus.ONLINE,
            audit=self._audit(),
        )

        def step() -> Changes:
            old = catalog.broker(BROKER_ID)
            if old is None:
                return addition(core, conf)
            if old.port == conf.port and old.status is ManageStatus.ONLINE:
                return {}
            return {(BrokerConf.kind, conf.key): conf}

        try:
            await catalog.change(step)
        except ChangeRefused as error:
            raise ConfigError(f"the broker is not admitted: {error}") from None

    def _audit(self) -> Audit:
        serial = self.master.catalog.next_serial()
        return Audit(serial=serial, create_user="standalone", modify_user="standalone")

    def _master_settings(self, folder: Path) -> MasterSettings:
        return MasterSettings.load(
            None,
            {
                **_QUICK_MASTER,
                "hostName": LOOPBACK,
                "metaDataPath": str(folder / "metadata"),
                **self._properties,
                "port": str(self._ports[0]),
                "webPort": str(self._ports[2]),
            },
        )

    def _broker_settings(self, folder: Path) -> BrokerSettings:
        properties: dict[str, Any] = {
            **_QUICK_BROKER,
            "hostName": LOOPBACK,
            "brokerId": str(BROKER_ID),
            "masterAddressList": self.master_address,
            "primaryPath": str(folder / "messages"),
            **self._properties,
            "port": str(self._ports[1]),
            "webPort": "0",
        }
        return BrokerSettings.load(None, properties)
