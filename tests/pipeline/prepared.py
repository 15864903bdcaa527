"""Messages prepared by the tasks of an exactly-once write."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from mq.pipeline import exactly_once
from mq.pipeline.prepared import Prepared
from mq.pipeline.sink import BatchWriter
from mq.pipeline.write_options import WriteOptions, parse_write_options
from mq.testing import RunningBroker
from tests.pipeline.schemas import schema_of

TEXTS = [f"{n}" for n in range(150)]
COLUMNS = "body string, shardingKey string"


def settle_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settle the messages that a dead driver left without a long wait."""
    monkeypatch.setattr(exactly_once, "_SETTLE_SECONDS", 0.2)


def options_for(broker: RunningBroker, topic: str) -> WriteOptions:
    return parse_write_options(
        {"nameServer": broker.name_server, "topic": topic, "exactlyOnce": "true"}
    )


def prepare(options: WriteOptions, bodies: Sequence[str]) -> list[Prepared]:
    """Prepare messages as a task does."""
    schema, arrow = schema_of(COLUMNS)
    keys = [f"key-{len(body)}" for body in bodies]
    batch = pa.RecordBatch.from_arrays([pa.array(bodies), pa.array(keys)], schema=arrow)
    return BatchWriter(options, schema).write(iter([batch])).prepared


def some(prepared: Sequence[Prepared], start: int, stop: int) -> list[Prepared]:
    """The messages between two positions, counted over all queues."""
    found = []
    for each in prepared:
        if start < len(each) and stop > 0:
            found.append(each.part(max(start, 0), stop))
        start, stop = start - len(each), stop - len(each)
    return found


def bodies_of(broker: RunningBroker, topic: str) -> list[str]:
    """The messages of a topic that consumers see, sorted."""
    return sorted(message.body.decode() for message in broker.messages(topic))
