"""Bytes of the real peers are read, and written again as they were: tests/vectors/README.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mq.protocol import bodies, frame, headers
from mq.protocol.batch import decode_batch
from mq.protocol.bodies.schema import Body
from mq.protocol.codes import LanguageCode, RequestCode
from mq.protocol.command import JSON, ROCKETMQ, Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.compression import decompress
from mq.protocol.fastjson import loads
from mq.protocol.flags import SysFlag
from mq.protocol.headers import HEADERS
from mq.protocol.headers.schema import Header
from mq.protocol.headers.send import SendMessageRequestHeaderV2
from mq.protocol.message import decode_records, encode_record
from mq.protocol.properties import PropertyKey
from mq.protocol.properties import decode as decode_properties

VECTORS = Path(__file__).parents[1] / "vectors"


class Vector(NamedTuple):
    release: str
    command: Command
    request: RequestCode  # its own code, or that of the request that it answers
    data: bytes


def read_vectors() -> Iterator[Vector]:
    for path in sorted(VECTORS.glob("*/*.txt")):
        lines = path.read_text().splitlines()
        for title, line in zip(lines[::2], lines[1::2], strict=True):
            data = bytes.fromhex(line[2:])
            (command,) = CommandReader().receive(data)
            code = int(title.split()[-1])
            yield Vector(path.parent.name, command, RequestCode(code), data)


ALL = list(read_vectors())
REQUESTS = [vector for vector in ALL if not vector.command.is_response]
ANSWERS = [vector for vector in ALL if vector.command.is_response]

REQUEST_BODIES: dict[int, type[Body]] = {
    RequestCode.REGISTER_BROKER: bodies.RegisterBrokerBody,
    RequestCode.HEART_BEAT: bodies.HeartbeatData,
    RequestCode.LOCK_BATCH_MQ: bodies.LockBatchRequestBody,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: bodies.SubscriptionGroupConfig,
}
ANSWER_BODIES: dict[int, type[Body]] = {
    RequestCode.REGISTER_BROKER: bodies.KVTable,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: bodies.TopicRouteData,
    RequestCode.GET_BROKER_CLUSTER_INFO: bodies.ClusterInfo,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: bodies.TopicList,
    RequestCode.GET_TOPIC_STATS_INFO: bodies.TopicStatsTable,
    RequestCode.GET_CONSUME_STATS: bodies.ConsumeStats,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: bodies.ConsumerConnection,
    RequestCode.GET_CONSUMER_RUNNING_INFO: bodies.ConsumerRunningInfo,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: bodies.GetConsumerListByGroupResponseBody,
    RequestCode.LOCK_BATCH_MQ: bodies.LockBatchResponseBody,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: bodies.GroupList,
    RequestCode.VIEW_BROKER_STATS_DATA: bodies.BrokerStatsData,
    RequestCode.GET_BROKER_CONSUME_STATS: bodies.ConsumeStatsList,
    RequestCode.QUERY_CONSUME_QUEUE: bodies.QueryConsumeQueueResponseBody,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: bodies.ResetOffsetBody,
    RequestCode.GET_TOPIC_CONFIG: bodies.TopicConfigAndQueueMapping,
}
# Extra fields that no header has: of answers to sends, and of those to heartbeats (5.x).
BESIDE_THE_HEADER = {"MSG_REGION", "TRACE_ON", "IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE"}
MESSAGE_ANSWERS = {RequestCode.PULL_MESSAGE, RequestCode.QUERY_MESSAGE}
ANSWER_HEADERS: dict[int, type[Header]] = {
    code: header
    for names in headers.SUBJECTS.values()
    for header in (getattr(headers, name) for name in names)
    for code in header.ANSWERS
}


def name_of(vector: Any) -> str:
    kind = "answer" if vector.command.is_response else "request"
    return f"{vector.release}-{vector.request.name}-{kind}"


@pytest.mark.parametrize("vector", ALL, ids=name_of)
def test_a_frame_survives_being_written_again(vector: Vector) -> None:
    command = vector.command
    assert command.language == LanguageCode.JAVA
    again = frame.encode(command)
    (copy,) = CommandReader().receive(again)
    for name in filter(str.isalpha, Command.__slots__):  # not what was read from them
        assert getattr(copy, name) == getattr(command, name), name


def test_both_serializations_were_recorded() -> None:
    assert {vector.command.serialization for vector in ALL} == {JSON, ROCKETMQ}


@pytest.mark.parametrize("vector", REQUESTS, ids=name_of)
def test_a_request_header_is_read_and_written_again(vector: Vector) -> None:
    fields = dict(vector.command.fields)
    header = HEADERS.get(vector.request)
    if header is None:
        assert fields == {}
        return
    fields.pop("_UNIQUE_KEY_QUERY", None)  # beside the header, for QUERY_MESSAGE
    assert header.decode(fields).encode() == fields


@pytest.mark.parametrize("vector", [v for v in ANSWERS if v.command.fields], ids=name_of)
def test_a_response_header_is_read_and_written_again(vector: Vector) -> None:
    fields = {
        name: value
        for name, value in vector.command.fields.items()
        if name not in BESIDE_THE_HEADER
    }
    if fields:
        header = ANSWER_HEADERS[vector.request]
        assert header.decode(fields).encode() == fields


def lost(original: Any, again: Any) -> bool:
    """Whether something that Java wrote is not there again; more may be, with its default."""
    if isinstance(original, dict):
        return any(
            value is not None and (key not in again or lost(value, again[key]))
            for key, value in original.items()
        )
    if isinstance(original, list):  # perhaps a set, which has no order
        left = list(again)
        for item in original:
            twin = next((i for i, other in enumerate(left) if not lost(item, other)), None)
            if twin is None:
                return True
            del left[twin]
        return bool(left)
    return bool(original != again)


def body_vectors() -> list[tuple[Vector, type[Body]]]:
    table = [(REQUESTS, REQUEST_BODIES), (ANSWERS, ANSWER_BODIES)]
    return [
        (vector, classes[vector.request])
        for vectors, classes in table
        for vector in vectors
        if vector.command.body and vector.request in classes
    ]


@pytest.mark.parametrize(
    ("vector", "body"), body_vectors(), ids=lambda v: getattr(v, "__name__", "")
)
def test_a_body_is_read_and_written_again(vector: Vector, body: type[Body]) -> None:
    data = bytes(vector.command.body)
    decoded = body.decode(data)
    assert body.decode(decoded.encode()) == decoded
    assert not lost(loads(data), loads(decoded.encode()))


def test_every_body_that_was_recorded_is_known() -> None:
    known = {(False, code) for code in REQUEST_BODIES} | {(True, code) for code in ANSWER_BODIES}
    known |= {(True, code) for code in MESSAGE_ANSWERS}
    sends = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
    known |= {(False, code) for code in sends}
    seen = {(v.command.is_response, v.request) for v in ALL if v.command.body}
    assert seen <= known
    assert len(seen) > 15


def test_recorded_messages_are_read_and_written_again() -> None:
    topics = set()
    for vector in ANSWERS:
        if vector.request in MESSAGE_ANSWERS and vector.command.body:
            data = bytes(vector.command.body)
            for message in decode_records(data, check_crc=True):
                topics.add(message.topic)
                assert message.body.startswith(b"java-")
                assert message.properties[PropertyKey.UNIQUE_KEY] == message.message_id
            stored = decode_records(data, decompress=False)
            assert b"".join(map(encode_record, stored)) == data
    assert "VectorTopic" in topics


def test_recorded_compressed_bodies_are_restored() -> None:
    bodies_sent = []
    for vector in REQUESTS:
        if vector.request == RequestCode.SEND_MESSAGE_V2:
            header = SendMessageRequestHeaderV2.decode(vector.command.fields)
            if header.sys_flag & SysFlag.COMPRESSED:
                bodies_sent.append(decompress(vector.command.body, header.sys_flag))
    assert bodies_sent
    for body in bodies_sent:
        assert body == b"java-0".ljust(5000, b".")


def test_recorded_batches_are_read() -> None:
    batches = [v for v in REQUESTS if v.request == RequestCode.SEND_BATCH_MESSAGE]
    assert {v.release for v in batches} == {"4.9", "5.5"}
    for vector in batches:
        elements = list(decode_batch(vector.command.body))
        assert [bytes(e.body) for e in elements] == [b"java-0", b"java-1", b"java-2"]
        assert decode_properties(str(elements[0].properties, "utf-8"))["TAGS"] == "tag-java"
