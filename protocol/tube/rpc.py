"""Requests and responses: the envelope within a frame's payload.

A payload consists of three messages of rpc.proto, each after its length as a varint: RpcConnHeader,
RequestHeader and RequestBody, or RpcConnHeader, ResponseHeader and RspResponseBody or
RspExceptionBody. Bytes after the third are ignored: the C++ client appends zeros.

The writers build bytes directly, because each request and response has the same few headers. The
tests compare them with protobuf's output.
"""

from functools import lru_cache
from typing import NamedTuple

from mq.protocol.tube.codes import SERVICES, UNDEFINED, VERSION, Method, Service
from mq.protocol.tube.errors import MalformedRpc, RemoteFailure
from mq.protocol.tube.frame import encode_frame
from mq.protocol.tube.messages import (
    RequestBody,
    RequestHeader,
    ResponseHeader,
    RpcConnHeader,
    RspExceptionBody,
    RspResponseBody,
    parse,
)

SUCCESS = int(ResponseHeader.SUCCESS)
ERROR = int(ResponseHeader.ERROR)
FATAL = int(ResponseHeader.FATAL)

EXCEPTIONS = "org.apache.inlong.tubemq.corerpc.exception."
_PREFIX = "org.apache.inlong.tubemq."
# MixUtils.replaceClassNamePrefix: "com.apache" looks like a mistake, but clients expect it.
_PREFIXES = {1: "com.tencent.tubemq.", 2: "com.apache.tubemq."}

#: Limit of an exception's text in characters, because it may repeat data of the client.
MAX_TEXT = 4096


class Request(NamedTuple):
    """A request as a server receives it."""

    serial: int
    service: int
    version: int  # UNDEFINED if there is none
    method: int
    timeout_ms: int  # how long the client waits; 0 if unspecified
    body: bytes  # the message of the method


def encode_request(
    serial: int,
    method: Method,
    body: bytes,
    timeout_ms: int,
    *,
    service: Service | None = None,
    version: int = VERSION,
) -> bytes:
    """Return the frame of a request. The default service is the one that has the method."""
    head = _request_head(service or SERVICES[method], version, method, timeout_ms)
    length = varint(len(body))
    third = varint(len(head.body) + 1 + len(length) + len(body))
    return encode_frame(serial, b"%b%b%b\x1a%b%b" % (head.headers, third, head.body, length, body))


def encode_response(serial: int, method: int, body: bytes) -> bytes:
    """Return the frame of a successful response of a method."""
    length = varint(len(body))
    name = varint(method)
    third = varint(2 + len(name) + len(length) + len(body))
    return encode_frame(
        serial, b"%b%b\x08%b\x12%b%b" % (RESPONSE_HEADERS, third, name, length, body)
    )


def encode_failure(
    serial: int, status: int, exception: str, text: str, version: int = VERSION
) -> bytes:
    """Return the frame of a response that is an exception.

    Args:
        status: ERROR if a handler failed, FATAL if there is none, or the request is unreadable.
        exception: its class; without a package it is one of EXCEPTIONS.
        version: the protocol version of the request.
    """
    failure = RspExceptionBody(
        exceptionName=exception_name(exception, version),
        stackTrace=text[:MAX_TEXT].encode("utf-8", "replace").decode(),
    )
    header = ResponseHeader(status=ResponseHeader.Status.Name(status), protocolVer=VERSION)
    parts = (RpcConnHeader(flag=1), header, failure)
    return encode_frame(serial, b"".join(_delimited(part.SerializeToString()) for part in parts))


def exception_name(exception: str, version: int) -> str:
    """Return the class of an exception as clients of this version know it."""
    if "." not in exception:
        exception = EXCEPTIONS + exception
    return exception.replace(_PREFIX, _PREFIXES.get(version, _PREFIX))


def decode_request(serial: int, payload: bytes) -> Request:
    """Parse a request.

    Raises MalformedRpc for a malformed one, with the request's version if that is readable.
    """
    usual = len(payload) > 8 and payload[:5] == _USUAL and payload[6] == 0x10
    if usual and payload[5] | payload[7] < 0x80:
        service, version, third = payload[5], payload[7], 8
    else:
        service, version, third = _request_headers(payload)
    try:
        method, timeout_ms, body = _request_body(payload, third)
    except MalformedRpc as error:
        raise MalformedRpc(str(error), version) from None
    return Request(serial, service, version, method, timeout_ms, body)


# The headers of a request as all clients without trace ids write them: 0 as the flag, a service
# (here it ends), 0x10 and a version.
_USUAL = b"\x02\x08\x00\x04\x08"


