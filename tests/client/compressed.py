"""Send requests that are marked as compressed; no client of ours sends such a body."""

from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.headers import SendMessageRequestHeader


def said_to_be_compressed(
    topic: str, body: bytes, properties: str = "", *, queues: int = 1
) -> Command:
    """Return a request to store `body` unchanged in queue 0, marked as compressed with zlib.

    A missing topic is created with `queues` queues.
    """
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
