"""The status of consumers, as the Java tool prints it (ConsumerRunningInfo)."""

from typing import TYPE_CHECKING

from mq.cli.show import java_text
from mq.client.operations import java_order
from mq.client.operations.subjects.members import subscriptions

if TYPE_CHECKING:
    from mq.protocol.bodies import ConsumerRunningInfo, ProcessQueueInfo

_QUEUE_LINE = "{:<64}  {:<32}  {:<4}  {:<20}\n"
_NARROW_LINE = "{:<32}  {:<32}  {:<4}  {:<20}\n"
_RATES_HEAD = "{:<64}  {:>14} {:>14} {:>14} {:>14} {:>18} {:>25}\n"
_RATES_LINE = "{:<32}  {:>14} {:>14} {:>14} {:>14} {:>18} {:>25}\n"


def page(info: "ConsumerRunningInfo") -> str:
    """Return ConsumerRunningInfo.formatString of 4.9, followed by the fields of 5.x if present."""
    parts = [_properties(info), _subscriptions(info), _offsets(info), _details(info)]
    if info.mq_pop_table:
        parts.append(_popping(info))
    parts.append(_rates(info))
    if info.user_consumer_info:
        lines = (f"{key:<40}: {value}\n" for key, value in sorted(info.user_consumer_info.items()))
        parts.append("#User Consume Info#\n" + "".join(lines))
    if info.jstack is not None:
        parts.append("#Consumer jstack#\n" + info.jstack)
    return "\n\n".join(parts)


def _properties(info: "ConsumerRunningInfo") -> str:
    keys = java_order.properties_order(info.properties)
    return "#Consumer Properties#\n" + "".join(f"{k:<40}: {info.properties[k]}\n" for k in keys)


def _subscriptions(info: "ConsumerRunningInfo") -> str:
    return "#Consumer Subscription#\n" + "".join(
        f"{number:03d} Topic: {item.topic:<40} "
        f"ClassFilter: {java_text.truth(item.class_filter_mode):<8} "
        f"SubExpression: {item.sub_string}\n"
        for number, item in enumerate(subscriptions(info), 1)
    )


def _offsets(info: "ConsumerRunningInfo") -> str:
    text = "#Consumer Offset#\n"
    text += _QUEUE_LINE.format("#Topic", "#Broker Name", "#QID", "#Consumer Offset")
    for queue in sorted(info.mq_table):
        offset = info.mq_table[queue].commit_offset
        text += _NARROW_LINE.format(queue.topic, queue.broker_name, queue.queue_id, offset)
    return text


def _details(info: "ConsumerRunningInfo") -> str:
    text = "#Consumer MQ Detail#\n"
    text += _QUEUE_LINE.format("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")
    for queue in sorted(info.mq_table):
        held = _process_queue(info.mq_table[queue])
        text += f"{queue.topic:<64}  {queue.broker_name:<32}  {queue.queue_id:<4}  {held}\n"
    return text


def _process_queue(held: "ProcessQueueInfo") -> str:
    """Return ProcessQueueInfo.toString."""
    when = java_text.digits_text
    return (
        f"ProcessQueueInfo [commitOffset={held.commit_offset}, "
        f"cachedMsgMinOffset={held.cached_msg_min_offset}, "
        f"cachedMsgMaxOffset={held.cached_msg_max_offset}, "
        f"cachedMsgCount={held.cached_msg_count}, "
        f"cachedMsgSizeInMiB={held.cached_msg_size_in_mib}, "
        f"transactionMsgMinOffset={held.transaction_msg_min_offset}, "
        f"transactionMsgMaxOffset={held.transaction_msg_max_offset}, "
        f"transactionMsgCount={held.transaction_msg_count}, "
        f"locked={java_text.truth(held.locked)}, tryUnlockTimes={held.try_unlock_times}, "
        f"lastLockTimestamp={when(held.last_lock_timestamp)}, "
        f"droped={java_text.truth(held.droped)}, "
        f"lastPullTimestamp={when(held.last_pull_timestamp)}, "
        f"lastConsumeTimestamp={when(held.last_consume_timestamp)}]"
    )


def _popping(info: "ConsumerRunningInfo") -> str:
    text = "#Consumer Pop Detail#\n"
    text += _NARROW_LINE.format("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")
    for queue, held in sorted((info.mq_pop_table or {}).items(), key=lambda item: item[0]):
        what = (
            f"PopProcessQueueInfo [waitAckCount:{held.wait_ack_count}, "
            f"droped:{java_text.truth(held.droped)}, lastPopTimestamp:{held.last_pop_timestamp}]"
        )
        text += f"{queue.topic:<32}  {queue.broker_name:<32}  {queue.queue_id:<4}  {what}\n"
    return text


def _rates(info: "ConsumerRunningInfo") -> str:
    text = "#Consumer RT&TPS#\n" + _RATES_HEAD.format(
        *("#Topic", "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS"),
        *("#ConsumeFailed TPS", "#ConsumeFailedMsgsInHour"),
    )
    for topic in sorted(info.status_table):
        item = info.status_table[topic]
        rates = item.pull_rt, item.pull_tps, item.consume_rt, item.consume_ok_tps
        shown = [java_text.fixed(rate, 2) for rate in (*rates, item.consume_failed_tps)]
        text += _RATES_LINE.format(topic, *shown, item.consume_failed_msgs)
    return text
