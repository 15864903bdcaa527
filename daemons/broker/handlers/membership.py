"""What a broker is told and asked in its set: who is master, and where that is replicated from."""

import logging
from collections.abc import Awaitable, Callable

from mq.client.caller import parse_address
from mq.client.errors import ClientError
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
    """Answers controllers and other members.

    ``on_notice`` is called when controllers say that the master is another, ``on_members`` when
    name servers say so of the lowest id: what they say then is asked for, for anybody may send such
    a notice. ``master_comes`` is awaited, on a slave that may act as the master, when one says that
    it starts: with its address, and that of its log. ``was_named`` says whether name servers have
    named a master at an address.
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
        """``end`` is where the log ended at the start."""
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
        """Controllers have elected a master."""
        self._on_notice()
        return command.reply()

    @serves(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
    def lowest_changed(self, command: Command, channel: Channel) -> Command:
        """A name server has another broker of this set as the one with the lowest id."""
        self._on_members()
        return command.reply()

    @serves(RequestCode.EXCHANGE_BROKER_HA_INFO)
    async def ha_info(self, command: Command, channel: Channel) -> Command:
        """Where this broker is replicated from, if it is a master; a slave says nothing.

        A master that starts sends its own address, for a slave to follow, before it registers
        (BrokerPreOnlineService). Anybody could send it (AdminBrokerProcessor.exchangeBrokerHaInfo):
        so it is followed only where a slave of this set may act as the master, while name servers
        name no other, and if it is sent from the very host that it names; with access control only
        one that name servers have named before.
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
                log.warning("%s says that the master is %s: not believed", host,
                            told.master_address, extra={"failure": "coming master"})  # fmt: skip
        return command.reply()


def _host_of(address: str) -> str:
    """The host of host:port; "" where it is not that."""
    try:
        return parse_address(address)[0]
    except ClientError:
        return ""
