"""The interface of a component."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from mq.daemons.dispatch import Handler
from mq.daemons.supervision import Work

if TYPE_CHECKING:
    from mq.daemons.metrics import Metric

Works = Iterator[tuple[Work, str]]
# At each None other work may run: a broker has metrics of each topic and group.
Metrics = Iterator["Metric | None"]


class Component(Protocol):
    """One part of a broker."""

    def works(self) -> Works:
        """Its tasks, each of which runs until cancelled, and their names."""

    def handlers(self) -> dict[int, Handler]:
        """Its handlers for both ports, by request code."""

    def metrics(self) -> Metrics:
        """Its metrics."""
