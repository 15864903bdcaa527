"""What a group of parts says of itself."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from mq.daemons.dispatch import Handler
from mq.daemons.supervision import Work

if TYPE_CHECKING:
    from mq.daemons.metrics import Metric

Works = Iterator[tuple[Work, str]]
# At each None anything else may happen: a broker has metrics of each topic and group.
Metrics = Iterator["Metric | None"]


class Component(Protocol):
    """A group of parts."""

    def works(self) -> Works:
        """Its periodic tasks, each until cancelled, and their names."""

    def handlers(self) -> dict[int, Handler]:
        """What it answers on both ports, by request code."""

    def metrics(self) -> Metrics:
        """What it tells of itself to monitoring."""
