"""Snodes in a scenario: some clients use them, and all invariants hold as without them.

Producers and whole groups use the snodes, all members of a group alike, because only snodes know
members that connect through snodes. Each member of such a group is pushed to or only pulls.
Messages that bypass the snodes (ends of transactions, due delayed messages, other producers) are
not pushed, and are delivered in their place all the same.
"""

from collections import Counter
from random import Random

from tests.simulation.cluster import Cluster
from tests.simulation.workloads import Context

# Seeds with snodes: none that has pairs or a controlled set.
EVERY, _FIRST = 9, 7
# Longest time for which only the snode knows an offset.
_SETTINGS: tuple[dict[str, str], ...] = (
    {"persistOffsetInterval": "2000"},
    {"persistOffsetInterval": "10000"},
    {"forwardOffsets": "true"},
)
# Lower than the backlog of a member that was away.
_THRESHOLDS = ("1024", "20")
_POLICIES = ("CLOSE", "SKIP")
_LOOK = 0.5


def has_snodes(seed: int) -> bool:
    """Whether clients of a seed use snodes."""
    return seed % EVERY == _FIRST


def add(cluster: Cluster, chance: Random) -> None:
    """Add one snode or two."""
    settings = {
        **chance.choice(_SETTINGS),
        "slowConsumerThreshold": chance.choice(_THRESHOLDS),
        "slowConsumerPolicy": chance.choice(_POLICIES),
        "snodeHeartBeatInterval": "9000",
    }
    for _ in range(chance.choice((1, 2))):
        cluster.add_snode(**settings)


def watch(context: Context, told: dict[object, Counter[str]] | None = None) -> None:
    """Count pushed messages and those left to pulls, periodically."""
    told = {} if told is None else told
    world = context.cluster.world
    for snode in context.cluster.snodes:
        if snode.app is not None and hasattr(snode.app, "push"):
            counts = snode.app.push.counts
            before = told.get(snode.app, Counter())
            told[snode.app] = Counter(counts)
            for reason, count in (counts - before).items():
                text = "messages pushed" if reason == "pushed" else f"not pushed: {reason}"
                world.situations[text] = world.situations.get(text, 0) + count
    world.at(context.now + _LOOK, lambda: watch(context, told))
