"""Failures of pulls: logged once although many queues of a broker keep failing."""

import logging

from mq.client.errors import ConnectError, MQError, RequestTimeout, RouteNotFound
from mq.client.offsets.offset_store import Offsets, OffsetStore
from mq.protocol.bodies import MessageQueue

log = logging.getLogger(__name__)


class PullFailures:
    """The queues of a group whose pulls fail, and the failures already logged.

    One line is logged for each broker and kind of error while any of the broker's queues has it,
    and one when all of them can be pulled again.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._kinds: dict[MessageQueue, str] = {}
        self._logged: dict[str, set[str]] = {}  # kinds by broker

    def failed(self, queue: MessageQueue, error: Exception, *, unexpected: bool = False) -> None:
        """Record a failed pull; `unexpected` logs the traceback."""
        kind = type(error).__name__
        self._kinds[queue] = kind
        logged = self._logged.setdefault(queue.broker_name, set())
        if kind not in logged:
            logged.add(kind)
            log.warning(
                "group %s, broker %s: pulls fail, first of queue %d of %s: %s",
                *(self._group, queue.broker_name, queue.queue_id, queue.topic, error),
                exc_info=error if unexpected else None,
            )

    def succeeded(self, queue: MessageQueue) -> None:
        """Record that a pull did not fail."""
        if queue in self._kinds and self._forget(queue):
            log.info("group %s, broker %s: pulls succeed again", self._group, queue.broker_name)

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that is no longer pulled."""
        if queue in self._kinds:
            self._forget(queue)

    def _forget(self, queue: MessageQueue) -> bool:
        """Remove a queue; returns whether none of its broker's queues fails any more."""
        del self._kinds[queue]
        if any(other.broker_name == queue.broker_name for other in self._kinds):
            return False
        del self._logged[queue.broker_name]
        return True


def errors_when_unavailable(offsets: Offsets) -> tuple[type[MQError], ...]:
    """Return the errors of an unavailable broker that do not prevent a commit.

    Such a broker cannot tell which topic it has. Offsets kept at brokers are committed as usual
    only after a ConnectError; offsets kept elsewhere also after other failures.
    """
    if isinstance(offsets, OffsetStore):
        return (ConnectError,)
    return ConnectError, RequestTimeout, RouteNotFound
