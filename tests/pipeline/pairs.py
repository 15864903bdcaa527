"""Two brokers, one of which stops, and the messages that a reader of both finds."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql.types import BinaryType, StructType

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.pipeline.batch import BatchReader
from mq.pipeline.offsets import Nested
from mq.pipeline.options import ReadOptions, parse_options
from mq.pipeline.stream import StreamReader
from mq.protocol.bodies import MessageQueue, TopicConfig
from mq.testing import RunningBroker
from tests.interop.ports import free_port
from tests.pipeline.filling import fill
from tests.system.daemon import BrokerProcess

TOPIC = "Orders"
BODY = StructType().add("body", BinaryType())


class Pair:
    """broker-a, which keeps running, and broker-b, a process that can be killed."""

    def __init__(self, first: RunningBroker, second: BrokerProcess) -> None:
        self.first = first
        self.second = second
        self.sent = {"broker-a": 0, "broker-b": 0}

    def create(self, address: str, topic: str = TOPIC) -> None:
        config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=6)
        with BlockingSession(self.first.name_server) as session:
            run(Admin(session).create_topic(address, config))

    def send(self, broker: str, count: int, topic: str = TOPIC) -> list[bytes]:
        begin = self.sent[broker]
        self.sent[broker] += count
        bodies = [f"{broker} {begin + n}".encode() for n in range(count)]
        fill(self.first.name_server, topic, bodies, MessageQueue(topic, broker, 0))
        return bodies

    def options(self, **more: str) -> ReadOptions:
        return parse_options(
            {
                "nameServer": self.first.name_server,
                "topic": TOPIC,
                "startingOffsets": "earliest",
                "numRetries": "1",
                "retryIntervalMs": "50",
                "pullTimeoutMs": "3000",
                **more,
            }
        )

    def stream(self, **more: str) -> StreamReader:
        return StreamReader(self.options(**more), BODY)


@contextmanager
def pair_in(folder: Path) -> Iterator[Pair]:
    """Both brokers run, and each has a queue of the topic."""
    with RunningBroker(folder / "first") as first:
        settings = {
            "brokerName": "broker-b",
            "namesrvAddr": first.name_server,
            "listenPort": str(free_port()),  # a fixed port, so that it restarts at the same address
            "diskMaxUsedSpaceRatio": "95",
        }
        with BrokerProcess(folder / "second", settings) as second:
            pair = Pair(first, second)
            pair.create(first.address)
            pair.create(second.address)
            yield pair


def read(reader: StreamReader | BatchReader, *batch: Nested) -> list[bytes]:
    """Return the sorted bodies that a reader finds, in a micro-batch if it is a stream's."""
    partitions = reader.partitions(*batch)
    return sorted(
        body
        for partition in partitions
        for records in reader.read(partition)
        for body in records.column(0).to_pylist()
    )
