"""Watches the name servers' view of the brokers during a scenario.

Invariants for a broker and a name server, checked every LOOK seconds:

  well      both serve and run, no fault affects their disks or networks, the link is open in both
            directions, and none of their connections was broken or forgotten
  reached   they have been well together for REACHED seconds: the name server then has the broker as
            live, and every topic that the broker has had for as long
  gone      the broker's process has ended, or its machine has no power, and no beacon of it has
            arrived for GONE seconds, the two had been reached before, and the link is open: the
            name server then does not have it
  unheard   the broker has registered again over another connection, and no beacon has arrived
            since: none is expected (docs/decisions/0020-liveness-beacons.md), and without a closing
            connection `gone` is not promised

So a live broker stays: while it is reached it must be there at every check. `reached` also covers a
name server that has just started or resumed.
"""

from dataclasses import dataclass, field

from tests.simulation.cluster import BROKER_PORT, Cluster, Daemon
from tests.simulation.faults import Overlays
from tests.simulation.world import START, State

LOOK = 0.2
REACHED = 2.0
# A name server waits three seconds for beacons, which are sent each second, and checks four times a
# second.
GONE = 3.0 + 0.25 + LOOK
# A request that changes a key waits for this many fsyncs, during which nothing else is done.
_SYNCS = 2


@dataclass
class _Pair:
    """A name server and a broker."""

    name_server: Daemon
    broker: Daemon
    well_since: float | None = None
    was_reached: bool = False  # at the last time it was well
    gone_since: float | None = None
    told: set[str] = field(default_factory=set)


class RouteWatch:
    """Checks until `stop`; ``problems`` has each violation once for a pair and kind."""

    def __init__(self, cluster: Cluster, overlays: Overlays) -> None:
        self._cluster = cluster
        self._overlays = overlays
        self.problems: list[str] = []
        # a controlled set is not watched
        self._brokers = cluster.brokers if not cluster.members else []
        self._watched = list(self._brokers)
        self._pairs = [_Pair(n, b) for n in cluster.name_servers for b in self._brokers]
        # By its machine: since when this start of it has had each topic.
        self._topics: dict[str, dict[str, float]] = {}
        self._starts: dict[str, int] = {}
        self._stopped = False

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        self._stopped = True

    def _look(self) -> None:
        if self._stopped:
            return
        world = self._cluster.world
        for broker in self._brokers:
            if broker not in self._watched:  # a promoted slave
                self._watched.append(broker)
                self._pairs += [_Pair(one, broker) for one in self._cluster.name_servers]
            self._note_topics(broker)
        for pair in self._pairs:
            if pair.broker not in self._cluster.slaves:  # an old master that returned as a slave
                self._look_at(pair)
        world.at(world.now + LOOK, self._look)

    def _note_topics(self, broker: Daemon) -> None:
        name = broker.machine.name
        if broker.app is None or self._starts.get(name) != broker.starts:
            self._topics[name] = {}
            self._starts[name] = broker.starts
        if broker.app is not None:
            before = self._topics[name]
            now = self._cluster.world.now
            table = broker.app.stores.topics.table
            if before.keys() != table.keys():
                self._topics[name] = {topic: before.get(topic, now) for topic in table}

    def _is_well(self, pair: _Pair) -> bool:
        network, now = self._cluster.world.network, self._cluster.world.now
        one, other = pair.name_server.address, pair.broker.address
        for daemon in (pair.name_server, pair.broker):
            process = daemon.process
            if daemon.app is None or process is None or process.state is not State.running:
                return False
            if daemon.stops_since is not None or self._overlays.has_disk_trouble(daemon.machine):
                return False
            if daemon.address in network.delays or daemon.address in network.datagrams_of:
                return False
        if network.is_cut(one, other) or network.is_cut(other, one):
            return False
        if now - network.disturbed.get((one, other), 0.0) <= LOOK:
            return False
        # Of both ends: if one has died, the other one has not been notified.
        return not any(
            {end.own[0], end.peer_address[0]} == {one, other} for end in network.forgotten
        )

    def _look_at(self, pair: _Pair) -> None:
        now = self._cluster.world.now
        if not self._is_well(pair):
            if pair.well_since is not None:
                pair.was_reached = now - pair.well_since > REACHED + LOOK
            pair.well_since = None
            self._look_whether_gone(pair)
            return
        pair.gone_since = None
        begun = max(pair.name_server.served_since, pair.broker.served_since)
        if pair.well_since is None:
            pair.well_since = now
        elif begun > pair.well_since:  # one of them was started between two checks
            pair.well_since = begun
        if now - pair.well_since > REACHED:
            self._check_reached(pair)

    def _check_reached(self, pair: _Pair) -> None:
        now, broker = self._cluster.world.now, pair.broker
        routes = pair.name_server.app.routes
        if f"{broker.address}:{BROKER_PORT}" not in routes.live:
            self._tell(pair, "a live broker", "lives, and is not in its routes")
            return
        there, name = routes.topics, broker.name
        topics = self._topics[broker.machine.name]
        for topic in [one for one in topics if name not in there.get(one, ())]:
            seconds = now - topics[topic]
            if seconds > REACHED:
                self._tell(
                    pair, "a topic", f"has had topic {topic} for {seconds:.1f} s: not in its routes"
                )

    def _look_whether_gone(self, pair: _Pair) -> None:
        world, broker, name_server = self._cluster.world, pair.broker, pair.name_server
        process = name_server.process
        network = world.network
        is_cut = network.is_cut(broker.address, name_server.address)
        is_gone = broker.process is None or not broker.process.is_alive
        serves = (
            name_server.app is not None
            and process is not None
            and process.state is State.running
            and name_server.address not in network.datagrams_of
        )
        if not is_gone or not serves or is_cut or not pair.was_reached:
            pair.gone_since = None
            if not serves or is_cut:
                pair.was_reached = False
            return
        if pair.gone_since is None:
            pair.gone_since = world.now
            return
        # Beacons sent before its end may arrive later.
        link = broker.address, name_server.address
        last = max(pair.gone_since, network.heard.get(link, 0.0))
        # A name server that waits for a slow disk sees neither beacons nor the time.
        waits = _SYNCS * name_server.machine.disk.faults.sync_seconds[1]
        if world.now - last > GONE + waits:
            live = name_server.app.routes.live.get(f"{broker.address}:{BROKER_PORT}")
            if live is not None and not self._is_unheard(link, live.last_beacon):
                seconds = world.now - pair.gone_since
                self._tell(pair, "a dead broker", f"ended {seconds:.1f} s ago: in its routes still")

    def _is_unheard(self, link: tuple[str, str], believed: float | None) -> bool:
        """Whether a name server may expect no beacons, given the time of the last accepted one.

        A beacon from before the broker can have registered was not accepted.
        """
        network = self._cluster.world.network
        may_be_news = network.heard.get(link, 0.0) <= network.taken.get(link, 0.0) + REACHED
        return believed is None and may_be_news

    def _tell(self, pair: _Pair, kind: str, text: str) -> None:
        if kind not in pair.told:
            pair.told.add(kind)
            text = f"{pair.broker.name} {text}, says {pair.name_server.name}"
            self._cluster.world.tell("WRONG", text)
            at = self._cluster.world.now - START
            self.problems.append(f"routes at {at:.3f}: {text}")
