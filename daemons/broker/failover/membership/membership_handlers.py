"""Requests within a replica set: notices of a new master, and the master's replication address."""

import logging
from collections.abc import Awaitable, Callable

from mq.client.errors import ClientError
from mq.client.transport.caller import parse_address
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.roles import is_slave, may_act_as_master
from mq.daemons.channel import Channel
from mq.daemons.request_codes import serves
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
)

log = logging.getLogger(__name__)


class MembershipHandlers:
    """Answers controllers and other members of the replica set.

    ``on_notice`` is called when controllers report another master, and ``on_members`` when name
    servers report another lowest id. Both must query the new state themselves, because any client
    may send such a notice. ``master_comes`` is awaited on a slave that may act as the master, when
    a master reports that it starts; it gets the master's address and that of its log. ``was_named``
    reports whether name servers have named a master at an address.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        address: str,
        ha_address: str,
        end: int,
        on_notice: Callable[[], None],
        on_members: Callable[[], None],
        master_comes: Callable[[str, str], Awaitable[None]],
        was_named: Callable[[str], bool],
    ) -> None:
        """``end`` is the end of the log at the start."""
        self._settings = settings
        self._own = ExchangeHAInfoResponseHeader(
            master_ha_address=ha_address, master_flush_offset=end, master_address=address
        )
        self._on_notice = on_notice
        self._on_members = on_members
        self._master_comes = master_comes
        self._was_named = was_named

    @serves(RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
    def role_changed(self, command: Command, channel: Channel) -> Command:
        """Handle the notice that controllers have elected a master."""
        self._on_notice()
        return command.reply()

    @serves(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
    def lowest_changed(self, command: Command, channel: Channel) -> Command:
        """Handle the notice that a name server has another lowest id for this replica set."""
        self._on_members()
        return command.reply()

    @serves(RequestCode.EXCHANGE_BROKER_HA_INFO)
    async def ha_info(self, command: Command, channel: Channel) -> Command:
        """The replication address of this broker if it is a master; a slave returns nothing.

        A starting master sends its own address to a slave before it registers, for the slave to
        follow (BrokerPreOnlineService). Any client could send it
        (AdminBrokerProcessor.exchangeBrokerHaInfo). So a slave follows it only if it may act as the
        master, name servers name no other master, and the request comes from the very host that it
        names; with access control, name servers must also have named that master before.
        """
        if not is_slave(self._settings):
            return command.reply(fields=self._own.encode())
        told = command.read_header(ExchangeHAInfoRequestHeader)
        if may_act_as_master(self._settings) and told.master_address and told.master_ha_address:
            host = channel.remote_address[0]
            is_there = host == _host_of(told.master_address) and _host_of(told.master_ha_address)
            is_open = not self._settings.broker.acl_enable
            if is_there and (is_open or self._was_named(told.master_address)):
                await self._master_comes(told.master_address, told.master_ha_address)
            else:
                log.warning("%s announces %s as the master; ignoring it", host,
                            told.master_address, extra={"failure": "coming master"})  # fmt: skip
        return command.reply()


def _host_of(address: str) -> str:
    """The host of host:port; "" if the text is not that."""
    try:
        return parse_address(address)[0]
    except ClientError:
        return ""
