"""Statistics of a filter server's groups: a log line every minute, like Java's."""

import asyncio
import logging
from collections.abc import Iterator

from mq.daemons.filtersrv.classes import Classes, Key
from mq.daemons.listener import Listener
from mq.daemons.metrics import Kind, Metric, counter, gauge, of_listeners, of_tasks
from mq.daemons.supervision import Tasks

log = logging.getLogger(__name__)

MINUTE = 60.0


class GroupStats:
    """GROUP_GET_NUMS and GROUP_GET_SIZE of each topic@group (FilterServerStatsManager)."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._last: dict[Key, tuple[int, int]] = {}

    async def run(self) -> None:
        """Log the statistics every minute, until cancelled."""
        while True:
            await asyncio.sleep(MINUTE)
            self.log_minute()

    def log_minute(self) -> None:
        """Log the messages of each group since the last call."""
        last, self._last = self._last, {}
        for key, kept in self._classes.table.items():
            now = kept.counts.messages, kept.counts.bytes
            self._last[key] = now
            for name, value, before in zip(
                ("GROUP_GET_NUMS", "GROUP_GET_SIZE"), now, last.get(key, (0, 0)), strict=True
            ):
                before = before if before <= value else 0  # the class was removed meanwhile
                log.info("[%s] [%s] Stats In One Minute, SUM: %d TPS: %.2f",
                         name, key, value - before, (value - before) / MINUTE)  # fmt: skip


def metrics_of(listener: Listener, tasks: Tasks, classes: Classes) -> Iterator[Metric]:
    """The metrics of a filter server."""
    yield from of_listeners({"main": listener})
    yield of_tasks(tasks)
    yield gauge("mq_filter_classes", "Filter classes in use.", len(classes.table))
    yield gauge(
        "mq_filter_sandboxes",
        "Running sandboxes.",
        sum(kept.sandbox is not None for kept in classes.table.values()),
    )
    yield counter("mq_filter_sandbox_ends_total", "Sandboxes ended after an error or a limit.",
                  classes.ends)  # fmt: skip
    table = sorted(classes.table.items())
    labels = ("topic", "group")
    for name, doc, values in (
        ("seen", "Messages passed to a filter class.", [k.counts.seen for _, k in table]),
        ("messages", "Messages delivered to a group.", [k.counts.messages for _, k in table]),
        ("bytes", "Bytes delivered to a group.", [k.counts.bytes for _, k in table]),
        (
            "failures",
            "Batches on which a filter class failed.",
            [k.counts.failures for _, k in table],
        ),
    ):
        pairs = [(tuple(key), float(value))
                 for (key, _), value in zip(table, values, strict=True)]  # fmt: skip
        yield Metric(f"mq_filter_{name}_total", Kind.counter, doc, labels, pairs)
