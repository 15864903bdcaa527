import zlib

import pytest

from mq.client.consumer.send_back import retry_copy
from mq.client.errors import ClientError
from mq.client.machine.random_ids import random_bytes
from mq.client.producer.outgoing import MAX_BODY, MAX_SENT, Draft, draft, draft_batch
from mq.protocol.batch import decode_batch
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.headers.send import SendMessageRequestHeaderV2
from mq.protocol.message import Message, StoredMessage
from mq.protocol.message_id import UniqueIdMaker
from mq.protocol.names import IllegalName
from mq.protocol.properties import decode

QUEUE = MessageQueue("topic", "broker-a", 3)
next_id = UniqueIdMaker("10.0.0.1", 7, lambda: 1_700_000_000.0, salt=1)


def header_of(made: Draft) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2.decode(made.command(QUEUE).fields)


def test_the_fields_written_by_hand_match_the_header() -> None:
    made = draft("group", Message("topic", b"body", "red", ["k"], flag=9), next_id, 4096)
    header = header_of(made)
    assert header.encode() == made.command(QUEUE).fields
    assert (header.producer_group, header.topic, header.default_topic) == (
        *("group", "topic"),
        "TBW102",
    )
    assert (header.queue_id, header.broker_name, header.flag, header.sys_flag) == (
        *(3, "broker-a"),
        *(9, 0),
    )
    assert (header.default_topic_queue_nums, header.batch) == (4, False)
    assert decode(header.properties or "") == {
        "KEYS": "k",
        "TAGS": "red",
        "WAIT": "true",
        "UNIQ_KEY": made.ids,
    }


def test_a_message_keeps_its_unique_id_when_it_is_sent_again() -> None:
    message = Message("topic", b"body")
    assert draft("g", message, next_id, 4096).ids == draft("g", message, next_id, 4096).ids
    assert draft("g", Message("topic", b"body"), next_id, 4096).ids != message.system["UNIQ_KEY"]


def test_a_body_of_4096_bytes_is_compressed_and_marked_a_smaller_one_is_not() -> None:
    small = draft("g", Message("topic", b"a" * 4095), next_id, 4096)
    large = draft("g", Message("topic", b"a" * 4096), next_id, 4096)
    assert header_of(small).sys_flag == 0
    assert header_of(large).sys_flag == 0x301
    assert zlib.decompress(large.command(QUEUE).body) == b"a" * 4096


def test_a_body_that_compression_makes_longer_is_sent_as_it_is() -> None:
    dense = random_bytes(8192)
    made = draft("g", Message("topic", dense), next_id, 4096)
    assert (header_of(made).sys_flag, made.command(QUEUE).body) == (0, dense)


def test_the_limit_of_a_frame_applies_to_the_compressed_body() -> None:
    dense = random_bytes(MAX_SENT + 1)
    with pytest.raises(ClientError, match="as it is sent: no broker takes more than 16711680"):
        draft("g", Message("topic", dense), next_id, 4096, max_body=len(dense))
    made = draft("g", Message("topic", bytes(2 * MAX_SENT)), next_id, 4096, max_body=2 * MAX_SENT)
    assert len(made.command(QUEUE).body) < MAX_SENT


def test_a_batch_has_an_element_and_an_id_per_message() -> None:
    made = draft_batch("g", [Message("topic", b"1", "a"), Message("topic", b"2")], next_id)
    command = made.command(QUEUE)
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    assert header_of(made).batch is True
    elements = list(decode_batch(command.body))
    assert [bytes(element.body) for element in elements] == [b"1", b"2"]
    ids = [decode(bytes(element.properties).decode())["UNIQ_KEY"] for element in elements]
    assert made.ids == ",".join(ids)


def test_a_message_to_a_retry_topic_has_its_counts_in_the_header() -> None:
    failed = StoredMessage("orders", b"body", {"KEYS": "k", "mine": "1"}, reconsume_times=2)
    made = draft("g", retry_copy("billing", failed, 16), next_id, 4096)
    header = header_of(made)
    assert (header.topic, header.reconsume_times, header.max_reconsume_times) == (
        *("%RETRY%billing", 3),
        16,
    )
    properties = decode(header.properties or "")
    assert properties["RETRY_TOPIC"] == "orders"
    assert properties["DELAY"] == "5"
    assert properties["mine"] == "1"
    assert properties["ORIGIN_MESSAGE_ID"] == failed.message_id
    assert not properties.keys() & {"RECONSUME_TIME", "MAX_RECONSUME_TIMES"}


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Message("topic", b""), ClientError),
        (Message("topic", bytes(MAX_BODY + 1)), ClientError),
        (Message("../x", b"body"), IllegalName),
        (Message("topic", b"body", properties={"p": "x" * 40_000}), ValueError),
    ],
)
def test_a_message_that_a_broker_would_refuse_is_not_sent(
    message: Message, error: type[Exception]
) -> None:
    with pytest.raises(error):
        draft("g", message, next_id, 1 << 30)


def test_a_batch_of_two_topics_is_refused() -> None:
    with pytest.raises(ValueError, match="one topic"):
        draft_batch("g", [Message("one", b"1"), Message("two", b"2")], next_id)
