"""The records of transactions, and what is open by them."""

import time

import pytest

from mq.daemons.broker.transactions.ledger import Ledger, Operations
from mq.daemons.broker.transactions.records import (
    ended_offsets,
    is_final_of,
    transaction_key,
    unique_id_in,
)
from mq.protocol.message import StoredMessage
from mq.protocol.properties import decode


def half(offset: int, unique: str | None = None, topic: str = "T") -> StoredMessage:
    properties = {"PGROUP": "P", "REAL_TOPIC": topic}
    if unique is not None:
        properties["UNIQ_KEY"] = unique
    return StoredMessage("RMQ_SYS_TRANS_HALF_TOPIC", b"x", properties, queue_offset=offset)


@pytest.mark.parametrize(
    ("body", "tag", "offsets"),
    [
        (b"12", "d", [12]),  # 4.9
        (b"12,15,", "d", [12, 15]),  # 5.x
        (b"", "d", []),
        (b",,", "d", []),
        (b"12,x,", "d", []),
        (b"-1", "d", []),
        (b"99999999999999999999", "d", []),
        (b"12", "x", []),
    ],
)
def test_an_operation_names_the_halves_that_it_ends(
    body: bytes, tag: str, offsets: list[int]
) -> None:
    assert ended_offsets(StoredMessage("op", body, {"TAGS": tag})) == offsets


def test_transactions_differ_by_id_topic_and_without_an_id_by_offset() -> None:
    keys = [transaction_key(message) for message in (
        half(1, "U"), half(2, "V"), half(1, "U", "Other"), half(1), half(2)
    )]  # fmt: skip
    assert len(set(keys)) == 5
    assert transaction_key(half(7, "U")) == keys[0]


@pytest.mark.parametrize(
    "text",
    [
        "UNIQ_KEY\x01U",
        "a\x01b\x02UNIQ_KEY\x01U\x02c\x01d",
        "UNIQ_KEY\x01U\x01V",  # all behind the first separator is the value
        "UNIQ_KEY\x01U\x02UNIQ_KEY\x01V",  # the last one counts
        "UNIQ_KEY\x01U\x02UNIQ_KEY\x01",  # and one without a value does not
        "NOT_UNIQ_KEY\x01U",
        "a\x01UNIQ_KEY",
    ],
)
def test_a_half_of_a_batch_has_the_id_that_its_record_is_read_with(text: str) -> None:
    field = len(text).to_bytes(2, "big") + text.encode()
    assert unique_id_in(field).decode() == decode(text).get("UNIQ_KEY", "")


def test_a_message_with_another_body_or_id_is_not_the_final_record_of_a_half() -> None:
    message = half(1, "U")
    assert is_final_of(half(9, "U"), message)
    assert not is_final_of(half(9, "V"), message)
    assert not is_final_of(StoredMessage("T", b"y", message.properties), message)
    assert not is_final_of(StoredMessage("T", b"x", {"UNIQ_KEY": "U"}), message)


def test_a_half_without_an_id_is_found_after_it_was_put_again() -> None:
    ledger = Ledger()
    ledger.add(half(3), 3)
    ledger.replace(3, 8)
    assert ledger.find(half(3)) == 8
    assert ledger.find(half(8)) == 8
    ledger.remove([8])
    assert ledger.find(half(3)) is None
    assert len(ledger) == 0


def test_a_limited_number_of_given_up_transactions_is_remembered() -> None:
    ledger = Ledger()
    for offset in range(10_001):
        message = half(offset, f"U{offset}")
        ledger.add(message, offset)
        ledger.give_up(offset)
    assert ledger.offsets() == []
    assert ledger.find(half(0, "U0")) is None
    assert ledger.find(half(1, "U1")) == 1


def test_ten_thousand_given_up_transactions_end_in_linear_time() -> None:
    ledger = Ledger()
    count = 10_000
    for offset in range(count):
        ledger.add(half(offset, f"U{offset}"), offset)
        ledger.give_up(offset)
    began = time.thread_time()
    for offset in range(0, count, 2):
        assert ledger.find(half(offset, f"U{offset}")) == offset
        ledger.begin_ends([offset])
        ledger.remove([offset])
    assert time.thread_time() - began < 0.5  # 1.5 s if all of them are compared
    assert [ledger.find(half(n, f"U{n}")) for n in (0, 1, 2, 3)] == [None, 1, None, 3]
    ledger.add(half(count, "U1"), count)  # its producer has sent it again
    assert ledger.find(half(1, "U1")) == count
    ledger.remove([1])
    assert ledger.find(half(1, "U1")) == count


def test_halves_can_be_ended_up_to_the_first_that_is_not_open_or_named_twice() -> None:
    ledger = Ledger()
    ledger.add_keys([b"a", b"b", b"c", b"b"], 10)  # the second b is in place of the first
    assert ledger.offsets() == [10, 12, 13]
    assert ledger.count_endable([10, 12, 13]) == 3
    assert ledger.count_endable([10, 11, 12]) == 1
    assert ledger.count_endable([10, 10]) == 1
    ledger.begin_ends([12])
    assert [ledger.count_endable([10, 12, 13]), ledger.count_endable([12])] == [1, 0]
    ledger.cancel_ends([12])
    assert ledger.count_endable([10, 12, 13]) == 3
    ledger.remove([10, 12])
    assert ledger.offsets() == [13]


def test_operations_are_passed_in_order_and_only_with_all_their_halves() -> None:
    operations = Operations()
    assert operations.passed(100, 7) == 7  # none: the end of the queue
    operations.add(7, [10])
    operations.add(8, [11, 30])
    operations.add(11, [12])  # two between them could not be read
    assert operations.passed(10, 12) == 7
    assert operations.passed(11, 12) == 8
    assert operations.passed(31, 12) == 12
    operations.add(12, [50])
    assert operations.passed(31, 13) == 12
    operations.add_each(15, [51, 5, 52])  # two between them could not be read
    assert operations.passed(52, 18) == 17
