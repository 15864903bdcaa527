"""Requests of senders, decoded natively and by protobuf: both give the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.daemons.tube.broker.sends import Sent, read_in_python, read_send
from mq.protocol.native import native
from mq.protocol.tube.errors import MalformedRpc
from mq.protocol.tube.messages import AuthorizedInfo, SendMessageRequestP2B
from mq.protocol.tube.payload import checksum, key_code

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")

INT = st.integers(-(1 << 31), (1 << 31) - 1) | st.sampled_from([0, -1, 10_001])
TEXT = st.text(max_size=12) | st.sampled_from(["", "orders", " new ", "\x1fnew", "ü", "a b"])
TOKENS = st.none() | st.builds(
    AuthorizedInfo,
    visitAuthorizedToken=st.integers(-(1 << 63), (1 << 63) - 1),
    authAuthorizedToken=st.none() | TEXT,
)
SENDS = st.builds(
    SendMessageRequestP2B,
    clientId=TEXT,
    topicName=TEXT,
    partitionId=INT,
    data=st.binary(max_size=200),
    flag=INT,
    checkSum=INT,
    sentAddr=INT,
    msgType=st.none() | TEXT,
    msgTime=st.none() | TEXT,
    authInfo=TOKENS,
)


def by_protobuf(body: bytes) -> Sent | None:
    try:
        return read_in_python(body)
    except MalformedRpc:
        return None


@given(SENDS)
def test_what_a_client_writes_is_read_as_by_protobuf(send: SendMessageRequestP2B) -> None:
    assert read_send(send.SerializeToString()) == by_protobuf(send.SerializeToString())


@given(SENDS, st.data())
def test_damaged_requests_are_read_as_by_protobuf_or_left_to_it(
    send: SendMessageRequestP2B, data: st.DataObject
) -> None:
    body = bytearray(send.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        change = data.draw(st.sampled_from(["byte", "cut", "twice"]))
        if change == "byte":
            body[at] = data.draw(st.integers(0, 255))
        elif change == "cut":
            body = body[: at + 1]
        else:
            body += body[at:]
    found = native.read_send(bytes(body))
    assert found is None or found == by_protobuf(bytes(body))


def test_the_usual_request_is_read_natively() -> None:
    send = SendMessageRequestP2B(
        clientId="127.0.0.1-1-2-3-1.7.0",
        topicName="orders",
        partitionId=10_001,
        data=b"payload",
        flag=1,
        checkSum=-1,
        sentAddr=-1,
        msgType=" new ",
        msgTime="202611230930",
        authInfo=AuthorizedInfo(visitAuthorizedToken=-2),
    )
    assert native.read_send(send.SerializeToString()) == (
        *("127.0.0.1-1-2-3-1.7.0", "orders", 10_001, b"payload", checksum(b"payload"), -1, -1),
        *(key_code("new"), 1, (-2, "")),
    )


@pytest.mark.parametrize("unknown", [b"\x58\x01", b"\xa2\x06\x00"])  # fields 11 and 100
def test_a_field_of_a_later_release_is_left_to_protobuf(unknown: bytes) -> None:
    send = SendMessageRequestP2B(
        clientId="c", topicName="t", partitionId=0, data=b"x", flag=0, checkSum=-1, sentAddr=1
    )
    body = send.SerializeToString()
    assert native.read_send(body) is not None
    assert native.read_send(body + unknown) is None
    assert read_send(body + unknown) == read_send(body)
