"""Results of sends: where a message is stored, and how safely."""

from enum import StrEnum
from typing import NamedTuple

from mq.client.errors import for_code
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.send import SendMessageResponseHeader


class SendStatus(StrEnum):
    """How safely the broker stored a message."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


#: The response codes of a broker that stored the message.
STATUSES = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(NamedTuple):
    """Where a message was stored. For a batch: all ids, separated by commas, and the first
    offset.
    """

    status: SendStatus
    message_id: str  # the unique id
    offset_message_id: str  # encodes the broker's host and the physical offset
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None
    recall_handle: str | None = None  # of a timed message, for `Producer.recall`


def read_result(address: str, ids: str, queue: MessageQueue, response: Command) -> SendResult:
    """Decode the answer of the broker at `address` to a send to `queue`.

    Raises BrokerError for a refusal, RemoteProtocolError for a header that cannot be decoded.
    """
    status = STATUSES.get(response.code)
    if status is None:
        raise for_code(response.code, response.remark, address)
    header = SendMessageResponseHeader.decode(response.fields)
    return SendResult(
        status,
        ids,
        header.msg_id,
        MessageQueue(queue.topic, queue.broker_name, header.queue_id),
        header.queue_offset,
        header.transaction_id,
        header.recall_handle,
    )
