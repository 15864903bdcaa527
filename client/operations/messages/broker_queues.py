"""Reads queues that no route lists: a broker's own topics, at the broker itself."""

from typing import TYPE_CHECKING

from mq.client.errors import NoPermission, TopicNotExist
from mq.client.pull.pull_consumer import PullResult, PullStatus, read_result
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.pull import PullMessageRequestHeader
from mq.protocol.names import TOOLS_CONSUMER_GROUP

_AT_ONCE = 16  # concurrent requests for single messages

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.transport.caller import Caller
    from mq.protocol.message import StoredMessage


async def pull(
    session: "Caller", address: str, queue: MessageQueue, offset: int, count: int = 32
) -> PullResult:
    """Pull messages of a queue from an offset on, without waiting and without committing.

    Bodies are returned as stored. Raises BrokerError, ConnectError, RequestTimeout, BadAnswer.
    """
    header = PullMessageRequestHeader(
        consumer_group=TOOLS_CONSUMER_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=int(PullSysFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    response = await session.invoke(address, Command(RequestCode.PULL_MESSAGE, header.encode()))
    return read_result(response, queue, offset, None, address, decompress=False)


async def read(
    admin: "Admin",
    address: str,
    queue: MessageQueue,
    begin: int,
    end: int,
    *,
    bodies: bool = False,
) -> "list[StoredMessage]":
    """Return the existing messages from `begin` up to, not including, `end`. Raises MQError.

    Without `bodies` their bodies are dropped immediately: a thousand messages may be gigabytes. Our
    brokers refuse pulls of their internal topics, and 4.9 has no configuration of the half topic,
    which a pull needs: in these cases the queue entries are requested, and each message by its
    physical offset.
    """
    found: list[StoredMessage] = []
    while begin < end:
        try:
            result = await pull(admin.session, address, queue, begin, end - begin)
        except (NoPermission, TopicNotExist):
            return found + await _viewed(admin, address, queue, begin, end, bodies=bodies)
        found += _held([item for item in result.messages if item.queue_offset < end], bodies)
        if result.next_offset <= begin or result.status is PullStatus.NO_NEW:
            break
        begin = result.next_offset
    return found


def _held(messages: "list[StoredMessage]", bodies: bool) -> "list[StoredMessage]":
    for message in messages:
        if not bodies:
            message.body = b""
    return messages


async def _viewed(
    admin: "Admin", address: str, queue: MessageQueue, begin: int, end: int, *, bodies: bool
) -> "list[StoredMessage]":
    found: list[StoredMessage] = []
    while begin < end:
        count = min(_AT_ONCE, end - begin)
        page = await admin.consume_queue(address, queue.topic, queue.queue_id, begin, count)
        if not page.queue_data:
            break
        viewed = await admin.session.all(
            [
                admin.view_message(address, entry.physic_offset, decompress=False)
                for entry in page.queue_data
            ]
        )
        found += _held(viewed, bodies)
        begin += len(page.queue_data)
    return found
