"""Brokers whose machine loses power while beacons arrive, are missing, or are late: checks."""

from collections.abc import Callable
from typing import Any

from mq.daemons.namesrv.routes import Routes
from tests.simulation import identity, seams
from tests.simulation.checks import check
from tests.simulation.cluster import BROKER_PORT, Cluster
from tests.simulation.datagrams import DatagramFaults
from tests.simulation.faults import Overlays
from tests.simulation.planted import planted
from tests.simulation.route_watch import RouteWatch
from tests.simulation.world import START, World

_NONE_COMES, _LATE = DatagramFaults(lost=1.0), DatagramFaults(late=2.0)
# From the fourth second on datagrams are bad for this long, and then good until the power cut.
_Story = tuple[DatagramFaults | None, float, float]
_WELL: _Story = (None, 0.0, 4.0)
_HEARD_AGAIN: _Story = (_NONE_COMES, 5.0, 4.0)
_SEED = 1


def _story(story: _Story, seed: int = _SEED) -> dict[str, Any]:
    """The problems, whether the broker is in the routes, and the delay of its last beacon."""
    faults, bad_seconds, well_seconds = story
    identity.begin()
    world = World(seed)
    seams.use(world)
    try:
        cluster = Cluster(world)
        name_server, broker = cluster.add_name_server(), cluster.add_broker()
        watch = RouteWatch(cluster, Overlays(world))
        cluster.start()
        watch.start()
        world.run(START + 4.0)
        if faults is not None:
            world.network.datagrams_of[broker.address] = faults
            world.run(world.now + bad_seconds)
        if well_seconds:
            world.network.datagrams_of.clear()
            world.run(world.now + well_seconds)
        broker.lose_power()
        ended = world.now
        world.run(ended + 8.0)
        live = f"{broker.address}:{BROKER_PORT}" in name_server.app.routes.live
        late = world.network.heard[broker.address, name_server.address] - ended
        return {"problems": watch.problems, "live": live, "late": late}
    finally:
        seams.use(None)


@check
def gone_brokers() -> dict[str, Any]:
    """By the history of its beacons."""
    return {
        "well": _story(_WELL),
        "none comes": _story((_NONE_COMES, 5.0, 0.0)),
        "heard again": _story(_HEARD_AGAIN),
        "late": max((_story((_LATE, 4.0, 0.0), seed) for seed in range(1, 9)), key=_lateness),
    }


def _lateness(told: dict[str, Any]) -> float:
    return float(told["late"])


@check
def gone_brokers_with_defects() -> dict[str, dict[str, Any]]:
    """The same with name servers that miss no beacons, or do not know that one has arrived."""
    defects: dict[str, tuple[str, Callable[..., Any]]] = {
        "misses none": ("expire_beacons", lambda *_: []),
        "knows of none": ("beacon", lambda *_: True),
    }
    told = {}
    for name, (method, defect) in defects.items():
        with planted(Routes, method, defect):
            told[name] = {"well": _story(_WELL), "heard again": _story(_HEARD_AGAIN)}
    return told
