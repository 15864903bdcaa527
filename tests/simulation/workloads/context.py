"""What every workload is given, and a look at the offsets that groups have committed."""

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

# Clients that look often: what an hour would show happens in a minute.
CLIENT = ClientOptions(timeout=3.0, intervals=Intervals(routes=9.0, heartbeats=9.0, offsets=4.0))


# How often offsets that are committed are looked at.
_LOOK = 0.5


@dataclass
class Context:
    """What every workload is given."""

    cluster: Cluster
    model: Model
    random: random.Random
    until: float  # when workloads stop to begin anything new
    #: Told of each place that a broker has acknowledged, and when what lies there was sent.
    on_acknowledged: Callable[[Place, float], None] = lambda place, at: None
    #: Whether what was acknowledged may not be found yet by who reads from a slave.
    may_lag: Callable[[], bool] = lambda: False
    numbers: "count[int]" = field(default_factory=count)

    @property
    def now(self) -> float:
        return self.cluster.world.now

    def tell(self, text: str) -> None:
        """A detail of the story, of the process that runs."""
        world = self.cluster.world
        world.detail("-" if world.current is None else world.current.name, text)

    @property
    def wall(self) -> float:
        """What a clock shows that is right, ms since 1970."""
        return (EPOCH + self.now - START) * 1000

    def clocks(self) -> dict[str, float]:
        """What the clocks of the brokers show, ms since 1970."""
        return {
            broker.name: self.wall + broker.machine.wall_offset * 1000
            for broker in self.cluster.brokers
        }

    def address(self, broker: str) -> str:
        """Where the master of a name is now."""
        found = next(one for one in self.cluster.brokers if one.name == broker)
        return f"{found.address}:{BROKER_PORT}"

    def client(self, name: str, *, snode: bool = False) -> ClientOptions:
        """Options of a client of its own name: clients are sorted by it."""
        return replace(CLIENT, instance=name, snode=snode)

    @property
    def name_servers(self) -> str:
        return self.cluster.name_server_list


Workload = Callable[[Context], Awaitable[None]]


def watch_offsets(context: Context) -> None:
    """Hold the offsets that brokers have of groups against what these have had, now and again.

    And see how far the groups are.
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
    """Hold what brokers that stop leave on their disks against the offsets that they had."""
    for broker in context.cluster.brokers:
        broker.on_stopped = lambda daemon, app: _check_offsets(context, daemon, app)


def _check_offsets(context: Context, broker: Daemon, app: Any) -> None:
    if not context.cluster.is_orderly:
        return  # a disk may have failed it
    had = app.stores.offsets.table
    file = dict(broker.machine.disk.files()).get("store/config/consumerOffset.json")
    saved = {} if file is None else fastjson.loads(bytes(file.content()))["offsetTable"]
    saved = {key: {int(queue): at for queue, at in saved[key].items()} for key in saved}
    if lost := [key for key in had if saved.get(key) != had[key]]:
        context.model.wrong(f"{broker.name} has stopped without its offsets of {lost}")
