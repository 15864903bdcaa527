"""The form of a message that is forwarded to another broker."""

import pytest

from mq.daemons.broker.delivery.writer import NoTarget
from mq.daemons.broker.failover.acting.escape import (
    ForwardedMessage,
    delivered,
    half,
    rolled,
)
from mq.protocol.flags import SysFlag
from mq.protocol.headers.send import SendMessageRequestHeaderV2
from mq.protocol.message import StoredMessage

KEPT = {"KEYS": "k", "UNIQ_KEY": "u", "PGROUP": "P", "own": "x"}
WAITED = {"REAL_TOPIC": "Orders", "REAL_QID": "2"}


def message(topic: str, sys_flag: int = 0, /, **properties: str) -> StoredMessage:
    return StoredMessage(
        topic,
        b"body",
        {**KEPT, **WAITED, **properties},
        queue_id=2,
        flag=5,
        sys_flag=sys_flag,
        born_timestamp=7,
        born_host=("10.0.0.1", 1),
        reconsume_times=3,
    )


def header(outgoing: ForwardedMessage, sent: StoredMessage) -> SendMessageRequestHeaderV2:
    command = outgoing.command(sent, "Inner", 4, "broker-b")
    assert command.body == b"body"
    return SendMessageRequestHeaderV2.decode(command.fields)


def test_a_delivered_message_is_neither_delayed_again_nor_made_a_half() -> None:
    sent = message(
        "Orders", SysFlag.TRANSACTION_COMMIT | SysFlag.COMPRESSED, DELAY="3", TRAN_MSG="true"
    )
    outgoing = delivered(sent)
    assert (outgoing.topic, outgoing.properties) == ("Orders", KEPT)
    told = header(outgoing, sent)
    assert (told.producer_group, told.queue_id, told.broker_name) == ("P", 4, "broker-b")
    assert (told.sys_flag, told.flag, told.born_timestamp) == (SysFlag.COMPRESSED, 5, 7)
    assert told.reconsume_times == 3


def test_a_message_delivered_by_the_timer_loses_its_time() -> None:
    times = {"TIMER_DELIVER_MS": "9", "TIMER_OUT_MS": "9", "TIMER_ENQUEUE_MS": "1"}
    assert delivered(message("Orders", **times)).properties == KEPT


def test_a_rolled_message_goes_to_its_topic_with_its_time() -> None:
    timed = rolled(message("rmq_sys_wheel_timer", TIMER_OUT_MS="8000", TIMER_DELIVER_MS="8500"))
    assert (timed.topic, timed.properties) == ("Orders", {**KEPT, "TIMER_DELIVER_MS": "8500"})
    soon = message("rmq_sys_wheel_timer", TIMER_OUT_MS="3000", TIMER_DELAY_SEC="3")
    soon.store_timestamp = 500
    assert rolled(soon).properties == {**KEPT, "TIMER_DELIVER_MS": "3500"}
    again = message(
        "rmq_sys_wheel_timer", TIMER_OUT_MS="8000", TIMER_DELAY_SEC="3", TIMER_ROLL_TIMES="1"
    )
    assert rolled(again).properties == {**KEPT, "TIMER_DELIVER_MS": "9000"}


@pytest.mark.parametrize("properties", [{}, {"TIMER_OUT_MS": "1", "TIMER_DEL_UNIQKEY": "T+u"}])
def test_a_message_without_a_time_or_that_withdraws_another_is_not_rolled(
    properties: dict[str, str],
) -> None:
    with pytest.raises(NoTarget):
        rolled(message("rmq_sys_wheel_timer", **properties))


def test_a_half_is_a_half_of_its_topic_again() -> None:
    sent = message("RMQ_SYS_TRANS_HALF_TOPIC", TRAN_MSG="true", TRANSACTION_CHECK_TIMES="4")
    outgoing = half(sent)
    assert (outgoing.topic, outgoing.properties) == ("Orders", {**KEPT, "TRAN_MSG": "true"})
    assert header(outgoing, sent).sys_flag == SysFlag.TRANSACTION_PREPARED


@pytest.mark.parametrize("real", ["", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "a/b"])
def test_a_message_without_a_target_is_not_forwarded(real: str) -> None:
    with pytest.raises(NoTarget):
        half(message("RMQ_SYS_TRANS_HALF_TOPIC", REAL_TOPIC=real))
    with pytest.raises(NoTarget):
        rolled(message("rmq_sys_wheel_timer", TIMER_OUT_MS="8000", REAL_TOPIC=real))
