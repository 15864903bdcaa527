"""Damaged inputs for all readers of a peer's bytes: 200,000 in `make test-more`.

No reader may raise anything but its declared errors. The seed is fixed, so failures are
reproducible.
"""

import random
from collections.abc import Callable, Sequence

import pytest

from mq.protocol import bodies, fastjson, frame, properties
from mq.protocol.batch import decode_batch, encode_batch
from mq.protocol.codes import RequestCode
from mq.protocol.command import JSON, ROCKETMQ, Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.compression import CompressionType, compress, decompress
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers import HEADERS
from mq.protocol.message import Message, StoredMessage, decode_records, encode_record
from mq.protocol.message_id import decode_offset_id, decode_unique_id
from tests.conftest import share
from tests.fuzzing.mutation import mutated

Reader = Callable[[bytes], object]

BY_NUMBER = {int(code): header for code, header in HEADERS.items()}
PULL = {f.wire: "-5" for f in HEADERS[RequestCode.PULL_MESSAGE].FIELDS}
MESSAGES = [
    StoredMessage("TopicTest", b"Hello" * 5, {"TAGS": "TagA", "KEYS": "a b"}, queue_id=3),
    StoredMessage("T", b"x", version=2, born_host=("::1", 5), store_host=("2001:db8::1", 1)),
    StoredMessage("T", compress(b"x" * 300), sys_flag=CompressionType.ZLIB.sys_flag),
    StoredMessage("T", compress(b"x" * 300, CompressionType.LZ4), sys_flag=0x101),
    StoredMessage("T", compress(b"x" * 300, CompressionType.ZSTD), sys_flag=0x201),
]
JSON_TEXTS = [
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:1"},"brokerName":"a","cluster":"c"}],'
    b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4}],"x":{"$ref":"$.queueDatas[0]"}}',
    b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":2,"topic":"t"}:'
    b'{"brokerOffset":5,"consumerOffset":3,"lastTimestamp":0}}}',
    b'{"consumerDataSet":[{"groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":['
    b'{"codeSet":[1],"subString":"*","tagsSet":["a"],"topic":"t"}]}],"producerDataSet":[]}',
]
BODIES = [
    body
    for subject, names in bodies.SUBJECTS.items()
    if subject not in ("schema", "enums")
    for body in (getattr(bodies, name) for name in names)
]


def read_frame(data: bytes) -> None:
    command = frame.decode(data)
    header = BY_NUMBER.get(command.code)
    if header is not None:
        header.decode(command.fields)


def read_header(data: bytes) -> None:
    HEADERS[RequestCode.PULL_MESSAGE].decode(properties.decode(data.decode("latin-1")))


def read_stream(data: bytes) -> None:
    connection = CommandReader()
    middle = len(data) // 2
    list(connection.receive(data[:middle]))
    list(connection.receive(data[middle:]))


def read_records(data: bytes) -> None:
    for message in decode_records(data):
        assert message.properties is not None
        assert message.message_id and message.born_host


def read_body(data: bytes) -> None:
    BODIES[len(data) % len(BODIES)].decode(data)


def read_compressed(data: bytes) -> None:
    kind = CompressionType(data[0] % 3 + 1) if data else CompressionType.ZLIB
    decompress(data[1:], kind.sys_flag, limit=10_000)


def read_id(data: bytes) -> None:
    text = data.decode("latin-1")
    decode_unique_id(text)
    decode_offset_id(text)


def commands(serialization: int) -> list[bytes]:
    """A request of each kind, all its fields there."""
    frames = []
    for code in (11, 30, 310, 103, 15, 17, 222):
        fields = {f.wire: "3" for f in HEADERS[RequestCode(code)].FIELDS}
        command = Command(code, fields, b"body", opaque=code, remark="why")
        command.serialization = serialization
        frames.append(frame.encode(command))
    return frames


FRAMES = commands(JSON) + commands(ROCKETMQ)
RECORDS = [encode_record(message) for message in MESSAGES]
PACKED = [bytes([kind - 1]) + compress(b"some text " * 30, kind) for kind in CompressionType]
BATCH = encode_batch([Message("T", b"hi", "A"), Message("T", b"there", keys="k")])
ID = b"7F00000100002A9F00000000000004D2"

CASES: list[tuple[str, Reader, Sequence[bytes], int, tuple[type[Exception], ...]]] = [
    ("frame", read_frame, [f[4:] for f in FRAMES], 60_000, (RemoteProtocolError,)),
    ("stream", read_stream, FRAMES, 20_000, (RemoteProtocolError,)),
    ("header", read_header, [properties.encode(PULL).encode()], 20_000, (RemoteProtocolError,)),
    ("records", read_records, [*RECORDS, b"".join(RECORDS)], 40_000, (RemoteProtocolError,)),
    ("body", read_body, JSON_TEXTS, 20_000, (RemoteProtocolError,)),
    ("json", fastjson.loads, JSON_TEXTS, 15_000, (fastjson.MalformedJson,)),
    ("batch", lambda data: list(decode_batch(data)), [BATCH], 10_000, (RemoteProtocolError,)),
    ("compressed", read_compressed, PACKED, 10_000, (RemoteProtocolError,)),
    ("id", read_id, [ID], 5_000, (ValueError,)),
]


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "read", "seeds", "count", "declared"), CASES, ids=[case[0] for case in CASES]
)
def test_damaged_input_raises_only_what_is_declared(
    name: str,
    read: Reader,
    seeds: Sequence[bytes],
    count: int,
    declared: tuple[type[Exception], ...],
) -> None:
    count = share(count)
    chance = random.Random(name)
    refused = 0
    for _ in range(count):
        data = mutated(chance, seeds)
        try:
            read(data)
        except declared:
            refused += 1
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}\ninput: {data.hex()}")
    assert count // 50 < refused < count  # damage is found, and some is harmless


def test_the_inputs_are_200_000() -> None:
    assert sum(case[3] for case in CASES) == 200_000


@pytest.mark.parametrize(
    "case", [case for case in CASES if case[0] != "body"], ids=lambda case: str(case[0])
)
def test_the_seeds_themselves_are_read(
    case: tuple[str, Reader, Sequence[bytes], int, tuple[type[Exception], ...]],
) -> None:
    _, read, seeds, _, _ = case
    for seed in seeds:
        read(seed)
