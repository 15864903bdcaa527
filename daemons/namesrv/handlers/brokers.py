"""Requests about registered brokers."""

import logging

from mq.daemons.channel import Channel
from mq.daemons.namesrv.routes import Routes
from mq.daemons.namesrv.snodes import Snodes
from mq.daemons.request_codes import serves
from mq.protocol.bodies import (
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    GetBrokerMemberGroupRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from mq.protocol.headers.controller import BrokerHeartbeatRequestHeader

log = logging.getLogger(__name__)


class BrokerHandlers:
    """Serves requests about registered brokers."""

    def __init__(self, routes: Routes, snodes: Snodes) -> None:
        self._routes = routes
        self._snodes = snodes

    @serves(RequestCode.BROKER_HEARTBEAT)
    def heartbeat(self, command: Command, channel: Channel) -> Command:
        """Process the heartbeat of a 5.x broker between its registrations."""
        header = BrokerHeartbeatRequestHeader.decode(command.fields)
        self._routes.touch(header.broker_addr)
        return command.reply()

    @serves(RequestCode.GET_BROKER_MEMBER_GROUP)
    def member_group(self, command: Command, channel: Channel) -> Command:
        """The addresses of one broker name, for 5.x brokers."""
        header = GetBrokerMemberGroupRequestHeader.decode(command.fields)
        broker = self._routes.brokers.get(header.broker_name)
        known = broker is not None and broker.cluster == header.cluster_name
        group = BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=dict(broker.broker_addrs) if broker is not None and known else {},
        )
        body = GetBrokerMemberGroupResponseBody(broker_member_group=group)
        return command.reply(body=body.encode())

    @serves(RequestCode.GET_BROKER_CLUSTER_INFO)
    def cluster_info(self, command: Command, channel: Channel) -> Command:
        """Every cluster, broker name and address, and the snodes."""
        info = self._snodes.add_to(self._routes.cluster_info())
        return command.reply(body=info.encode())

    @serves(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
    def wipe_write_permission(self, command: Command, channel: Channel) -> Command:
        """Remove the write permission of a broker, until its topics change."""
        header = WipeWritePermOfBrokerRequestHeader.decode(command.fields)
        count = self._routes.wipe_write_permission(header.broker_name)
        log.info("%s wiped write permission of %s: %d topics", channel.remote, header.broker_name,
                 count)  # fmt: skip
        return command.reply(
            fields=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count).encode()
        )

    @serves(RequestCode.ADD_WRITE_PERM_OF_BROKER)
    def add_write_permission(self, command: Command, channel: Channel) -> Command:
        """Restore the write permission of a broker."""
        header = AddWritePermOfBrokerRequestHeader.decode(command.fields)
        count = self._routes.add_write_permission(header.broker_name)
        log.info("%s added write permission of %s: %d topics", channel.remote, header.broker_name,
                 count)  # fmt: skip
        return command.reply(
            fields=AddWritePermOfBrokerResponseHeader(add_topic_count=count).encode()
        )
