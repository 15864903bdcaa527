"""Acting masters (enableSlaveActingMaster of 5.x): their appearance in routes, and notices.

While a replica set has no master, clients read from the slave with the lowest id as if it were the
master, if the brokers of the set are configured to act (enableActingMaster, in their registration)
and the name server is configured to show that (supportActingMaster). Writes are not allowed. With
notifyMinBrokerIdChanged the members are notified at once of a new lowest id. Source:
RouteInfoManager of 5.x.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.protocol import names
from mq.protocol.bodies import BrokerData, QueueData
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import Permission
from mq.protocol.headers.broker import NotifyMinBrokerIdChangeRequestHeader
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

# Prefix of the topic by which members of a set find each other: its route is not changed.
MEMBERS_PREFIX = names.MEMBERS_TOPIC_PREFIX
# Seconds after which a notice is dropped: brokers also ask.
NOTICE_SECONDS = 1.0


def without_write(perm: int) -> int:
    """The permission of a topic while its master is absent."""
    return perm & ~Permission.WRITE


def shown_as_masters(
    brokers: Iterable[BrokerData], queues: Mapping[str, QueueData]
) -> list[BrokerData]:
    """The brokers of a route as clients see them, with its queues by broker name."""
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
    """A new lowest id of a replica set, because one of its members has come or gone.

    ``gone`` is the address of a member that has gone, ``ha_address`` the replication address of one
    that has come.
    """

    members: Mapping[int, str]
    gone: str | None = None
    ha_address: str | None = None

    def recipients(self) -> list[str]:
        """The addresses to notify: the remaining members; or the members before a new one."""
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
    """Notifies brokers at their registered addresses. Used between `open` and `close` of its
    session.
    """

    def __init__(self) -> None:
        self.session = Session(
            "127.0.0.1:1",  # never queried
            timeout=NOTICE_SECONDS,
            connect_timeout=NOTICE_SECONDS,
        )

    def send(self, change: LowestChanged) -> None:
        """Notify the recipients of a change, soon."""
        for address in change.recipients():
            self.session.keep_task(self._send(address, change.command()))

    async def _send(self, address: str, command: Command) -> None:
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                await self.session.invoke_oneway(address, command)
        except (MQError, TimeoutError) as error:
            log.info("cannot notify broker %s of the lowest id: %s", address, error)
