"""Plans of reads: from the options and the offsets of the topics to the ranges that tasks pull."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from mq.pipeline.cluster import Bounds, Cluster
from mq.pipeline.data_loss import report_gone
from mq.pipeline.declared import PlanOptions, wrong
from mq.pipeline.offsets import EARLIEST, LATEST, Offsets, Queue
from mq.pipeline.options import ReadOptions
from mq.pipeline.parsing import Position
from mq.pipeline.puller import QueueRange


def starting_offsets(
    options: ReadOptions, cluster: Cluster, bounds: Mapping[Queue, Bounds], default: int
) -> Offsets:
    """Return the start of each queue. `default` is EARLIEST or LATEST.

    Raises OptionError for offsets that are not in the queue, DataLoss for deleted ones.
    """
    if options.starting_timestamp is not None:
        return cluster.at_time(bounds, options.starting_timestamp)
    return chosen_start(options, bounds, default)


def chosen_start(options: PlanOptions, bounds: Mapping[Queue, Bounds], default: int) -> Offsets:
    """Return the start of each queue by startingOffsets. Raises what `starting_offsets` raises."""
    position = options.starting_offsets
    position = default if position is None else position
    asked = _resolve(options, "startingOffsets", position, default, bounds)
    for queue, offset in asked.items():
        if offset < bounds[queue].begin:
            report_loss(options, queue, offset, bounds[queue].begin)
            asked[queue] = bounds[queue].begin
    return asked


def ending_offsets(
    options: ReadOptions, cluster: Cluster, bounds: Mapping[Queue, Bounds]
) -> Offsets:
    """Return the end of each queue, exclusive. Raises OptionError for offsets not in the queue."""
    if options.ending_timestamp is not None:
        # The first message that is too late ends the range.
        return cluster.at_time(bounds, options.ending_timestamp)
    return chosen_end(options, bounds)


def chosen_end(options: PlanOptions, bounds: Mapping[Queue, Bounds]) -> Offsets:
    """Return the end of each queue by endingOffsets. Raises what `ending_offsets` raises."""
    position = LATEST if options.ending_offsets is None else options.ending_offsets
    return _resolve(options, "endingOffsets", position, LATEST, bounds)


def _resolve(
    options: PlanOptions,
    name: str,
    position: Position,
    default: int,
    bounds: Mapping[Queue, Bounds],
) -> Offsets:
    """Return offsets for all queues: those that `position` does not name get the default."""
    asked = position if isinstance(position, dict) else {}
    unknown = sorted(asked.keys() - bounds.keys())
    if unknown:
        raise wrong(type(options), name, f"there is no {unknown[0]} to be read")
    otherwise = default if isinstance(position, dict) else position
    found = {}
    for queue, at in bounds.items():
        offset = asked.get(queue, otherwise)
        if offset > at.end:
            reason = f"{offset} is beyond the end of {queue}, which is {at.end}"
            raise wrong(type(options), name, reason)
        found[queue] = at.begin if offset == EARLIEST else at.end if offset == LATEST else offset
    return found


def ranges(start: Mapping[Queue, int], end: Mapping[Queue, int]) -> list[QueueRange]:
    """Return the range of each queue between `start` and `end`; empty ranges are left out."""
    return [
        QueueRange(*queue, start[queue], end[queue])
        for queue in sorted(end)
        if start.get(queue, end[queue]) < end[queue]
    ]


def split(whole: Sequence[QueueRange], least: int | None) -> list[QueueRange]:
    """Cut large ranges into equal parts, so that there are at least `least` if there are messages
    enough.

    Each gets at least one part, and more by its share of all messages, as in Kafka's source.
    """
    if least is None or len(whole) >= least:
        return list(whole)
    total = sum(each.end - each.begin for each in whole)
    parts = []
    for each in whole:
        size = each.end - each.begin
        count = min(size, max(1, -(-least * size // total)))
        edges = [each.begin + size * part // count for part in range(count + 1)]
        parts += [each._replace(begin=begin, end=end) for begin, end in pairwise(edges)]
    return parts


def limited(
    start: Mapping[Queue, int], end: Mapping[Queue, int], most: int, step: int = 1
) -> Offsets:
    """Return ends that are at most `most` messages from `start`, by each queue's share of all
    messages.

    The remainder of the rounding goes to the first queues that have messages left. Offsets of
    consecutive messages differ by `step`.
    """
    sizes = {queue: max(0, end[queue] - start.get(queue, end[queue])) // step for queue in end}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    taken = {queue: size * most // total for queue, size in sizes.items()}
    left = most - sum(taken.values())
    for queue in sorted(sizes):
        more = min(left, sizes[queue] - taken[queue], 1)
        taken[queue] += more
        left -= more
    return {queue: start.get(queue, end[queue]) + taken[queue] * step for queue in end}


def report_loss(options: PlanOptions, queue: Queue, begin: int, end: int) -> None:
    """Raise DataLoss, or log it, as failOnDataLoss says."""
    report_gone(queue, begin, end, fail=options.fail_on_data_loss)
