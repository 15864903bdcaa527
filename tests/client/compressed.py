"""Sends of bodies that are compressed, or only said to be: no client of ours would send them."""

from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.headers import SendMessageRequestHeader


def said_to_be_compressed(
    topic: str, body: bytes, properties: str = "", *, queues: int = 1
) -> Command:
    """A request to store a body as it is in queue 0, marked as one that zlib has compressed. A
    topic that is not there yet gets so many queues."""
    header = SendMessageRequestHeader(
        producer_group="bombers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=queues,
        queue_id=0,
        sys_flag=int(SysFlag.COMPRESSED),
        born_timestamp=1,
        flag=0,
        properties=properties,
    )
    return Command(RequestCode.SEND_MESSAGE, header.encode(), body)
