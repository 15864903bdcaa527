"""Snodes in a scenario: who goes through them is drawn, and all that holds without them holds.

Producers and whole groups go through the snodes, all members of a group alike, for only they know
of each other. Of a group that does, each member is pushed to or only pulls. What goes past the
snodes into the same topics - ends of transactions, delayed messages that are due, producers that
go to brokers - is not pushed, and comes in its place all the same.
"""

from collections import Counter
from random import Random

from tests.simulation.cluster import Cluster
from tests.simulation.workloads import Context

# Which seeds have snodes: none that has pairs or a controlled set.
EVERY, _FIRST = 9, 7
# How long an offset is a snode's alone at most.
_SETTINGS: tuple[dict[str, str], ...] = (
    {"persistOffsetInterval": "2000"},
    {"persistOffsetInterval": "10000"},
    {"forwardOffsets": "true"},
)
# Lower than what a member that was away has to catch up with.
_THRESHOLDS = ("1024", "20")
_POLICIES = ("CLOSE", "SKIP")
_LOOK = 0.5


def has_snodes(seed: int) -> bool:
    """Whether clients of a seed go through snodes."""
    return seed % EVERY == _FIRST


def add(cluster: Cluster, chance: Random) -> None:
    """One snode, or two."""
    settings = {
        **chance.choice(_SETTINGS),
        "slowConsumerThreshold": chance.choice(_THRESHOLDS),
        "slowConsumerPolicy": chance.choice(_POLICIES),
        "snodeHeartBeatInterval": "9000",
    }
    for _ in range(chance.choice((1, 2))):
        cluster.add_snode(**settings)


def watch(context: Context, told: dict[object, Counter[str]] | None = None) -> None:
    """Count, now and again, what was pushed and what was left to pulls."""
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
