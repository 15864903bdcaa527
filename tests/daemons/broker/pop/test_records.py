"""Records of the revive topic, as Java 5.x writes and reads them."""

import pytest

from mq.daemons.broker.pop.records import AckBody, PopCheckPoint, ack_record, read_ack
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.message import StoredMessage
from mq.protocol.pop_receipt import Receipt

HOST = ("127.0.0.1", 10911)
CHECK_POINT = (
    b'{"bm":2,"bn":"broker-a","c":"G","d":[0,1,5],"it":60000,"n":3,"pt":1700000000000,"q":4,'
    b'"ro":0,"so":100,"t":"Popped"}'
)
ACK = b'{"ao":101,"bn":"broker-a","c":"G","pt":1700000000000,"q":4,"so":100,"t":"Popped"}'
BATCH = (
    b'{"ao":-1,"aol":[100,105],"bn":"broker-a","c":"G","pt":1700000000000,"q":4,"so":100,'
    b'"t":"Popped"}'
)


def record(body: bytes, tag: str) -> StoredMessage:
    return StoredMessage("rmq_sys_REVIVE_LOG_C", body, {"TAGS": tag}, queue_id=3, queue_offset=7)


def test_a_check_point_of_java_is_read() -> None:
    point = PopCheckPoint.read(record(CHECK_POINT, "ck"))
    assert (point.topic, point.group, point.queue_id) == ("Popped", "G", 4)
    assert (point.offsets, point.missing) == ((100, 101, 105), [100, 105])
    assert point.due == 1700000060000
    assert (point.revive_queue_id, point.revive_offset) == (3, 7)


def test_a_check_point_is_written_as_java_does_with_the_time_at_which_it_would() -> None:
    point = PopCheckPoint.read(record(CHECK_POINT, "ck"))
    written = point.record("C", HOST)
    assert (written.topic, written.queue_id, written.tags) == ("rmq_sys_REVIVE_LOG_C", 3, "ck")
    assert written.body == CHECK_POINT
    assert written.properties["TIMER_DELIVER_MS"] == "1700000059000"


def test_check_points_of_the_first_5_0_have_no_differences() -> None:
    body = b'{"bm":0,"c":"G","it":1,"n":2,"pt":5,"q":0,"so":8,"t":"T"}'
    assert PopCheckPoint.read(record(body, "ck")).offsets == (8, 9)


def test_acknowledgements_of_java_are_read() -> None:
    key = PopCheckPoint.read(record(CHECK_POINT, "ck")).key
    assert read_ack(record(ACK, "ack")) == (key, [101])
    assert read_ack(record(BATCH, "bAck")) == (key, [100, 105])


def test_acknowledgements_are_written_with_what_java_reads() -> None:
    key = PopCheckPoint.read(record(CHECK_POINT, "ck")).key
    one = ack_record(key, [101], 3, 1700000060000, "C", HOST)
    assert (one.tags, read_ack(one)) == ("ack", (key, [101]))
    assert one.body.startswith(b'{"ao":101,')
    several = ack_record(key, [100, 105], 3, 1700000060000, "C", HOST)
    for each in (one, several):  # the hand-written encoding equals the declared one
        assert AckBody.decode(each.body).encode() == each.body
    assert (several.tags, several.body) == ("bAck", BATCH)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"t":1}', b"[]", b'{"t":"T","c":"G","d":"x"}'])
def test_an_invalid_check_point_is_refused(body: bytes) -> None:
    with pytest.raises((ValueError, RemoteProtocolError)):
        PopCheckPoint.read(record(body, "ck"))


def test_a_receipt_is_what_extra_info_util_builds() -> None:
    text = "100 1700000000000 60000 3 1 broker-a 4 101"
    receipt = Receipt.decode(text, 4, 101)
    assert receipt == Receipt(100, 1700000000000, 60000, 3, "1", "broker-a", 4, 101)
    assert receipt.encode() == text
    assert receipt.visible_at == 1700000060000
    # Queue and offset may be missing: the request has them, too.
    assert Receipt.decode("100 1700000000000 60000 3 1 broker-a", 4, 101) == receipt
