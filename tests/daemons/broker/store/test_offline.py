"""A log that is read without a broker: what one damaged place costs."""

from pathlib import Path

import pytest

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.offline import Hole, OfflineLog, ReadOnlyFile
from mq.protocol.message import StoredMessage, encode_record
from mq.protocol.record import AT, MAGICS


def record(physical: int, body: bytes) -> bytes:
    message = StoredMessage("Topic", body, {"UNIQ_KEY": "A"})
    message.physical_offset = physical
    return encode_record(message)


@pytest.mark.parametrize("magic", MAGICS)
def test_a_damaged_body_that_looks_like_many_records_is_looked_through_once(
    magic: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends bodies chooses what is in them: 40 KB took minutes in a file of 16 MB."""
    damaged = bytearray(record(0, b"x" + magic * 1000))
    damaged[AT["body_length"] + 4] ^= 1  # the first byte of its body
    whole = record(len(damaged), b"whole")
    (tmp_path / layout.file_name(0)).write_bytes(damaged + whole)
    found: list[int] = []
    find = ReadOnlyFile.find

    def looking(self: ReadOnlyFile, part: bytes, position: int) -> int:
        place = find(self, part, position)
        found.append((self.size if place < 0 else place) - position)
        return place

    monkeypatch.setattr(ReadOnlyFile, "find", looking)
    with OfflineLog([tmp_path]) as log:
        hole, behind, *_ = log.walk()
    assert isinstance(hole, Hole) and hole.size == len(damaged)
    assert not isinstance(behind, Hole) and behind.physical == len(damaged)
    assert sum(found) <= 2 * len(MAGICS) * log.files[0].size
