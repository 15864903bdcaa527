"""The subjects of `mq top`: brokers, topics, consumer groups and snodes, with their columns."""

from dataclasses import dataclass
from enum import Enum

from mq.client.operations.columns import nested, number, text


class Subject(Enum):
    """The subject of the view."""

    BROKERS = "brokers"
    TOPICS = "topics"
    GROUPS = "groups"
    SNODES = "snodes"


@dataclass(frozen=True)
class TopOptions:
    """The options: times in seconds, `count` results or None for unlimited."""

    subject: Subject
    interval: float
    timeout: float
    count: int | None
    pattern: str
    system: bool

    def takes(self, name: str) -> bool:
        """Return whether to show a name."""
        return self.pattern.lower() in name.lower()


BROKERS = (
    text("brokerName", "Broker"),
    number("brokerId", "Id"),
    text("brokerAddr", "Address"),
    text("cluster", ""),
    text("state", "State"),
    text("version", ""),
    number("inTps", "In/s"),
    number("outTps", "Out/s"),
    number("inBytesPerSecond", "Bytes in/s"),
    number("putLatency99", "Put p99 ms"),
    number("responseMillis", "Response ms"),
    number("diskRatio", "Disk"),
    number("cores", "Cores"),
    number("privateBytes", "Memory"),
    number("producers", "Producers"),
    number("consumers", "Consumers"),
    number("replicationLagBytes", "Lag"),
    number("dispatchBehindBytes", ""),
)
BROKER_DATA = (*BROKERS, nested("putDistribution", "Puts of the last minute by duration"))
TOPICS = (
    text("topic", "Topic"),
    number("inTps", "In/s"),
    number("outTps", "Out/s"),
    number("inBytesPerSecond", "Bytes in/s"),
    number("stored", "Stored"),
    number("groups", "Groups"),
    number("lag", "Lag"),
)
GROUPS = (
    text("group", "Consumer group"),
    number("inTps", "In/s"),
    number("outTps", "Out/s"),
    number("lag", "Lag"),
    text("direction", "Trend"),
    number("lagPerSecond", "Growth/s"),
    number("members", "Members"),
    number("topics", "Topics"),
)
SNODES = (
    text("snodeName", "Snode"),
    text("snodeAddr", "Address"),
    text("cluster", "Cluster"),
    text("state", "State"),
    number("responseMillis", "Response ms"),
)
COLUMNS = {
    Subject.BROKERS: BROKERS,
    Subject.TOPICS: TOPICS,
    Subject.GROUPS: GROUPS,
    Subject.SNODES: SNODES,
}
TOTALS = (
    number("brokers", "Brokers seen"),
    number("unreachable", "Brokers that do not answer"),
    number("inTps", "Messages in per second, of all masters"),
    number("outTps", "Messages out per second, of all brokers"),
    number("inBytesPerSecond", "Bytes in per second, of all masters"),
)
# The default column for sorting; - means descending.
SORTS = {
    Subject.BROKERS: "brokerName",
    Subject.TOPICS: "-inTps",
    Subject.GROUPS: "-lag",
    Subject.SNODES: "snodeName",
}
