"""The producers that have registered with a master, and their topics."""

from mq.daemons.tube.master.groups import Refused
from mq.protocol.tube.codes import Code

# Limits for the memory of all producers together.
MOST_PRODUCERS = 50_000
MOST_TOPICS = 1_000_000  # named by producers; each takes some hundred bytes


class Producers:
    """The registered producers, by id."""

    def __init__(self) -> None:
        self._topics: dict[str, frozenset[str]] = {}
        self._of_topic: dict[str, set[str]] = {}
        self._named = 0
        self.most = MOST_PRODUCERS

    def __len__(self) -> int:
        return len(self._topics)

    def book(self, producer_id: str, topics: frozenset[str]) -> None:
        """Record the topics of a producer. Raises Refused if there are too many."""
        if producer_id not in self._topics and len(self._topics) >= self.most:
            raise Refused(Code.SERVICE_UNAVAILABLE, f"there are {self.most} producers already")
        before = self._topics.get(producer_id, frozenset())
        if topics == before and producer_id in self._topics:
            return
        named = self._named - len(before) + len(topics)
        if named > MOST_TOPICS:
            raise Refused(Code.SERVICE_UNAVAILABLE, "producers name more topics than can be kept")
        self.remove(producer_id)
        self._named = named
        self._topics[producer_id] = topics
        for topic in topics:
            self._of_topic.setdefault(topic, set()).add(producer_id)

    def of(self, topic: str) -> list[str]:
        """Return the producers of a topic."""
        return sorted(self._of_topic.get(topic, ()))

    def remove(self, producer_id: str) -> bool:
        """Remove a producer; return whether it was known."""
        topics = self._topics.pop(producer_id, None)
        self._named -= len(topics or ())
        for topic in topics or ():
            there = self._of_topic[topic]
            there.discard(producer_id)
            if not there:
                del self._of_topic[topic]
        return topics is not None

    def clear(self) -> None:
        self._topics.clear()
        self._of_topic.clear()
        self._named = 0
