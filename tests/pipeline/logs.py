"""Hand-made commit logs with small files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mq.protocol.message import StoredMessage, encode_record
from mq.protocol.record import BLANK, MAGIC_BLANK

FILE_SIZE = 8192
TIME = 1_700_000_000_000


def record(physical: int, body: bytes, **other: Any) -> bytes:
    """A record of queue 0 of topic Orders at a physical offset."""
    values = {
        "properties": {"TAGS": "A"},
        "physical_offset": physical,
        "store_timestamp": TIME + physical,
        "store_host": ("127.0.0.1", 10911),
        "born_host": ("10.0.0.1", 5000),
        "topic": "Orders",
        **other,
    }
    return encode_record(StoredMessage(values.pop("topic"), body, **values))


class Log:
    """The files of a log, as bytes; `places` are the physical offsets of its records."""

    def __init__(self, bodies: Sequence[bytes], start: int = 0, **other: Any) -> None:
        self.files: dict[int, bytearray] = {start: bytearray()}
        self.places: list[int] = []
        for body in bodies:
            self.add(body, **other)

    def add(self, body: bytes, **other: Any) -> int:
        """Append a message, in a new file if it does not fit; returns its physical offset."""
        start, file = self._last()
        size = len(record(0, body, **other))
        if size + 8 > FILE_SIZE - len(file):
            left = FILE_SIZE - len(file)
            file += BLANK.pack(left, MAGIC_BLANK) + bytes(left - 8)
            start, file = start + FILE_SIZE, bytearray()
            self.files[start] = file
        place = start + len(file)
        file += record(place, body, **other)
        self.places.append(place)
        return place

    def _last(self) -> tuple[int, bytearray]:
        start = max(self.files)
        return start, self.files[start]

    def write(self, folder: Path, whole: bool = True) -> Path:
        """Write the files; with `whole`, pad the last one with zeros to its full size."""
        folder.mkdir(parents=True, exist_ok=True)
        for start, data in self.files.items():
            path = folder / f"{start:020d}"
            path.write_bytes(data)
            if whole:
                with open(path, "r+b") as file:
                    file.truncate(FILE_SIZE)
        return folder
