from collections.abc import Callable

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.tube import messages
from mq.protocol.tube.errors import MalformedRpc
from mq.protocol.tube.messages import (
    AuthorizedInfo,
    CloseRequestC2M,
    GetMessageResponseB2C,
    HeartRequestC2M,
    RegisterRequestC2B,
    RegisterRequestP2M,
    SendMessageRequestP2B,
    TransferedMessage,
    parse,
)
from tests.protocol.tube.kinds import KINDS, NAMES

KIND: dict[object, type[Message]] = {kind.DESCRIPTOR: kind for kind in KINDS}

Draw = Callable[[st.SearchStrategy[object]], object]

VALUES: dict[int, st.SearchStrategy[object]] = {
    FieldDescriptor.TYPE_STRING: st.text(max_size=20),
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=20),
    FieldDescriptor.TYPE_ENUM: st.integers(0, 2),
}


def filled(draw: Draw, kind: type[Message]) -> Message:
    """A message with a value in each field, and some where there may be many."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            part: type[Message] = KIND[field.message_type]
            if isinstance(value, Message):
                value.CopyFrom(filled(draw, part))
            else:
                value.extend(filled(draw, part) for _ in range(2))
        elif isinstance(value, (str, int, bytes)):
            setattr(message, field.name, draw(VALUES[field.type]))
        else:
            value.extend(draw(st.lists(VALUES[field.type], max_size=3)))
    return message


def test_all_messages_are_exported() -> None:
    assert set(NAMES) | {"parse"} == set(messages.__all__)
    assert len(NAMES) == 52


@given(st.data(), st.sampled_from(KINDS))
def test_what_is_written_is_read(data: st.DataObject, kind: type[Message]) -> None:
    message = filled(data.draw, kind)
    assert parse(kind, message.SerializeToString()) == message


def test_a_request_is_as_the_specification_has_it() -> None:
    close = CloseRequestC2M(clientId="c", groupName="g")
    assert close.SerializeToString() == bytes.fromhex("0a0163120167")


def test_a_message_without_a_required_field_is_refused() -> None:
    with pytest.raises(MalformedRpc, match="CloseRequestC2M without"):
        parse(CloseRequestC2M, bytes.fromhex("0a0163"))


@pytest.mark.parametrize(
    ("kind", "data", "field"),
    [
        (CloseRequestC2M, b"\x0a\x02\xff\xfe\x12\x01g", "clientId"),
        (
            RegisterRequestP2M,
            b"\x0a\x01c\x12\x01t\x12\x01\xff\x18\x01\x22\x01h",
            "topicList",
        ),
    ],
)
def test_text_that_is_not_utf_8_is_refused(kind: type[Message], data: bytes, field: str) -> None:
    with pytest.raises(MalformedRpc, match=f"{field} is not text"):
        parse(kind, data)


def test_text_that_is_not_utf_8_is_refused_in_nested_messages() -> None:
    request = CloseRequestC2M(clientId="c", groupName="g")
    request.authInfo.authInfo.userName = "someone"
    request.authInfo.authInfo.timestamp = 1
    request.authInfo.authInfo.nonce = 1
    request.authInfo.authInfo.othParams = ""
    request.authInfo.authInfo.signature = "s"
    data = request.SerializeToString().replace(b"someone", b"some\xffne")
    with pytest.raises(MalformedRpc, match="userName is not text"):
        parse(CloseRequestC2M, data)


def test_lists_of_messages_have_no_text() -> None:
    listed = {
        KIND[field.message_type]
        for kind in KINDS
        for field in kind.DESCRIPTOR.fields
        if field.type == FieldDescriptor.TYPE_MESSAGE
        and not isinstance(getattr(kind(), field.name), Message)
    }
    assert listed == {TransferedMessage}
    texts = [f.name for f in TransferedMessage.DESCRIPTOR.fields if f.type == f.TYPE_STRING]
    assert texts == []


def test_bytes_that_are_no_text_are_taken_where_bytes_are() -> None:
    request = SendMessageRequestP2B(
        clientId="é",
        topicName="t",
        partitionId=0,
        data=b"\xff\xfe",
        flag=0,
        checkSum=-1,
        sentAddr=-1,
        authInfo=AuthorizedInfo(visitAuthorizedToken=-2),
    )
    assert parse(SendMessageRequestP2B, request.SerializeToString()) == request


def test_fields_that_nobody_knows_are_skipped() -> None:
    data = bytes.fromhex("0a0163120167") + b"\xaa\x06\x03abc" + b"\xf8\x06\x05"
    assert parse(CloseRequestC2M, data).groupName == "g"


def test_groups_within_groups_are_refused_before_they_fill_the_stack() -> None:
    depth = 200_000
    nested = b"\x7b" * depth + b"\x7c" * depth  # groups of the unknown field 15
    with pytest.raises(MalformedRpc):
        parse(CloseRequestC2M, bytes.fromhex("0a0163120167") + nested)


def test_a_million_empty_texts_are_read() -> None:
    data = HeartRequestC2M(
        clientId="c", groupName="g", reportSubscribeInfo=True
    ).SerializeToString()
    assert len(parse(HeartRequestC2M, data + b"\x1a\x00" * 1_000_000).subscribeInfo) == 1_000_000


def test_a_million_empty_messages_are_refused() -> None:
    data = GetMessageResponseB2C(success=True, errCode=200).SerializeToString()
    with pytest.raises(MalformedRpc, match="required"):
        parse(GetMessageResponseB2C, data + b"\x22\x00" * 1_000_000)


@pytest.mark.parametrize(
    "data", [b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05abc", b"\x08", b"\x00", b"\x0e\x01"]
)
def test_lengths_and_types_that_lie_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedRpc):
        parse(RegisterRequestC2B, data)
