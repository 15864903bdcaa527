"""Failures of pulls: logged once, though many queues of one broker fail again and again."""

import logging

from mq.client.errors import ConnectError, MQError, RequestTimeout, RouteNotFound
from mq.client.offsets import Offsets, OffsetStore
from mq.protocol.bodies import MessageQueue

log = logging.getLogger(__name__)


class PullFailures:
    """Which queues of a group cannot be pulled, and why, as far as that has been said.

    A line for each broker and kind of error, as long as any of its queues has it, and one when all
    of them can be pulled again.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._kinds: dict[MessageQueue, str] = {}
        self._logged: dict[str, set[str]] = {}  # kinds by broker

    def failed(self, queue: MessageQueue, error: Exception, *, unexpected: bool = False) -> None:
        """A pull has failed; with `unexpected` it is said where."""
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
        """A pull has not failed."""
        if queue in self._kinds and self._forget(queue):
            log.info("group %s, broker %s: pulls succeed again", self._group, queue.broker_name)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is not pulled any more."""
        if queue in self._kinds:
            self._forget(queue)

    def _forget(self, queue: MessageQueue) -> bool:
        """Whether its broker has no other queue that fails."""
        del self._kinds[queue]
        if any(other.broker_name == queue.broker_name for other in self._kinds):
            return False
        del self._logged[queue.broker_name]
        return True


def errors_of_who_is_away(offsets: Offsets) -> tuple[type[MQError], ...]:
    """What a broker is met with that cannot say which topic it has, of which is committed as at any
    other time: not there, perhaps, but in a file of one's own."""
    if isinstance(offsets, OffsetStore):
        return (ConnectError,)
    return ConnectError, RequestTimeout, RouteNotFound
