"""What is fuzzed: functions of bytes that raise only what their readers declare.

Each target takes any bytes. It raises nothing for what is refused in the declared way, so whatever
does come out of it is a defect. Those that need a daemon or a store are in modules of their own.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from mq.daemons.broker.filters.errors import FilterSyntaxError
from mq.daemons.broker.filters.sql92 import read_filter
from mq.daemons.broker.replication.controlled_frames import MasterReader, SlaveReader
from mq.daemons.broker.replication.epochs import decode as decode_epochs
from mq.daemons.broker.replication.epochs import encode as encode_epochs
from mq.daemons.broker.replication.frames import BadFrame, FrameReader, OffsetReader
from mq.daemons.broker.send.batches import messages_of
from mq.daemons.broker.usual_properties import UsualProperties
from mq.daemons.dispatch import Refused
from mq.protocol import bodies, fastjson, frame, properties
from mq.protocol.batch import decode_batch
from mq.protocol.command_reader import CommandReader
from mq.protocol.compression import CompressionType, decompress
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers import HEADERS
from mq.protocol.message import decode_records
from mq.protocol.message_id import decode_offset_id, decode_unique_id

BY_NUMBER = {int(code): header for code, header in HEADERS.items()}
BODIES = [
    body
    for subject, names in bodies.SUBJECTS.items()
    if subject not in ("schema", "enums")
    for body in (getattr(bodies, name) for name in names)
]
MOST_INFLATED = 1 << 20
_USUAL = UsualProperties("CLUSTER\x01c")  # kept: names that have come often are read otherwise


@dataclass(frozen=True)
class Target:
    """A function of bytes, how long an input may be, and what ends what the function needs."""

    run: Callable[[bytes], object]
    longest: int = 4096
    close: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def frames(data: bytes) -> None:
    """A frame without its length: either serialization, then the header that its code has."""
    try:
        command = frame.decode(data)
        header = BY_NUMBER.get(command.code)
        if header is not None:
            header.decode(command.fields)
    except RemoteProtocolError:
        pass


def stream(data: bytes) -> None:
    """What a connection reads, in two pieces."""
    connection = CommandReader()
    middle = len(data) // 2
    try:
        for part in (data[:middle], data[middle:]):
            for command in connection.receive(part):
                bytes(command.body)
    except RemoteProtocolError:
        pass


def headers(data: bytes) -> None:
    """Fields of any header: its number, then names and values between zero bytes."""
    known = list(BY_NUMBER.values())
    header = known[data[0] % len(known)] if data else known[0]
    words = data[1:].decode("utf-8", "replace").split("\0")
    names = [field.wire for field in header.FIELDS]
    fields = dict(zip(names, words, strict=False)) | dict(
        zip(words[::2], words[1::2], strict=False)
    )
    try:
        header.decode(fields)
    except RemoteProtocolError:
        pass


def property_texts(data: bytes) -> None:
    """The properties of a message, read and written again."""
    try:
        found = properties.decode(data.decode("utf-8", "surrogateescape"))
    except RemoteProtocolError:
        return
    properties.encode(found)


def batches(data: bytes) -> None:
    """The body of a batch, as consumers read it and as the broker takes it."""
    try:
        list(decode_batch(data))
    except RemoteProtocolError:
        pass
    try:
        messages_of(data, "Topic", {"CLUSTER": "c"}, _USUAL)
    except (RemoteProtocolError, Refused):
        pass


def records(data: bytes) -> None:
    """Records as a pull brings them."""
    try:
        for message in decode_records(data):
            assert message.properties is not None
            assert message.message_id and message.born_host
    except RemoteProtocolError:
        pass


def compressed(data: bytes) -> None:
    """A body in each of the three codecs."""
    kind = CompressionType(data[0] % 3 + 1) if data else CompressionType.ZLIB
    try:
        decompress(data[1:], kind.sys_flag, limit=MOST_INFLATED)
    except RemoteProtocolError:
        pass


@cache
def _subjects() -> tuple[bytes, ...]:
    return tuple(
        properties.encode(found).encode()
        for found in (
            {},
            {"TAGS": "A", "amount": "5", "price": "1.5e3", "flag": "true", "name": "o'x_%"},
            {"amount": "-9223372036854775808", "price": "NaN", "a": "", "b": "0x10"},
        )
    )


def sql92(data: bytes) -> None:
    """An expression, evaluated over properties if it can be read."""
    try:
        matches = read_filter(data.decode("utf-8", "replace"))
    except FilterSyntaxError:
        return
    for subject in _subjects():
        matches.matches(subject)


def json_texts(data: bytes) -> None:
    """JSON as fastjson writes it."""
    try:
        fastjson.loads(data)
    except fastjson.MalformedJson:
        pass


def body_texts(data: bytes) -> None:
    """The body of any request or response: its number, then the text."""
    body = BODIES[data[0] % len(BODIES)] if data else BODIES[0]
    try:
        read = body.decode(data[1:])
    except RemoteProtocolError:
        return
    read.encode()


def ids(data: bytes) -> None:
    """Message ids."""
    text = data.decode("utf-8", "replace")
    for read in (decode_unique_id, decode_offset_id):
        try:
            read(text)
        except ValueError:
            pass


def sizes(data: bytes) -> None:
    """Frames whose length and header length say what they like."""
    if len(data) >= 8:
        length, word = struct.unpack_from(">iI", data)
        stream(struct.pack(">iI", length % 65536, word) + data[8:])


def replication(data: bytes) -> None:
    """What a master or a slave says on the port of replication, whole and in two pieces; and the
    file of the epochs."""
    middle = len(data) // 2
    for make in (OffsetReader, SlaveReader, FrameReader, MasterReader):
        whole = _heard(make(), (data,))
        assert whole == _heard(make(), (data[:middle], data[middle:])), make
    try:
        epochs = decode_epochs(data)
    except ValueError:
        return
    assert decode_epochs(encode_epochs(epochs)) == epochs


def _heard(reader: Any, parts: tuple[bytes, ...]) -> list[object]:
    """Return what a reader yields: adjacent bytes are joined, with their start."""
    found: list[tuple[object, bytes]] = []
    end: object = None  # what the next bytes say of themselves if they follow
    try:
        for part in parts:
            for word in reader.read(part):
                if not (isinstance(word, tuple) and isinstance(word[-1], memoryview)):
                    found.append((word, b""))
                    end = None
                    continue
                offset, *more, piece = word
                if piece and end == (offset, more):
                    found[-1] = found[-1][0], found[-1][1] + bytes(piece)
                else:
                    found.append(((offset, more), bytes(piece)))
                end = (offset + len(piece), more) if piece else None
    except BadFrame:
        found.append(("refused", b""))
    # Of offsets that come together the plain reader gives the ends.
    return list(found[-1:] if isinstance(reader, OffsetReader) else found)


TARGETS: dict[str, Target] = {
    "frames": Target(frames),
    "stream": Target(stream),
    "sizes": Target(sizes),
    "headers": Target(headers, 1024),
    "properties": Target(property_texts),
    "batches": Target(batches),
    "records": Target(records),
    "compressed": Target(compressed),
    "sql92": Target(sql92, 256),
    "json": Target(json_texts),
    "bodies": Target(body_texts),
    "ids": Target(ids, 128),
    "replication": Target(replication, 512),
}
