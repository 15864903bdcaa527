"""Parsing of batch requests."""

import tracemalloc

import pytest

from mq.daemons.broker.send.batches import MOST_COPIED, messages_of
from mq.daemons.broker.store.index.index import key_hash
from mq.daemons.broker.usual_properties import UsualProperties
from mq.daemons.dispatch import Refused
from mq.protocol.batch import encode_batch
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.message import Message
from mq.protocol.properties import decode
from mq.protocol.tags import java_hash

COMMON = {"CLUSTER": "DefaultCluster"}


def fresh() -> UsualProperties:
    return UsualProperties("")


def element(body: bytes, properties: bytes, flag: int = 0) -> bytes:
    size = 22 + len(body) + len(properties)
    head = b"".join(value.to_bytes(4, "big", signed=True) for value in (size, 0, 0, flag))
    length = len(body).to_bytes(4, "big")
    return head + length + body + len(properties).to_bytes(2, "big") + properties


def test_a_message_with_nothing_but_an_id_is_stored_with_it() -> None:
    (message,) = messages_of(element(b"body", b"UNIQ_KEY\x01ABC", -5), "T", COMMON, fresh())
    body, field, flag, code, keys = message
    assert (body, flag, code, keys) == (b"body", -5, 0, [key_hash("T", "ABC")])
    assert field == b"\x00\x23UNIQ_KEY\x01ABC\x02CLUSTER\x01DefaultCluster"


def test_tags_keys_and_forbidden_properties_are_checked() -> None:
    text = b"UNIQ_KEY\x01ABC\x02TAGS\x01A\x02CLUSTER\x01forged\x02KEYS\x01k1 k2\x02empty\x01\x02"
    body = element(b"one", text) + element(b"two", b"") + element(b"three", b"UNIQ_KEY\x01")
    one, two, three = messages_of(body, "T", COMMON, fresh())
    assert one[3] == java_hash("A")
    assert one[4] == [key_hash("T", key) for key in ("ABC", "k1", "k2")]
    assert decode(one[1][2:].decode())["CLUSTER"] == "DefaultCluster"
    assert two == (b"two", b"\x00\x16CLUSTER\x01DefaultCluster", 0, 0, [])
    assert three[1:] == two[1:]


def test_a_batch_as_encoded_by_a_client_is_parsed() -> None:
    messages = [
        Message("T", b"x" * n, "A" if n % 2 else None, ["k"], {"n": f"{n}"}, flag=n)
        for n in range(1, 30)
    ]
    found = messages_of(encode_batch(messages), "T", COMMON, fresh())
    assert [each[0] for each in found] == [message.body for message in messages]
    assert [each[2] for each in found] == list(range(1, 30))
    assert [decode(each[1][2:].decode())["n"] for each in found] == [f"{n}" for n in range(1, 30)]


@pytest.mark.parametrize(
    "text",
    [
        b"WAIT\x01true\x02UNIQ_KEY\x01ABC\x02KEYS\x01k1  k2\x02TAGS\x01A",
        b"UNIQ_KEY\x01ABC\x02\xc3\xa9\x01\xc3\xa9\x02",
        b"CLUSTER\x01forged\x02UNIQ_KEY\x01ABC",
        b"REAL_TOPIC\x01forged\x02UNIQ_KEY\x01ABC",
        b"UNIQ_KEY\x01ABC\x02n\x01",
    ],
)
def test_messages_with_the_same_names_are_all_stored_alike(text: bytes) -> None:
    usual = fresh()
    body = element(b"body", text) * 300
    first, *_, last = messages_of(body, "T", COMMON, usual)
    assert first == last
    assert decode(first[1][2:].decode())["CLUSTER"] == "DefaultCluster"


@pytest.mark.parametrize("cut", [1, 10, 21, 24, 28])
def test_inconsistent_lengths_are_damage(cut: int) -> None:
    whole = element(b"body", b"a\x01b")
    for damaged in (
        whole + whole[:cut],
        whole + b"\xff" * cut,
        element(b"", b"")[:16] + b"\xff\xff\xff\xff\x00\x00",
    ):
        with pytest.raises(RemoteProtocolError, match="no whole message at byte"):
            messages_of(damaged, "T", COMMON, fresh())


def test_an_id_that_is_not_text_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="not UTF-8"):
        messages_of(element(b"x", b"UNIQ_KEY\x01\xed\xa0\x80"), "T", COMMON, fresh())


def test_properties_too_long_for_a_record_are_refused() -> None:
    with pytest.raises(Refused, match="are over the limit of 32767"):
        messages_of(element(b"x", b"UNIQ_KEY\x01" + b"k" * 32_750), "T", COMMON, fresh())


def test_properties_of_a_batch_are_not_copied_beyond_a_limit() -> None:
    body = encode_batch([Message("T", b"x")] * 20_000)
    common = {"p": "y" * 30_000}
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match="send smaller batches"):
            messages_of(body, "T", common, fresh())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * MOST_COPIED  # 600 MB without the limit


@pytest.mark.parametrize("often", [1, 101])  # by the pattern of the names, too
@pytest.mark.parametrize("in_common", [False, True])
def test_a_batch_that_would_ignore_a_delivery_time_is_refused(often: int, in_common: bool) -> None:
    timed, usual = {"TIMER_DELAY_SEC": "+60"}, fresh()
    message = Message("T", b"x")
    message.system = {"UNIQ_KEY": "1"} | ({} if in_common else timed)
    common = COMMON | (timed if in_common else {})
    for _ in range(often):
        with pytest.raises(Refused, match="send the message by itself"):
            messages_of(encode_batch([message]), "T", common, usual)


@pytest.mark.parametrize(
    ("properties", "common"),
    [
        ({"TIMER_DELAY_SEC": "-60"}, COMMON),
        ({"TIMER_DELIVER_MS": "soon"}, COMMON),
        # was delivered, and is sent again
        ({"TIMER_DELAY_SEC": "60", "TIMER_OUT_MS": "1"}, COMMON),
        ({"TIMER_DELAY_SEC": "60"}, COMMON | {"TRAN_MSG": "true"}),
    ],
)
def test_a_batch_with_an_ineffective_delivery_time_is_accepted(
    properties: dict[str, str], common: dict[str, str]
) -> None:
    message = Message("T", b"x")
    message.system = properties
    (found,) = messages_of(encode_batch([message]), "T", common, fresh())
    assert found[0] == b"x"


def test_a_maximal_batch_gets_the_properties_of_javas_clients() -> None:
    body = encode_batch([Message("T", b"x")] * 100_000)
    common = {"CLUSTER": "DefaultCluster", "TRACE_ON": "true", "UNIQ": "7F0000017A8C18B4AAC2"}
    assert len(messages_of(body, "T", common, fresh())) == 100_000
