import pytest

from mq.client.operations.errors import InvalidRequest, NotFound
from mq.client.operations.messages.composing import Draft
from mq.protocol.bodies import MessageQueue

QUEUES = [MessageQueue("T", name, number) for name in ("a", "b") for number in (0, 1)]


def test_a_message_has_what_was_written() -> None:
    draft = Draft(
        "T", "grüße", tag="t", keys="a b", properties=("x=1", "y = z=2"), ordering_key="o"
    )
    message = draft.message()
    assert (message.topic, message.body, message.tags) == ("T", "grüße".encode(), "t")
    assert message.keys == ("a", "b") and message.properties == {"x": "1", "y": " z=2"}
    assert message.all_properties()["__SHARDINGKEY"] == "o"
    assert Draft("T", "00 ff\n10", is_hex=True).message().body == b"\x00\xff\x10"


@pytest.mark.parametrize(
    ("draft", "line"),
    [
        (Draft("T", "0g", is_hex=True), "not in hex"),
        (Draft("T", properties=("novalue",)), "not name=value"),
        (Draft("T", properties=("KEYS=x",)), "used by RocketMQ"),
        (Draft("T", properties=("a=\x01",)), "0x01"),
        (Draft("T", tag="a\x02DELAY\x013"), "0x01"),
        (Draft("T", delay_level=-1), "delay level of -1"),
        (Draft("T", delay_level=3, deliver_at=5), "cannot go together"),
        (Draft("T", properties=("a=" + "x" * 40_000,)), "limit 32767"),
    ],
)
def test_what_cannot_be_sent_says_why(draft: Draft, line: str) -> None:
    with pytest.raises(InvalidRequest, match=line):
        draft.message()


def test_the_queue_is_the_same_each_time() -> None:
    assert Draft("T", queue="b:1").choose(QUEUES) == QUEUES[3]
    assert Draft("T", "x", queue="a").choose(QUEUES) in QUEUES[:2]
    chosen = {Draft("T", str(number), ordering_key="k").choose(QUEUES) for number in range(20)}
    assert len(chosen) == 1
    assert len({Draft("T", str(number)).choose(QUEUES) for number in range(50)}) == 4
    for queue in ("c", "a:7"):
        with pytest.raises(NotFound, match="no queue"):
            Draft("T", queue=queue).choose(QUEUES)
