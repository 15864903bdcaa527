"""What a broker is told and asked in its set: who is master, and where that is replicated from."""

from collections.abc import Callable

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.roles import is_slave
from mq.daemons.channel import Channel
from mq.daemons.serving import serves
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import ExchangeHAInfoResponseHeader


class MembershipHandlers:
    """Answers controllers and other members.

    ``on_notice`` is called when controllers say that the master is another: what they say then is
    asked for, for anybody may send such a notice.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        address: str,
        ha_address: str,
        end: int,
        on_notice: Callable[[], None],
    ) -> None:
        """``end`` is where the log ended at the start."""
        self._settings = settings
        self._own = ExchangeHAInfoResponseHeader(
            master_ha_address=ha_address, master_flush_offset=end, master_address=address
        )
        self._on_notice = on_notice

    @serves(RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
    def role_changed(self, command: Command, channel: Channel) -> Command:
        """Controllers have elected a master."""
        self._on_notice()
        return command.reply()

    @serves(RequestCode.EXCHANGE_BROKER_HA_INFO)
    def ha_info(self, command: Command, channel: Channel) -> Command:
        """Where this broker is replicated from, if it is a master; a slave says nothing.

        A master of Java that starts sends its own address, for a slave to follow. That is not
        believed: anybody could send it (AdminBrokerProcessor.exchangeBrokerHaInfo).
        """
        if is_slave(self._settings):
            return command.reply()
        return command.reply(fields=self._own.encode())
