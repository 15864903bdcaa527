"""Sends back messages that a group failed to consume, so that they are redelivered later."""

import logging

from mq.client.errors import BrokerError, MQError
from mq.client.namespace import with_namespace
from mq.client.options import ClientOptions
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from mq.protocol.message import Message, StoredMessage
from mq.protocol.names import CLIENT_INNER_PRODUCER_GROUP, retry_topic
from mq.protocol.properties import RESERVED, PropertyKey

log = logging.getLogger(__name__)

_FIRST_DELAY_LEVEL = 3  # 10 s with the broker's default levels; each attempt is one level higher
# Codes for a message that is stored, but less safely than requested. A copy would be no safer, and
# the group would receive both.
_STORED = frozenset(
    (
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    )
)


async def send_back(
    session: Session,
    group: str,
    queue: MessageQueue,
    message: StoredMessage,
    *,
    delay_level: int,
    max_reconsume_times: int,
    namespace: str | None = None,
) -> None:
    """Request the broker of `queue`, from which `message` was pulled, to redeliver it to `group`.

    If that fails, a copy is sent to the group's retry topic at any writable broker
    (DefaultMQPushConsumerImpl.sendMessageBack). Raises the errors of that send.
    """
    header = ConsumerSendMsgBackRequestHeader(
        offset=message.physical_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.message_id,
        origin_topic=message.topic,
        unit_mode=session.unit_name is not None,
        max_reconsume_times=max_reconsume_times,
    )
    command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, header.encode())
    try:
        address = await session.master_address(queue.topic, queue.broker_name)
        await session.call(address, command)
    except MQError as error:
        if isinstance(error, BrokerError) and error.code in _STORED:
            return
        log.warning(
            "group %s: sending a copy of %s for a retry: %s", group, message.message_id, error
        )
        copy = retry_copy(group, message, max_reconsume_times, namespace=namespace)
        await _send(session, copy)


async def send_dead_letter(
    session: Session,
    group: str,
    message: StoredMessage,
    max_reconsume_times: int,
    namespace: str | None = None,
) -> None:
    """Move a message of an ordered queue to the dead letter topic of `group`.

    The broker does this for a message sent to a retry topic whose attempts are used up
    (ConsumeMessageOrderlyService.sendMessageBack). Raises the errors of the send.
    """
    times = message.reconsume_times
    copy = retry_copy(group, message, max_reconsume_times, tries=times, namespace=namespace)
    # Java's consumers send it, and then brokers of 4.9 delay the dead letter as well.
    del copy.system[PropertyKey.DELAY_LEVEL]
    await _send(session, copy)


async def _send(session: Session, copy: Message) -> None:
    async with Producer(session, CLIENT_INNER_PRODUCER_GROUP, client=ClientOptions()) as producer:
        await producer.send(copy)


def retry_copy(
    group: str,
    message: StoredMessage,
    max_reconsume_times: int,
    *,
    tries: int | None = None,
    namespace: str | None = None,
) -> Message:
    """Return the copy of `message` for the retry topic of `group`.

    `tries` is the number of failed attempts, by default one more than before.
    """
    if tries is None:
        tries = message.reconsume_times + 1
    properties = dict(message.properties)
    for name in (
        PropertyKey.TRANSACTION_PREPARED,
        PropertyKey.MIN_OFFSET,  # of the queue that it was pulled from
        PropertyKey.MAX_OFFSET,
    ):
        properties.pop(name, None)
    copy = Message(
        retry_topic(group),
        message.body,
        properties={name: text for name, text in properties.items() if name not in RESERVED},
        flag=message.flag,
    )
    copy.system = {name: text for name, text in properties.items() if name in RESERVED}
    copy.system |= {
        PropertyKey.RETRY_TOPIC: with_namespace(namespace, message.topic),
        PropertyKey.RECONSUME_TIME: str(tries),
        PropertyKey.MAX_RECONSUME_TIMES: str(max_reconsume_times),
        PropertyKey.DELAY_LEVEL: str(_FIRST_DELAY_LEVEL + message.reconsume_times),
    }
    copy.system.setdefault(PropertyKey.ORIGIN_MESSAGE_ID, message.message_id)
    return copy
