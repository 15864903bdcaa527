"""A batch whose decision is damaged in the store, in any field, is not committed again."""

import struct
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mq.protocol.record import MAGIC_V1
from mq.testing import RunningBroker
from tests.pipeline.conftest import require_streams

require_streams()

from mq.pipeline.errors import CommitFailed  # noqa: E402
from mq.pipeline.exactly_once import Transactions  # noqa: E402
from tests.pipeline.prepared import bodies_of, options_for, prepare, settle_quickly  # noqa: E402

MAGIC = struct.pack(">i", MAGIC_V1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    settle_quickly(monkeypatch)


def damage(root: Path, query: str, place: Callable[[bytes, str], int]) -> None:
    """Change a bit of the record with the decision of a query."""
    path = root / "store" / "commitlog" / f"{0:020}"
    with path.open("rb") as file:
        data = file.read(1 << 20)
    start = data.rindex(MAGIC, 0, data.index(f'"query":"{query}'.encode())) - 4
    (size,) = struct.unpack_from(">i", data, start)
    at = start + place(data[start : start + size], query)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([data[at] ^ 1]))


def in_tags(record: bytes, query: str) -> int:
    return record.rindex(f"D{query}".encode()) + 3


PLACES: dict[str, Callable[[bytes, str], int]] = {
    "the magic number": lambda record, query: 5,
    "the queue id": lambda record, query: 12,
    "the queue offset": lambda record, query: 20,
    "the body": lambda record, query: record.index(b'"query"') + 3,
}


@pytest.mark.parametrize("where", PLACES)
def test_a_batch_whose_decision_is_damaged_is_not_committed_again(
    where: str, tmp_path: Path
) -> None:
    with RunningBroker(tmp_path) as broker:
        broker.create_topic("T", 1)
        query, options = str(uuid.uuid4()), options_for(broker, "T")
        with Transactions(options) as transactions:
            transactions.commit_once(query, 0, prepare(options, ["a"]))
        damage(tmp_path, query, PLACES[where])
        prepared = prepare(options, ["a"])
        # the search then checks whether the record has been deleted
        patient = replace(options, timeout_ms=2000)
        with Transactions(patient) as transactions:
            with pytest.raises(CommitFailed, match=r"a record from offset \d on is damaged"):
                transactions.commit_once(query, 0, prepared)
        assert bodies_of(broker, "T") == ["a"]


@pytest.mark.parametrize("at", [0, -6])
def test_a_decision_with_a_damaged_tag_property_counts(at: int, tmp_path: Path) -> None:
    """Only the body decides, and it has a checksum."""
    with RunningBroker(tmp_path) as broker:
        broker.create_topic("T", 1)
        query, options = str(uuid.uuid4()), options_for(broker, "T")
        with Transactions(options) as transactions:
            transactions.commit_once(query, 0, prepare(options, ["a"]))
            transactions.commit_once(str(uuid.uuid4()), 1, prepare(options, ["b"]))
        damage(tmp_path, query, lambda record, query: in_tags(record, query) + at)
        with Transactions(options) as transactions:
            transactions.commit_once(query, 0, prepare(options, ["a"]))
        assert bodies_of(broker, "T") == ["a", "b"]
