import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.tube import messages
from mq.protocol.tube.codes import SERVICES, UNDEFINED, Method, Service
from mq.protocol.tube.errors import MalformedRpc, RemoteFailure
from mq.protocol.tube.frame import FrameDecoder
from mq.protocol.tube.messages import (
    CloseRequestC2M,
    RequestBody,
    RequestHeader,
    ResponseHeader,
    RpcConnHeader,
    RspExceptionBody,
    RspResponseBody,
)
from mq.protocol.tube.rpc import (
    ERROR,
    FATAL,
    MAX_TEXT,
    Request,
    decode_request,
    decode_response,
    encode_failure,
    encode_request,
    encode_response,
    exception_name,
)
from tests.protocol.tube.examples import FRAME, PAYLOAD

CLOSE = CloseRequestC2M(clientId="c", groupName="g").SerializeToString()


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def payload_of(frame: bytes) -> bytes:
    ((_, payload),) = FrameDecoder().feed(frame)
    return payload


def envelope(*parts: messages.RpcConnHeader | messages.RequestHeader | bytes) -> bytes:
    """Three messages as protobuf writes them, each after its length."""
    raw = [part if isinstance(part, bytes) else part.SerializeToString() for part in parts]
    return b"".join(varint(len(part)) + part for part in raw)


def test_the_example_of_the_specification_is_written() -> None:
    frame = encode_request(7, Method.CONSUMER_CLOSE_C2M, CLOSE, 9500, version=2)
    assert frame == FRAME


def test_the_example_of_the_specification_is_read() -> None:
    assert decode_request(7, PAYLOAD) == Request(7, 1, 2, 6, 9500, CLOSE)


def test_each_method_belongs_to_one_service() -> None:
    assert {method: int(service) for method, service in SERVICES.items()} == {
        **dict.fromkeys([*range(1, 10), 20, 21, 22], 1),
        **dict.fromkeys(range(15, 19), 2),
        13: 3,
    }


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(Method),
    st.binary(max_size=20000),
    st.integers(0, 2**31 - 1),
    st.sampled_from((1, 2, 3)),
)
def test_a_request_is_as_protobuf_writes_it_and_is_read_back(
    serial: int, method: Method, body: bytes, timeout: int, version: int
) -> None:
    frame = encode_request(serial, method, body, timeout, version=version)
    third = RequestBody(method=method, timeout=timeout, request=body).SerializeToString()
    header = RequestHeader(serviceType=SERVICES[method], protocolVer=version)
    payload = payload_of(frame)
    assert payload == envelope(RpcConnHeader(flag=0), header, third)
    read = decode_request(serial, payload)
    assert read == Request(serial, SERVICES[method], version, method, timeout, body)


@given(st.integers(0, 200), st.binary(max_size=20000))
def test_an_answer_is_as_protobuf_writes_it_and_is_read_back(method: int, body: bytes) -> None:
    payload = payload_of(encode_response(5, method, body))
    header = ResponseHeader(status=ResponseHeader.SUCCESS, protocolVer=3).SerializeToString()
    third = RspResponseBody(method=method, data=body).SerializeToString()
    assert payload == envelope(RpcConnHeader(flag=1), header, third)
    assert decode_response(payload) == body
    assert decode_response(payload, method) == body


def test_an_answer_with_other_headers_is_read() -> None:
    header = ResponseHeader(status=ResponseHeader.SUCCESS, serviceType=1).SerializeToString()
    connection = RpcConnHeader(flag=1, traceId=5)
    third = RspResponseBody(method=6, data=b"x").SerializeToString()
    assert decode_response(envelope(connection, header, third)) == b"x"


def test_a_request_in_another_order_or_without_a_part_is_read() -> None:
    reordered = b"\x1a\x01x\x08\x06\x10\x05"
    traced = RpcConnHeader(flag=0, traceId=1, spanId=2, parentId=3)
    header = RequestHeader(serviceType=1, protocolVer=3)
    assert decode_request(1, envelope(traced, header, reordered)) == Request(1, 1, 3, 6, 5, b"x")
    bare = envelope(RpcConnHeader(flag=0), RequestHeader(), b"\x08\x06")
    assert decode_request(1, bare) == Request(1, 0, UNDEFINED, 6, 0, b"")


def test_a_negative_timeout_is_read_as_it_is() -> None:
    body = RequestBody(method=6, timeout=-5, request=b"x").SerializeToString()
    header = RequestHeader(serviceType=1, protocolVer=3)
    request = decode_request(1, envelope(RpcConnHeader(flag=0), header, body))
    assert request.timeout_ms == -5


