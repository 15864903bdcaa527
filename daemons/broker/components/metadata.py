"""Metadata component: the data that a slave copies from its master in addition to the log."""

from collections.abc import Callable
from dataclasses import dataclass

from mq.daemons.broker.component import Metrics, Works
from mq.daemons.broker.components.delivery import Delivery
from mq.daemons.broker.components.replication import Replication
from mq.daemons.broker.components.services import Services
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.name_servers.registration import Registration
from mq.daemons.broker.replication.metadata import SlaveSynchronize
from mq.daemons.broker.stores import Stores
from mq.daemons.dispatch import Handler
from mq.daemons.metrics import gauge


@dataclass(frozen=True, slots=True)
class Metadata:
    """Copies the master's metadata on a slave; does nothing on a master."""

    synchronize: SlaveSynchronize | None

    def works(self) -> Works:
        if self.synchronize is not None:
            yield self.synchronize.run, "copies of the master's metadata"

    def handlers(self) -> dict[int, Handler]:
        return {}

    def metrics(self) -> Metrics:
        if self.synchronize is not None:
            doc = "Seconds since the master's metadata was last copied in full; -1 for never."
            yield gauge("mq_slave_copies_age_seconds", doc, self.synchronize.age())

    def reload_key(self) -> None:
        """Read the key for the master again."""
        if self.synchronize is not None:
            self.synchronize.reload_key()


def make_metadata(
    settings: BrokerSettings,
    stores: Stores,
    delivery: Delivery,
    services: Services,
    registration: Registration,
    replication: Replication,
    knows_better: Callable[[], bool] = lambda: False,
) -> Metadata:
    """Make the component. Nothing is copied while ``knows_better`` returns true. Raises ConfigError
    for an invalid key file.
    """
    slave = replication.slave
    if slave is None:
        return Metadata(None)
    synchronize = SlaveSynchronize(
        settings,
        registration.masters,
        stores,
        delivery.delayed,
        services.pop.modes,
        endings=lambda: slave.endings,
        follows=lambda: slave.connection is not None,
        on_silence=registration.query_master,
        knows_better=knows_better,
    )
    slave.copy_ahead = synchronize.copy_ahead
    assert stores.messages.replica is not None
    stores.messages.replica.topics.knows = stores.topics.knows
    return Metadata(synchronize)
