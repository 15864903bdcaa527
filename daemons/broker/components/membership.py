"""Membership component: requests of controllers and of other members of the replica set."""

from collections.abc import Callable
from dataclasses import dataclass

from mq.daemons.broker.component import Metrics, Works
from mq.daemons.broker.components.acting import Acting
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.failover.membership.membership_handlers import MembershipHandlers
from mq.daemons.broker.name_servers.registration import Registration
from mq.daemons.broker.stores import Stores
from mq.daemons.dispatch import Handler
from mq.daemons.request_codes import handlers_of


@dataclass(frozen=True, slots=True)
class Membership:
    """Answers the requests of a replica set."""

    answers: MembershipHandlers
    member: Callable[[], Metrics]

    def works(self) -> Works:
        yield from ()

    def handlers(self) -> dict[int, Handler]:
        return handlers_of(self.answers)

    def metrics(self) -> Metrics:
        yield from self.member()


def make_membership(
    settings: BrokerSettings,
    stores: Stores,
    registration: Registration,
    on_notice: Callable[[], None],
    member: Callable[[], Metrics],
    acting: Callable[[], Acting],
) -> Membership:
    """The membership component of a broker that starts.

    ``on_notice`` is that of MembershipHandlers. ``member`` returns the metrics of the membership
    object, which outlives the broker. ``acting`` returns the component that is notified of changes
    of the members.
    """
    end = stores.messages.log.written

    async def master_comes(address: str, ha_address: str) -> None:
        await acting().make_way()
        registration.master_comes(address, ha_address)

    answers = MembershipHandlers(
        settings,
        registration.address,
        registration.ha_address,
        end,
        on_notice,
        lambda: acting().look(),
        master_comes,
        registration.was_master,
    )
    return Membership(answers, member)
