"""Filter servers, which 5.x has removed."""

from mq.protocol.codes import ONLY_4, RequestCode
from mq.protocol.headers.schema import Header, Int, Long, field


class RegisterFilterServerRequestHeader(
    Header, request=RequestCode.REGISTER_FILTER_SERVER, release=ONLY_4
):
    """A heartbeat of a filter server."""

    filter_server_addr: str


class RegisterFilterServerResponseHeader(
    Header, answers=RequestCode.REGISTER_FILTER_SERVER, release=ONLY_4
):
    """The broker that it belongs to."""

    broker_name: str
    broker_id: Long = 0


class RegisterMessageFilterClassRequestHeader(
    Header, request=RequestCode.REGISTER_MESSAGE_FILTER_CLASS, release=ONLY_4
):
    """Upload a filter class for a group."""

    consumer_group: str
    topic: str
    class_name: str
    class_crc: Int = field(wire="classCRC")
