"""The producers that have registered with a master, and what each sends to."""

from mq.daemons.tube.master.groups import Refused
from mq.protocol.tube.codes import Code

MOST_PRODUCERS = 50_000


class Producers:
    """By id."""

    def __init__(self) -> None:
        self._topics: dict[str, frozenset[str]] = {}
        self._of_topic: dict[str, set[str]] = {}
        self.most = MOST_PRODUCERS

    def __len__(self) -> int:
        return len(self._topics)

    def book(self, producer_id: str, topics: frozenset[str]) -> None:
        """What a producer sends to. Raises Refused if there are too many."""
        if producer_id not in self._topics and len(self._topics) >= self.most:
            raise Refused(Code.SERVICE_UNAVAILABLE, f"there are {self.most} producers already")
        self.remove(producer_id)
        self._topics[producer_id] = topics
        for topic in topics:
            self._of_topic.setdefault(topic, set()).add(producer_id)

    def of(self, topic: str) -> list[str]:
        """Who sends to a topic."""
        return sorted(self._of_topic.get(topic, ()))

    def remove(self, producer_id: str) -> bool:
        """A producer has gone; whether it was there."""
        topics = self._topics.pop(producer_id, None)
        for topic in topics or ():
            there = self._of_topic[topic]
            there.discard(producer_id)
            if not there:
                del self._of_topic[topic]
        return topics is not None

    def clear(self) -> None:
        self._topics.clear()
        self._of_topic.clear()
