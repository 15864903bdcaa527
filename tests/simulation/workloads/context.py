"""The context of every workload, and checks of committed offsets."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from mq.client import ClientOptions, Intervals
from mq.protocol import fastjson
from mq.protocol.names import retry_topic
from tests.simulation.cluster import BROKER_PORT, Cluster, Daemon
from tests.simulation.model import Model, Place
from tests.simulation.world import EPOCH, START

# Clients with short intervals: a minute shows what would take an hour.
CLIENT = ClientOptions(timeout=3.0, intervals=Intervals(routes=9.0, heartbeats=9.0, offsets=4.0))


# The interval of checks of committed offsets.
_LOOK = 0.5


@dataclass
class Context:
    """The context of every workload."""

    cluster: Cluster
    model: Model
    random: random.Random
    until: float  # when workloads stop to start anything new
    # Called for each acknowledged place, with the time of its send.
    on_acknowledged: Callable[[Place, float], None] = lambda place, at: None
    # Whether a client that reads from a slave may miss acknowledged messages.
    may_lag: Callable[[], bool] = lambda: False
    numbers: "count[int]" = field(default_factory=count)

    @property
    def now(self) -> float:
        return self.cluster.world.now

    def tell(self, text: str) -> None:
        """Add a detail of the running process to the story."""
        world = self.cluster.world
        world.detail("-" if world.current is None else world.current.name, text)

    @property
    def wall(self) -> float:
        """The time of a correct clock, ms since 1970."""
        return (EPOCH + self.now - START) * 1000

    def clocks(self) -> dict[str, float]:
        """The brokers' clocks, ms since 1970."""
        return {
            broker.name: self.wall + broker.machine.wall_offset * 1000
            for broker in self.cluster.brokers
        }

    def address(self, broker: str) -> str:
        """The current address of the master of a name."""
        found = next(one for one in self.cluster.brokers if one.name == broker)
        return f"{found.address}:{BROKER_PORT}"

    def client(self, name: str, *, snode: bool = False) -> ClientOptions:
        """Options of a client with its own name: clients are sorted by it."""
        return replace(CLIENT, instance=name, snode=snode)

    @property
    def name_servers(self) -> str:
        return self.cluster.name_server_list


Workload = Callable[[Context], Awaitable[None]]


def watch_offsets(context: Context) -> None:
    """Compare the groups' offsets at brokers with the delivered messages, periodically, and read
    the progress of the groups.
    """
    for group in context.model.groups.values():
        group.look(context.now)
    for broker in context.cluster.brokers:
        if broker.app is not None and hasattr(broker.app, "services"):
            stores = broker.app.stores
            for group in context.model.groups.values():
                for topic in (group.topic, retry_topic(group.name)):
                    queues = stores.offsets.queues(group.name, topic)
                    for queue_id, offset in queues.items():
                        minimum = stores.messages.min_offset(topic, queue_id)
                        group.committed((topic, broker.name, queue_id), offset, minimum)
    context.cluster.world.at(context.now + _LOOK, lambda: watch_offsets(context))


def watch_stops(context: Context) -> None:
    """Compare the offsets that stopping brokers leave on their disks with those that they had."""
    for broker in context.cluster.brokers:
        broker.on_stopped = lambda daemon, app: _check_offsets(context, daemon, app)


def _check_offsets(context: Context, broker: Daemon, app: Any) -> None:
    if not context.cluster.is_orderly:
        return  # a disk may have failed the save
    had = app.stores.offsets.table
    file = dict(broker.machine.disk.files()).get("store/config/consumerOffset.json")
    saved = {} if file is None else fastjson.loads(bytes(file.content()))["offsetTable"]
    saved = {key: {int(queue): at for queue, at in saved[key].items()} for key in saved}
    if lost := [key for key in had if saved.get(key) != had[key]]:
        context.model.wrong(f"{broker.name} has stopped without its offsets of {lost}")
