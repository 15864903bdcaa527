"""Routes of another environment, for missing topics (clusterTest).

Source: ClusterTestRequestProcessor of 4.9.8. The name servers of the environment come from its
address server. Nothing is cached: each missing route is queried there.
"""

import asyncio
import logging
from urllib.parse import quote

from mq.client.errors import MQError
from mq.client.routing.address_server import address_server_url
from mq.client.transport.session import Session
from mq.daemons.dispatch import Overloaded
from mq.daemons.namesrv.config import NamesrvConfig
from mq.protocol.bodies import TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import ProtocolError
from mq.protocol.headers.route import GetRouteInfoRequestHeader

log = logging.getLogger(__name__)

# A reply that takes longer is useless: clients wait for a route for 3 s.
TIMEOUT = 2.0
# Limit of concurrent queries by topic: any client may ask for any name.
MOST_ASKED = 64


def environment_url(config: NamesrvConfig) -> str:
    """The URL of the environment's list of name servers (TopAddressing.fetchNSAddr)."""
    url = address_server_url(config.address_server_domain, config.address_server_sub_group)
    name = config.product_env_name
    return f"{url}-{quote(name)}?nofix=1" if name.strip() else url


class ProductEnvironment:
    """The other environment: an async context manager."""

    def __init__(self, config: NamesrvConfig) -> None:
        self._name = config.product_env_name
        self._session = Session(environment_url(config), timeout=TIMEOUT)
        self._asking: dict[str, asyncio.Task[TopicRouteData | None]] = {}

    async def __aenter__(self) -> "ProductEnvironment":
        await self._session.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic there; None if there is none, or no name server replies.

        Raises Overloaded at the limit of concurrent queries.
        """
        asking = self._asking.get(topic)
        if asking is None:
            if len(self._asking) >= MOST_ASKED:
                raise Overloaded("clusterTest", f"{MOST_ASKED} other topics are being asked for")
            asking = self._asking[topic] = self._session.keep_task(self._ask(topic))
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        await asyncio.wait([asking])  # one of several waiting callers may be cancelled
        return None if asking.cancelled() else asking.result()

    async def _ask(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfoRequestHeader(topic=topic)
        command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())
        try:
            async with asyncio.timeout(TIMEOUT):
                reply = await self._session.invoke_name_server(command)
            if reply.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if reply.code != ResponseCode.SUCCESS:
                raise MQError(f"{reply.code} {reply.remark}")
            return TopicRouteData.decode(reply.body)
        except (MQError, ProtocolError, TimeoutError) as error:
            log.warning(
                "no route from environment %s: %s",
                self._name,
                error or f"no answer in {TIMEOUT} s",
                extra={"failure": "clusterTest"},
            )
            return None
