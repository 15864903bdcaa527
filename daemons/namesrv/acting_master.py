"""Slaves that act as masters (enableSlaveActingMaster of 5.x): who is shown them, who is told.

While a set has no master, clients read from its slave with the lowest id as if it was one, if the
brokers of the set are told to act (enableActingMaster, as they register) and the name server is
told to show it (supportActingMaster). Nobody may write there. With notifyMinBrokerIdChanged the
members hear at once who has the lowest id. Source: RouteInfoManager of 5.x.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mq.client.errors import MQError
from mq.client.session import Session
from mq.protocol import names
from mq.protocol.bodies import BrokerData, QueueData
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import Permission
from mq.protocol.headers.broker import NotifyMinBrokerIdChangeRequestHeader
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

# The topic by which members of a set find each other: it shows them as they are.
MEMBERS_PREFIX = names.MEMBERS_TOPIC_PREFIX
# A notice that cannot go out by then is not missed: brokers ask, too.
NOTICE_SECONDS = 1.0


def without_write(perm: int) -> int:
    """A permission of a topic while its master is gone."""
    return perm & ~Permission.WRITE


def shown_as_masters(
    brokers: Iterable[BrokerData], queues: Mapping[str, QueueData]
) -> list[BrokerData]:
    """The brokers of a route, its queues by broker name, as clients are shown them."""
    return [
        _shown_as_master(broker) if _acts(broker, queues.get(broker.broker_name or "")) else broker
        for broker in brokers
    ]


def _acts(broker: BrokerData, queues: QueueData | None) -> bool:
    return (
        bool(broker.enable_acting_master)
        and bool(broker.broker_addrs)
        and MASTER_ID not in broker.broker_addrs
        and queues is not None
        and not queues.perm & Permission.WRITE
    )


def _shown_as_master(broker: BrokerData) -> BrokerData:
    lowest = min(broker.broker_addrs)
    others = {number: at for number, at in broker.broker_addrs.items() if number != lowest}
    return BrokerData(
        cluster=broker.cluster,
        broker_name=broker.broker_name,
        broker_addrs={MASTER_ID: broker.broker_addrs[lowest], **others},
        enable_acting_master=broker.enable_acting_master,
    )


@dataclass(frozen=True, slots=True)
class LowestChanged:
    """The lowest id of a set is another: of its members, one has come, or gone.

    ``gone`` is the address of who has gone, ``ha_address`` where who has come replicates from.
    """

    members: Mapping[int, str]
    gone: str | None = None
    ha_address: str | None = None

    def told(self) -> list[str]:
        """Whom to tell: who remains; or those that were there before the newcomer."""
        if self.gone is not None or len(self.members) == 1:
            return list(self.members.values())
        lowest = min(self.members)
        return [address for number, address in self.members.items() if number != lowest]

    def command(self) -> Command:
        lowest = min(self.members)
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=lowest,
            min_broker_addr=self.members[lowest],
            offline_broker_addr=self.gone,
            ha_broker_addr=self.ha_address,
        )
        return Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header.encode())


class Notices:
    """Tells brokers, at the addresses that they have registered. Used between `open` and `close` of
    its session."""

    def __init__(self) -> None:
        self.session = Session(
            "127.0.0.1:1",  # asked for nothing
            timeout=NOTICE_SECONDS,
            connect_timeout=NOTICE_SECONDS,
        )

    def send(self, change: LowestChanged) -> None:
        """Tell those that are to know, soon."""
        for address in change.told():
            self.session.keep_task(self._send(address, change.command()))

    async def _send(self, address: str, command: Command) -> None:
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                await self.session.invoke_oneway(address, command)
        except (MQError, TimeoutError) as error:
            log.info("broker %s is not told whose id is the lowest: %s", address, error)
