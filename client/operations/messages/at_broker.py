"""Queues that no route names: a broker's own topics, read at the broker itself."""

from typing import TYPE_CHECKING

from mq.client.pull_consumer import PullResult, PullStatus, read_result
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.pull import PullMessageRequestHeader
from mq.protocol.names import TOOLS_CONSUMER_GROUP

if TYPE_CHECKING:
    from mq.client.caller import Caller
    from mq.protocol.message import StoredMessage


async def pull(
    session: "Caller", address: str, queue: MessageQueue, offset: int, count: int = 32
) -> PullResult:
    """Messages of a queue from an offset on. It waits for none, and commits nothing.

    Raises BrokerError, ConnectError, RequestTimeout, BadAnswer.
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
    return read_result(response, queue, offset, None, address)


async def read(
    session: "Caller", address: str, queue: MessageQueue, begin: int, end: int
) -> "list[StoredMessage]":
    """The messages from `begin` to before `end` that are there. Raises as `pull`."""
    found: list[StoredMessage] = []
    while begin < end:
        result = await pull(session, address, queue, begin, end - begin)
        found += [message for message in result.messages if message.queue_offset < end]
        if result.next_offset <= begin or result.status is PullStatus.NO_NEW:
            break
        begin = result.next_offset
    return found
