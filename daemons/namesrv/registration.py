"""Registration: what a broker tells about itself, and whether it may be taken in now."""

from dataclasses import dataclass, field
from typing import Protocol

from mq.daemons.registration_order import Kind, RegistrationOrder
from mq.protocol.bodies import DataVersion, TopicConfig, TopicQueueMappingInfo


class BrokerConnection(Protocol):
    """What the tables need of a broker's connection: to be told apart, and to be closed."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Registration:
    """What a broker tells about itself."""

    cluster: str
    broker_name: str
    address: str
    broker_id: int
    ha_address: str
    data_version: DataVersion
    topics: dict[str, TopicConfig]
    # None: the broker said nothing about filter servers; empty: it has none.
    filter_servers: list[str] | None = None
    # 5.x: logical queues of static topics by topic.
    mappings: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    timeout: float | None = None  # seconds of silence after which this broker is dead; 5.x
    # Of a broker that sends beacons: its start id, and the IP address that it registers from.
    beacon_source: tuple[str, str] | None = None
    beacon_interval: float = 0.0  # seconds between two of them, as the broker says
    order: RegistrationOrder | None = None  # only our brokers say
    # Whether slaves of the set act as masters; None of brokers before 5.x, which do not say.
    acts: bool | None = None


# Of a broker whose topics have not been taken yet: no registration has it.
UNKNOWN_VERSION = DataVersion(timestamp=-1, counter=-1)


class OutOfOrder(Exception):
    """A registration that is not taken: newer ones came before it, or what it needs is not here."""


class Outranked(OutOfOrder):
    """A registration under an id that another broker has, which was elected later."""


@dataclass
class LiveBroker:
    """A registered broker; times are of `time.monotonic`."""

    last_seen: float
    timeout: float | None
    data_version: DataVersion
    connection: BrokerConnection
    ha_address: str
    beacon_source: tuple[str, str] | None = None
    last_beacon: float | None = None  # None: none has come, and none is missed
    beacon_interval: float = 0.0
    order: RegistrationOrder | None = None
    state_version: int = 0  # with controllers the epoch of the master that it is, or follows


def check_order(registration: Registration, before: LiveBroker | None) -> None:
    """Whether a registration of one of our brokers may be taken now. Raises OutOfOrder."""
    order = registration.order
    if order is None:
        return
    last = None if before is None else before.order
    if last is not None and last.start == order.start and order.number <= last.number:
        raise OutOfOrder(f"registration {order.number} comes behind {last.number}")
    if order.kind is Kind.INCREMENT and (before is None or before.data_version != order.base):
        raise OutOfOrder("an increment on what is not known here: register as a whole")


def check_rank(registration: Registration, there: LiveBroker | None) -> None:
    """Whether a broker may take the id of the live one that is `there`: not if that was elected
    later. Raises Outranked. Source: RouteInfoManager.registerBroker of 5.x."""
    own = registration.data_version.state_version or 0
    if there is not None and there.state_version > own:
        raise Outranked(
            f"another broker has id {registration.broker_id} of {registration.broker_name}, of a "
            f"later election: {there.state_version}, and this one is of {own}"
        )


def is_whole(registration: Registration) -> bool:
    """Whether the topics are all that the broker has. Of Java's, one alone is the news of a change
    (registerIncrementBrokerData)."""
    if registration.order is None:
        return len(registration.topics) > 1
    return registration.order.kind is Kind.WHOLE
