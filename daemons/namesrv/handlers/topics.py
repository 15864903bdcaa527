"""Requests about topics and their routes."""

import logging
from collections.abc import Awaitable

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.namesrv.kv import ORDER_TOPIC_NAMESPACE, KvConfig
from mq.daemons.namesrv.product_env import ProductEnvironment
from mq.daemons.namesrv.routes import Routes
from mq.daemons.request_codes import serves
from mq.protocol.bodies import TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.route import GetRouteInfoRequestHeader
from mq.protocol.headers.topic import (
    DeleteTopicFromNamesrvRequestHeader,
    RegisterTopicRequestHeader,
)
from mq.protocol.versions import version_number

log = logging.getLogger(__name__)

# From this version on clients read standard JSON, whether or not they announce it.
STANDARD_JSON = version_number("V4_9_4")

# Java appends this to the remark of an unknown topic, and its users search for it.
HELP = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


class TopicHandlers:
    """Serves topics and their routes."""

    def __init__(
        self,
        routes: Routes,
        kv: KvConfig,
        settings: NamesrvSettings,
        elsewhere: ProductEnvironment | None,
    ) -> None:
        self._routes = routes
        self._kv = kv
        self._settings = settings
        self._elsewhere = elsewhere

    @serves(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    def route(self, command: Command, channel: Channel) -> Command | Awaitable[Command]:
        """Return the route of a topic."""
        header = GetRouteInfoRequestHeader.decode(command.fields)
        route = self._routes.route(header.topic)
        if route is None:
            if self._elsewhere is not None:
                return self._route_elsewhere(self._elsewhere, command, header)
            raise _no_route(header.topic)
        # With clusterTest Java always adds it, regardless of the settings
        # (ClusterTestRequestProcessor).
        if self._settings.namesrv.order_message_enable or self._elsewhere is not None:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_NAMESPACE, header.topic)
        return self._answer(command, header, route)

    async def _route_elsewhere(
        self, elsewhere: ProductEnvironment, command: Command, header: GetRouteInfoRequestHeader
    ) -> Command:
        route = await elsewhere.route(header.topic)
        if route is None:
            raise _no_route(header.topic)
        return self._answer(command, header, route)

    def _answer(
        self, command: Command, header: GetRouteInfoRequestHeader, route: TopicRouteData
    ) -> Command:
        standard = command.version >= STANDARD_JSON or bool(header.accept_standard_json_only)
        return command.reply(body=route.encode(standard=standard))

    @serves(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    def delete(self, command: Command, channel: Channel) -> Command:
        """Remove a topic; a broker that still has it adds it again when it registers."""
        header = DeleteTopicFromNamesrvRequestHeader.decode(command.fields)
        self._routes.delete_topic(header.topic, header.cluster_name)
        log.info("%s deleted topic %s", channel.remote, header.topic)
        return command.reply()

    @serves(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
    def register(self, command: Command, channel: Channel) -> Command:
        """Register one topic of a 5.x broker that registers its topics one by one."""
        header = RegisterTopicRequestHeader.decode(command.fields)
        self._routes.add_topic(header.topic, TopicRouteData.decode(command.body).queue_datas)
        return command.reply()


def _no_route(topic: str) -> Refused:
    return Refused(
        ResponseCode.TOPIC_NOT_EXIST,
        f"No topic route info in name server for the topic: {topic}{HELP}",
    )
