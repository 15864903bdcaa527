"""Bytes that were sent through a snode, by topic."""

from collections import Counter

# Limit of topics that are counted by name; others are counted together.
_MOST = 10_000
OTHERS = "(others)"


class TopicSizes:
    """`bytes` and `requests` by topic."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()

    def sent(self, topic: str, size: int, requests: int = 1) -> None:
        """Count requests whose messages an enode has stored."""
        if topic not in self.bytes and len(self.bytes) >= _MOST:
            topic = OTHERS
        self.bytes[topic] += size
        self.requests[topic] += requests
