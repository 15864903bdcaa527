"""Answers to gets: the interpreter and the native path read them alike."""

from collections.abc import Iterable
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.tube.decoding import GetAnswer, decode_get_answer
from mq.client.tube.message import TubeMessage
from mq.protocol.native import native
from mq.protocol.tube.codes import UNDEFINED, Code
from mq.protocol.tube.errors import MalformedRpc
from mq.protocol.tube.messages import GetMessageResponseB2C, TransferedMessage
from tests.client.tube.scripted import message

BOTH = pytest.mark.parametrize(
    "interpreted",
    [
        True,
        pytest.param(False, marks=pytest.mark.skipif(native is None, reason="no native path")),
    ],
)


def answer(*messages: TransferedMessage, **fields: object) -> bytes:
    made = GetMessageResponseB2C(success=True, errCode=200, messages=messages, **fields)  # type: ignore[arg-type]
    return made.SerializeToString()


def stored(payload: bytes, flag: int, number: int = 1) -> TransferedMessage:
    checksum = crc32(payload) & 0x7FFFFFFF
    return TransferedMessage(messageId=number, checkSum=checksum, payLoadData=payload, flag=flag)


@BOTH
def test_the_fields_of_an_answer_are_read_and_those_it_lacks_are_undefined(
    interpreted: bool,
) -> None:
    bare = decode_get_answer(answer(), "orders", interpreted=interpreted)
    assert bare == GetAnswer(
        True, 200, "", UNDEFINED, UNDEFINED, False, UNDEFINED, False, UNDEFINED, [], 0, 0, 0
    )
    whole = answer(
        errMsg="so be it ✓",
        currOffset=28,
        minLimitTime=300,
        escFlowCtrl=True,
        currDataDlt=-1,
        requireSlow=True,
        maxOffset=2**40,
    )
    found = decode_get_answer(whole, "orders", interpreted=interpreted)
    assert found[2:9] == ("so be it ✓", 28, 300, True, -1, True, 2**40)


@BOTH
def test_a_message_has_its_topic_body_number_flag_and_attributes(interpreted: bool) -> None:
    attributes = b"\0\0\0\x03a=1hello"  # the vector of the format: checksum 683219854
    messages = [
        TransferedMessage(messageId=7, checkSum=683219854, payLoadData=attributes, flag=1),
        TransferedMessage(messageId=-8, checkSum=907060870, payLoadData=b"hello", flag=2),
    ]
    found = decode_get_answer(answer(*messages), "orders", interpreted=interpreted)
    assert found.messages == [
        TubeMessage("orders", b"hello", 7, 1, "a=1"),
        TubeMessage("orders", b"hello", -8, 2, ""),
    ]
    assert all(type(one) is TubeMessage for one in found.messages)
    assert (found.size, found.damaged, found.unwanted) == (10, 0, 0)


@BOTH
def test_damaged_messages_are_left_out_and_counted_and_the_others_kept(interpreted: bool) -> None:
    messages = [
        message(1),
        message(2, damaged=True),
        stored(b"\0\0\0", 1),  # no room for the length
        stored(b"\0\0\0\x02a", 1),  # nor for the attributes
        stored(b"\xff\xff\xff\xffbody", 1),  # a length below 0
        stored(b"\0\0\0\0", 1, 6),
        stored(b"", 0, 7),
    ]
    found = decode_get_answer(answer(*messages), "orders", interpreted=interpreted)
    assert [one.message_id for one in found.messages] == [1, 6, 7]
    assert found.damaged == 4


@BOTH
def test_a_filter_lets_through_its_types_and_nothing_without_a_type(interpreted: bool) -> None:
    texts = ["$msgType$=paid", "a=1,$msgType$=paid", "$msgType$=open", "a=1", "", "$msgType$="]
    texts += ["$msgType$=,$msgType$=paid", "$msgType$=open,$msgType$=paid", "$msgType$=paid=x"]
    messages = [
        stored(len(text).to_bytes(4, "big") + text.encode() + b"x", 1, number)
        for number, text in enumerate(texts)
    ]
    messages.append(message(99))
    found = decode_get_answer(answer(*messages), "orders", {b"paid"}, interpreted=interpreted)
    assert [one.message_id for one in found.messages] == [0, 1, 6, 8]
    assert (found.unwanted, found.size) == (6, 4)


@BOTH
@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\x08\x01",  # no code
        b"\x10\xc8\x01",  # no success
        answer()[:-1],
        answer(message(1))[:-1],
        b"\x08\x01\x10\xc8\x01\x22\x02\x08\x01",  # a message that lacks all but its number
        b"\x08\x01\x10\xc8\x01\x1a\x02\xff\xfe",  # a text that is none
    ],
)
def test_what_is_no_answer_is_refused(data: bytes, interpreted: bool) -> None:
    with pytest.raises(MalformedRpc):
        decode_get_answer(data, "orders", interpreted=interpreted)


@BOTH
def test_fields_that_are_unknown_are_passed_over(interpreted: bool) -> None:
    data = answer(message(1)) + b"\xa8\x06\x05" + b"\xb2\x06\x02ab" + b"\xb9\x06" + bytes(8)
    data += b"\xbd\x06" + bytes(4) + b"\xc3\x06\x08\x01\xc4\x06"  # a group at last
    found = decode_get_answer(data, "orders", interpreted=interpreted)
    assert len(found.messages) == 1


@BOTH
def test_of_a_field_that_comes_twice_the_last_one_counts(interpreted: bool) -> None:
    found = decode_get_answer(answer() + b"\x10\x94\x03", "orders", interpreted=interpreted)
    assert found.code == Code.NOT_FOUND


payloads = st.one_of(
    st.binary(max_size=20),
    st.builds(
        lambda text, body: len(text.encode()).to_bytes(4, "big") + text.encode() + body,
        st.text("a=1,$msgType$ü", max_size=20),
        st.binary(max_size=5),
    ),
)
messages_ = st.builds(
    lambda number, payload, flag, off: TransferedMessage(
        messageId=number,
        checkSum=(crc32(payload) & 0x7FFFFFFF) ^ off,
        payLoadData=payload,
        flag=flag,
    ),
    st.integers(-(2**63), 2**63 - 1),
    payloads,
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([0, 0, 0, 1]),
)


def _outcome(data: bytes, wanted: Iterable[bytes] | None, interpreted: bool) -> object:
    kept = None if wanted is None else frozenset(wanted)
    try:
        return decode_get_answer(data, "t", kept, interpreted=interpreted)
    except MalformedRpc:
        return MalformedRpc


@pytest.mark.skipif(native is None, reason="no native path")
@given(
    st.lists(messages_, max_size=4),
    st.none() | st.sets(st.sampled_from([b"1", b"a", b"\xc3\xbc"])),
    st.text(max_size=5),
    st.binary(max_size=4),
    st.integers(0, 200),
)
def test_both_paths_read_the_same(
    given_: list[TransferedMessage], wanted: set[bytes] | None, text: str, noise: bytes, at: int
) -> None:
    data = answer(*given_, errMsg=text)
    for each in (data, data + noise, data[:at] + noise + data[at:]):
        assert _outcome(each, wanted, False) == _outcome(each, wanted, True)
