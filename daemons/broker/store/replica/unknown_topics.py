"""Unknown topics: whether a slave has the configuration of the topic of a record that arrives.

The replication connection carries records only. A slave copies topics and groups over another
connection, which may be seconds late. A record that is acknowledged before its topic is known here
would be lost to consumers if the master died. So replication stops before such a record (`doubt`)
until the master's topics and groups have been copied. A copy covers all records before the physical
offset at which the master's log ended when the copy started: a topic that the copy lacks has been
deleted since.
"""

from collections.abc import Callable
from typing import NamedTuple

from mq.daemons.broker.store.log.records import Record
from mq.daemons.broker.store.queue.queues import implausible


class UnknownTopic(NamedTuple):
    """A record belongs to a topic, or to a queue of it, that is not configured here."""

    topic: str
    queue_id: int
    physical: int


class UnknownTopicDetector:
    """Finds records of unknown topics. ``knows`` returns whether a queue is configured."""

    def __init__(self) -> None:
        self.knows: Callable[[str, int], bool] = lambda topic, queue_id: True
        self.doubt: UnknownTopic | None = None
        self._covered = -1  # the last copy covers all records before this physical offset

    def forget(self) -> None:
        """Restart for another connection."""
        self.doubt = None
        self._covered = -1

    def is_covered(self, topic: str, queue_id: int, physical: int) -> bool:
        """Whether a queue is configured here, or no longer exists at the master."""
        return physical < self._covered or self.knows(topic, queue_id)

    def check(self, record: Record) -> None:
        """Set `doubt` if the topic of a record has to be copied first."""
        place = record.topic, record.queue_id
        if (
            record.is_queued
            and not self.is_covered(*place, record.physical)
            and not implausible(*place, record.queue_offset)
        ):
            self.doubt = UnknownTopic(*place, record.physical)

    def decide(self, covered: int) -> None:
        """Resolve a doubt. A copy covers all records before a physical offset."""
        self.doubt = None
        self._covered = max(self._covered, covered)
