"""Routes, which name servers return."""

from mq.protocol.codes import RequestCode
from mq.protocol.headers.rpc import TopicRequestHeader


class GetRouteInfoRequestHeader(TopicRequestHeader, request=RequestCode.GET_ROUTEINFO_BY_TOPIC):
    """Get the brokers and queues of a topic."""

    topic: str
    accept_standard_json_only: bool | None = None