def _request_headers(payload: bytes) -> tuple[int, int, int]:
    """Return service and version of a request, and the start of its body."""
    first, second = _bounds(payload, 0)
    start, third = _bounds(payload, second)
    flag = parse(RpcConnHeader, payload[first:second]).flag
    header = parse(RequestHeader, payload[start:third])
    version = header.protocolVer if header.HasField("protocolVer") else UNDEFINED
    if flag != 0:
        raise MalformedRpc(f"a request with the flag {flag}", version)
    return header.serviceType, version, third


def _request_body(payload: bytes, third: int) -> tuple[int, int, bytes]:
    """Return method, timeout and message of the RequestBody at `third`.

    If its fields are in order, as all clients write them, it is parsed here, else by protobuf.
    """
    start, end = _bounds(payload, third)
    if end - start >= 5 and payload[start] == 0x08 and payload[start + 2] == 0x10:
        timeout, position = _varint_at(payload, start + 3)
        if (
            payload[start + 1] < 0x80
            and 0 <= timeout
            and payload[position : position + 1] == b"\x1a"
        ):
            length, position = _varint_at(payload, position + 1)
            if position + length == end and length >= 0:
                return payload[start + 1], timeout, payload[position:end]
    body = parse(RequestBody, payload[start:end])
    return body.method, body.timeout, body.request


def decode_response(payload: bytes, method: int | None = None) -> bytes:
    """Return the message of a response.

    Raises:
        RemoteFailure: the response is an exception.
        MalformedRpc: the response is malformed, or is for another method.
    """
    first, second = _bounds(payload, 0)
    header, third = _bounds(payload, second)
    start, end = _bounds(payload, third)
    if payload[:third] != RESPONSE_HEADERS:
        _check_response(payload[first:second], payload[header:third], payload[start:end])
    answered, data = _response_body(payload, start, end)
    if method is not None and answered != method:
        raise MalformedRpc(f"an answer of the method {answered} instead of {method}")
    return data


def _response_body(payload: bytes, start: int, end: int) -> tuple[int, bytes]:
    """Return method and message of the RspResponseBody, parsed as in _request_body."""
    fields = payload[start : start + 3]
    if fields[::2] == b"\x08\x12" and fields[1] < 0x80:
        first, last = _bounds(payload, start + 3)
        if last == end:
            return fields[1], payload[first:last]
    body = parse(RspResponseBody, payload[start:end])
    return body.method, body.data


def _check_response(connection: bytes, header: bytes, body: bytes) -> None:
    """Check headers that differ from those of a usual successful response."""
    flag = parse(RpcConnHeader, connection).flag
    if flag != 1:
        raise MalformedRpc(f"an answer with the flag {flag}")
    status = parse(ResponseHeader, header).status
    if status != SUCCESS:
        failure = parse(RspExceptionBody, body)
        raise RemoteFailure(status, failure.exceptionName, failure.stackTrace)


def varint(number: int) -> bytes:
    """Encode a non-negative number as a varint."""
    if number < 0x80:
        return _SMALL[number]
    if number < 0x4000:
        return _SMALL[number & 0x7F | 0x80] + _SMALL[number >> 7]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SMALL = [bytes((number,)) for number in range(256)]


def _delimited(message: bytes) -> bytes:
    return varint(len(message)) + message


#: The start of successful responses.
RESPONSE_HEADERS = _delimited(RpcConnHeader(flag=1).SerializeToString()) + _delimited(
    ResponseHeader(status=ResponseHeader.SUCCESS, protocolVer=VERSION).SerializeToString()
)


def _varint_at(data: bytes, position: int) -> tuple[int, int]:
    """Return the varint at `position`, of up to 28 bits, and the position after it; -1 if
    malformed.
    """
    try:
        byte = data[position]
        if byte < 0x80:
            return byte, position + 1
        number = byte & 0x7F
        for shift in (7, 14, 21):
            position += 1
            byte = data[position]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number, position + 1
    except IndexError:
        pass
    return -1, position


def _bounds(payload: bytes, position: int) -> tuple[int, int]:
    """Return start and end of the bytes whose length is at this position. Raises MalformedRpc."""
    length, start = _varint_at(payload, position)
    end = start + length
    if length < 0 or end > len(payload):
        raise MalformedRpc(f"no message at {position} of {len(payload)} bytes")
    return start, end


class _Head(NamedTuple):
    headers: bytes  # the first two messages, with their lengths
    body: bytes  # the third, without the method's message


@lru_cache(maxsize=256)  # methods, and the few timeouts of a client
def _request_head(service: int, version: int, method: int, timeout_ms: int) -> _Head:
    headers = (RpcConnHeader(flag=0), RequestHeader(serviceType=service, protocolVer=version))
    body = RequestBody(method=method, timeout=timeout_ms).SerializeToString()
    return _Head(b"".join(_delimited(part.SerializeToString()) for part in headers), body)
