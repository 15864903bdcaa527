from dataclasses import replace

import pytest

from mq.client.trace.entries import (
    EndTransaction,
    MalformedTrace,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
    TraceEntry,
    decode,
    encode,
)

PUB = Pub(
    timestamp=1700000000000,
    group="senders",
    topic="Orders",
    message_id="7F0000010000",
    tags="paid",
    keys="k1 k2",
    store_host="10.0.0.1:10911",
    body_length=5,
    cost=3,
    message_type=MessageType.DELAY,
    offset_message_id="0A000001",
)
BEFORE = SubBefore(
    timestamp=1700000000000,
    group="billing",
    request_id="R1",
    message_id="7F0000010000",
    retry_times=2,
    keys="k1",
)
AFTER = SubAfter(
    request_id="R1",
    message_id="7F0000010000",
    cost=12,
    success=False,
    keys="k1",
    outcome=2,
    timestamp=1700000000012,
    group="billing",
)
END = EndTransaction(
    timestamp=1700000000000,
    group="payments",
    topic="Orders",
    message_id="7F0000010000",
    transaction_id="T1",
    state="COMMIT_MESSAGE",
    tags="paid",
    keys="k1",
    store_host="10.0.0.1:10911",
)

# As Java's TraceDataEncoder 4.9.8 writes them.
JAVA = [
    (
        PUB,
        "Pub\x011700000000000\x01DefaultRegion\x01senders\x01Orders\x017F0000010000\x01paid"
        "\x01k1 k2\x0110.0.0.1:10911\x015\x013\x013\x010A000001\x01true\x02",
    ),
    (
        BEFORE,
        "SubBefore\x011700000000000\x01DefaultRegion\x01billing\x01R1\x017F0000010000\x012\x01k1\x02",
    ),
    (
        AFTER,
        "SubAfter\x01R1\x017F0000010000\x0112\x01false\x01k1\x012\x011700000000012\x01billing\x02",
    ),
    (
        END,
        "EndTransaction\x011700000000000\x01DefaultRegion\x01payments\x01Orders\x017F0000010000\x01paid"
        "\x01k1\x0110.0.0.1:10911\x012\x01T1\x01COMMIT_MESSAGE\x01false\x02",
    ),
]


@pytest.mark.parametrize(("record", "text"), JAVA, ids=["pub", "before", "after", "end"])
def test_an_entry_is_written_and_read_as_java_does(record: TraceEntry, text: str) -> None:
    assert encode(record) == text
    assert list(decode(text.encode())) == [record]


def test_several_entries_are_read_in_order_and_unknown_ones_left_out() -> None:
    body = encode(PUB) + "Recall\x01what\x02" + encode(BEFORE) + encode(AFTER)
    assert list(decode(body)) == [PUB, BEFORE, AFTER]


def test_what_is_absent_is_null_because_java_cannot_read_an_empty_end() -> None:
    bare = replace(BEFORE, keys="")
    assert encode(bare).endswith("\x012\x01null\x02")
    assert list(decode(encode(bare))) == [bare]


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (JAVA[0][1].replace("\x010A000001", ""), replace(PUB, offset_message_id="")),
        (JAVA[0][1][:-1] + "\x0110.0.0.9\x02", replace(PUB, client_host="10.0.0.9")),
        (
            "SubAfter\x01R1\x017F0000010000\x0112\x01false\x01k1\x02",
            replace(AFTER, outcome=0, timestamp=0, group=""),
        ),
    ],
    ids=["13 contents", "15 contents", "6 contents"],
)
def test_entries_of_other_releases_are_read(text: str, record: TraceEntry) -> None:
    assert list(decode(text)) == [record]


@pytest.mark.parametrize(
    "body",
    [b"Pub\x01x\x02", b"Pub\x011\x02", b"SubBefore\x02", b"Pub\xff", b"SubAfter\x01a\x01b\x01c"],
)
def test_an_invalid_trace_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedTrace):
        list(decode(body))
