"""Bytes that were sent through a snode, by topic."""

from collections import Counter

# Topics that are counted by name; what is sent to others counts together.
_MOST = 10_000
OTHERS = "(others)"


class TopicSizes:
    """`bytes` and `messages` by topic."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()

    def sent(self, topic: str, size: int, requests: int = 1) -> None:
        """An enode has stored what requests have sent."""
        if topic not in self.bytes and len(self.bytes) >= _MOST:
            topic = OTHERS
        self.bytes[topic] += size
        self.requests[topic] += requests
