"""Recalling messages that are not due yet (5.3)."""

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.waiting import is_stored
from mq.daemons.broker.delivery.writer import MessageWriter
from mq.daemons.broker.roles import check_recalls
from mq.daemons.broker.store import Appender, StoreRefused
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol import names
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.flags import Permission
from mq.protocol.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey
from mq.protocol.recall import RecallHandle

_TAG = "_RECALL_TAG_"


class RecallHandlers:
    """Recalls timed messages."""

    def __init__(
        self, settings: BrokerSettings, topics: Topics, writer: MessageWriter, appender: Appender
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._writer = writer
        self._appender = appender

    @serves(RequestCode.RECALL_MESSAGE)
    def recall(self, command: Command, channel: Channel) -> None:
        """Recall a message that waits in the timer, by its handle.

        Source: RecallMessageProcessor of 5.3. It stores a message for the timer, due in the same
        slot, which cancels the delivery of the other message.
        """
        _check_service(self._settings)
        header = command.read_header(RecallMessageRequestHeader)
        if self._topics.get(header.topic) is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"recall failed, the topic[{header.topic}] not exist",
            )
        if not names.may_be_sent_to(header.topic):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"recall failed, the topic[{header.topic}] is the broker's own",
            )
        handle = _handle(self._settings, header)
        fields = {PropertyKey.MSG_REGION: self._settings.broker.region_id}
        fields |= RecallMessageResponseHeader(msg_id=handle.message_id).encode()

        def stored(refusal: StoreRefused | None) -> None:
            if refusal is None or is_stored(refusal):
                channel.reply(command, fields=fields)
            else:
                remark = f"recall failed, execute error: {refusal.remark}"
                channel.reply(command, ResponseCode.SYSTEM_ERROR, remark=remark)

        try:
            self._writer.put_or_delay(_order(handle, header, channel))
            self._appender.call_when_answered(stored)
        except StoreRefused as refusal:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {refusal.remark}"
            ) from None


def _check_service(settings: BrokerSettings) -> None:
    """Raises Refused if this broker does not recall messages at present."""
    broker = settings.broker
    if not broker.recall_message_enable:
        raise Refused(
            ResponseCode.NO_PERMISSION,
            "recall failed, operation is forbidden (recallMessageEnable=false)",
        )
    check_recalls(settings)
    writable = broker.broker_permission & Permission.WRITE
    if clock.time() * 1000 < broker.start_accept_send_request_time_stamp or not (
        writable or broker.allow_recall_when_broker_not_writeable
    ):
        raise Refused(
            ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available"
        )


def _handle(settings: BrokerSettings, header: RecallMessageRequestHeader) -> RecallHandle:
    """Decode the handle of a request. Raises Refused if broker, topic or time do not match."""
    try:
        handle = RecallHandle.decode(header.recall_handle)
    except ValueError as error:
        raise Refused(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
    left = handle.due - clock.milliseconds()
    problem = None
    if handle.topic != header.topic:
        problem = "topic not match"
    elif handle.broker_name != settings.broker.broker_name:
        problem = "broker service not available"
    elif not 0 < left < settings.store.timer_max_delay_sec * 1000:
        problem = "timestamp invalid"
    if problem is not None:
        raise Refused(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {problem}")
    return handle


def _order(
    handle: RecallHandle, header: RecallMessageRequestHeader, channel: Channel
) -> StoredMessage:
    """The message that instructs the timer."""
    now = clock.milliseconds()
    properties = {
        PropertyKey.TAGS: _TAG,
        PropertyKey.TIMER_DELETE_UNIQUE_KEY: f"{handle.topic}+{handle.message_id}",
        PropertyKey.UNIQUE_KEY: handle.message_id,
        PropertyKey.TIMER_DELIVER_MS: str(handle.due),
        PropertyKey.BORN_TIMESTAMP: str(now),
    }
    if header.producer_group:
        properties[PropertyKey.PRODUCER_GROUP] = header.producer_group
    return StoredMessage(
        handle.topic,
        b"0",
        properties,
        born_timestamp=now,
        born_host=channel.remote_address,
    )
