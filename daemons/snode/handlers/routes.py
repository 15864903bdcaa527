"""Routes for clients without support of snodes: the snode takes the place of the brokers.

A client that uses the snode as its name server gets, under the name of each broker, the port that
stands for it (enodePorts), or the snode's own port if it is the only broker or defaultEnode.
"""

from dataclasses import dataclass

from mq.client.errors import MQError, RouteNotFound
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.namesrv.handlers.topics import STANDARD_JSON
from mq.daemons.request_codes import serves
from mq.daemons.snode.enodes import Enodes
from mq.daemons.snode.stand_ins import StandIns
from mq.protocol.bodies import BrokerData, TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.route import GetRouteInfoRequestHeader
from mq.protocol.names import MASTER_ID


@dataclass(frozen=True, slots=True)
class RouteHandlers:
    """Returns routes with addresses of this snode."""

    enodes: Enodes
    stand_ins: StandIns

    @serves(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    async def route(self, command: Command, channel: Channel) -> Command:
        """The queues of a topic, with addresses of this snode."""
        header = command.read_header(GetRouteInfoRequestHeader)
        topic = header.topic
        try:
            found = await self.enodes.session.route(topic)
        except RouteNotFound as error:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, str(error)) from None
        except MQError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        shown = TopicRouteData(**vars(found))
        shown.broker_datas = [
            BrokerData(
                cluster=broker.cluster,
                broker_name=broker.broker_name,
                broker_addrs={MASTER_ID: address},
            )
            for broker in found.broker_datas
            if MASTER_ID in broker.broker_addrs
            and (address := self.stand_ins.address_of(broker.broker_name)) is not None
        ]
        shown.filter_server_table = {}
        names = {broker.broker_name for broker in shown.broker_datas}
        shown.queue_datas = [q for q in found.queue_datas if q.broker_name in names]
        if not names:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"no port of this snode stands for a broker that has topic {topic} (enodePorts)",
            )
        standard = command.version >= STANDARD_JSON or bool(header.accept_standard_json_only)
        return command.reply(body=shown.encode(standard=standard))
