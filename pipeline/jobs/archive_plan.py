"""Plan of a run on an archive: what to add, and what is missing or has changed."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from mq.pipeline.offsets import Offsets, Queue

if TYPE_CHECKING:
    from mq.pipeline.cluster import Bounds, Cluster


class Plan(NamedTuple):
    """What there is to archive: the range of each queue, gaps, and problems of queues."""

    begins: Offsets
    ends: Offsets
    lost: tuple[tuple[Queue, int, int], ...]
    failures: list[str]


def plan(
    archived: Mapping[Queue, int],
    bounds: "Mapping[Queue, Bounds]",
    starts: Mapping[Queue, int],
    ends: Mapping[Queue, int],
    recreated: Collection[Queue] = (),
) -> Plan:
    """Plan a run. `starts` are the begins of new queues, `ends` the end of each one, `recreated`
    the queues whose last archived message has changed.
    """
    begins: Offsets = {}
    lost = []
    failures = []
    for queue, at in sorted(bounds.items()):
        begin = archived.get(queue, max(starts[queue], at.begin))
        if begin > at.end:
            failures.append(
                f"{queue} ends at {at.end}, but the archive has it up to {begin}: the topic was "
                "recreated; archive it to another folder"
            )
            continue
        if queue in recreated:
            failures.append(
                f"{queue} has another message at offset {begin - 1} than the archive: the topic "
                "was recreated; archive it to another folder"
            )
            continue
        if begin < at.begin:
            lost.append((queue, begin, at.begin))
            failures.append(
                f"{queue}: the broker had deleted the messages from offset {begin} to {at.begin} "
                "before they were archived; run more often, or keep messages longer there"
            )
        begins[queue] = max(begin, at.begin)
    return Plan(
        begins,
        {queue: max(begin, ends[queue]) for queue, begin in begins.items()},
        tuple(lost),
        failures,
    )


def recreated_queues(
    cluster: "Cluster",
    bounds: "Mapping[Queue, Bounds]",
    marks: Mapping[Queue, tuple[int, int]],
) -> set[Queue]:
    """Return the queues whose last archived message, if it is still kept, has changed."""
    kept = {
        queue: mark
        for queue, mark in marks.items()
        if queue in bounds and bounds[queue].begin <= mark[0] < bounds[queue].end
    }
    return {queue for queue, mark in kept.items() if cluster.first_stored(queue, mark[0]) != mark}


def absent(
    chosen: Callable[[str], bool], archived: Mapping[Queue, int], bounds: Collection[Queue]
) -> list[str]:
    """Return a report of each queue of chosen topics that only the archive has."""
    return [
        f"{queue} is in the archive, and not in the cluster: its broker is down, or it was "
        "deleted, which --allow-absent allows for; what came since was not archived"
        for queue in sorted(archived)
        if queue not in bounds and chosen(queue.topic)
    ]
