"""What `mq top` can show: brokers, topics, consumer groups and snodes, with their columns."""

from dataclasses import dataclass
from enum import Enum

from mq.cli.show.result import nested, number, text


class Subject(Enum):
    """What the view is about."""

    BROKERS = "brokers"
    TOPICS = "topics"
    GROUPS = "groups"
    SNODES = "snodes"


@dataclass(frozen=True)
class TopOptions:
    """What was asked for: times in seconds, `count` results or None for ever."""

    subject: Subject
    interval: float
    timeout: float
    count: int | None
    pattern: str
    system: bool

    def takes(self, name: str) -> bool:
        """Whether a name is to be shown."""
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
    number("replicationLagBytes", "Behind"),
    number("dispatchBehindBytes", ""),
)
BROKER_DATA = (*BROKERS, nested("putDistribution", "Puts of the last minute by how long they took"))
TOPICS = (
    text("topic", "Topic"),
    number("inTps", "In/s"),
    number("outTps", "Out/s"),
    number("inBytesPerSecond", "Bytes in/s"),
    number("stored", "Stored"),
    number("groups", "Groups"),
    number("lag", "Behind"),
)
GROUPS = (
    text("group", "Consumer group"),
    number("inTps", "In/s"),
    number("outTps", "Out/s"),
    number("lag", "Behind"),
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
    number("brokers", "Brokers that were seen"),
    number("unreachable", "Brokers that do not answer"),
    number("inTps", "Messages in, a second, of all masters"),
    number("outTps", "Messages out, a second, of all brokers"),
    number("inBytesPerSecond", "Bytes in, a second, of all masters"),
)
# The column that rows are sorted by unless something else is asked for; - for the greatest first.
SORTS = {
    Subject.BROKERS: "brokerName",
    Subject.TOPICS: "-inTps",
    Subject.GROUPS: "-lag",
    Subject.SNODES: "snodeName",
}