def test_what_trails_is_ignored() -> None:
    # The C++ client counts four bytes for each length, and writes fewer.
    assert decode_request(7, PAYLOAD + bytes(9)) == Request(7, 1, 2, 6, 9500, CLOSE)
    answer = payload_of(encode_response(7, 6, b"x"))
    assert decode_response(answer + b"\0\0\0") == b"x"


def test_fields_that_nobody_knows_are_skipped() -> None:
    unknown = b"\xaa\x06\x03abc"
    header = RequestHeader(serviceType=1, protocolVer=2).SerializeToString() + unknown
    body = RequestBody(method=6, timeout=1, request=b"x").SerializeToString() + unknown
    connection = RpcConnHeader(flag=0).SerializeToString() + unknown
    assert decode_request(1, envelope(connection, header, body)) == Request(1, 1, 2, 6, 1, b"x")


@pytest.mark.parametrize("version", [1, 2, 3, UNDEFINED, 99])
def test_an_exception_is_read_by_name(version: int) -> None:
    frame = encode_failure(3, ERROR, "StandbyException", "10.0.0.1:8715 c", version)
    with pytest.raises(RemoteFailure) as failure:
        decode_response(payload_of(frame))
    assert failure.value.standby
    assert (failure.value.name, failure.value.status) == ("StandbyException", ERROR)
    assert str(failure.value).endswith(".corerpc.exception.StandbyException#10.0.0.1:8715 c")


@pytest.mark.parametrize(
    ("version", "prefix"),
    [
        (1, "com.tencent.tubemq"),
        (2, "com.apache.tubemq"),
        (3, "org.apache.inlong.tubemq"),
        (UNDEFINED, "org.apache.inlong.tubemq"),
    ],
)
def test_exceptions_have_the_package_that_the_client_knows(version: int, prefix: str) -> None:
    name = exception_name("UnknownProtocolException", version)
    assert name == f"{prefix}.corerpc.exception.UnknownProtocolException"
    assert exception_name("java.lang.Exception", version) == "java.lang.Exception"


def test_an_exception_is_as_protobuf_writes_it() -> None:
    header = ResponseHeader(status=ResponseHeader.FATAL, protocolVer=3).SerializeToString()
    third = RspExceptionBody(exceptionName="java.lang.Exception", stackTrace="why")
    payload = payload_of(encode_failure(1, FATAL, "java.lang.Exception", "why"))
    assert payload == envelope(RpcConnHeader(flag=1), header, third.SerializeToString())


def test_what_an_exception_says_is_cut_and_made_text() -> None:
    frame = encode_failure(1, FATAL, "java.lang.Exception", "\udcff" + "x" * 10_000)
    with pytest.raises(RemoteFailure) as failure:
        decode_response(payload_of(frame))
    assert failure.value.text == "?" + "x" * (MAX_TEXT - 1)


@pytest.mark.parametrize(
    ("payload", "version"),
    [
        (b"", 3),
        (PAYLOAD[:-1], 2),
        (PAYLOAD[:8], 2),
        (PAYLOAD[:7], 3),
        (b"\xff\xff\xff\xff\xff\xff", 3),
        (envelope(RpcConnHeader(flag=1), RequestHeader(serviceType=1, protocolVer=1), b""), 1),
        (envelope(RpcConnHeader(flag=0), RequestHeader(serviceType=1, protocolVer=1), b""), 1),
        (envelope(b"", RequestHeader(serviceType=1, protocolVer=1), b"\x08\x06"), 3),
        (envelope(RpcConnHeader(flag=0), b"\x08", b"\x08\x06"), 3),
    ],
)
def test_what_is_no_request_is_refused_with_its_version(payload: bytes, version: int) -> None:
    with pytest.raises(MalformedRpc) as error:
        decode_request(1, payload)
    assert error.value.version == version


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        PAYLOAD,
        payload_of(encode_response(7, 6, b"x"))[:-1],
        payload_of(encode_failure(7, FATAL, "java.lang.Exception", "why"))[:-1],
        envelope(RpcConnHeader(flag=1), b"\x08\x05", b"\x08\x06\x12\x01x"),
        envelope(RpcConnHeader(flag=1), b"\x08\x00", b"\x08\x06"),
    ],
)
def test_what_is_no_answer_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedRpc):
        decode_response(payload)


def test_an_answer_to_another_method_is_refused() -> None:
    with pytest.raises(MalformedRpc, match="method 6 instead of 5"):
        decode_response(payload_of(encode_response(7, 6, b"x")), Method.CONSUMER_HEARTBEAT_C2M)


def test_a_service_may_be_named() -> None:
    frame = encode_request(
        1, Method.SEND_MESSAGE_P2B, b"", 10, service=Service.BROKER_READ, version=2
    )
    assert decode_request(1, payload_of(frame)).service == Service.BROKER_READ
