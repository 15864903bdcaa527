"""Registration: the data that a broker registers, and the checks whether it may be accepted now."""

from dataclasses import dataclass, field
from typing import Protocol

from mq.daemons.registration_order import Kind, RegistrationOrder
from mq.protocol.bodies import DataVersion, TopicConfig, TopicQueueMappingInfo


class BrokerConnection(Protocol):
    """The parts of a broker's connection that the tables use: identity, and closing."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Registration:
    """The data that a broker registers."""

    cluster: str
    broker_name: str
    address: str
    broker_id: int
    ha_address: str
    data_version: DataVersion
    topics: dict[str, TopicConfig]
    # None: the registration has no data about filter servers; empty: the broker has none.
    filter_servers: list[str] | None = None
    # 5.x: logical queues of static topics by topic.
    mappings: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    timeout: float | None = None  # seconds without a heartbeat after which this broker is dead; 5.x
    # For a broker that sends beacons: its start id, and the IP address from which it registers.
    beacon_source: tuple[str, str] | None = None
    beacon_interval: float = 0.0  # seconds between two of them, according to the broker
    order: RegistrationOrder | None = None  # only from mq's brokers
    # Whether slaves of the set act as masters; None for brokers before 5.x, which do not say.
    acts: bool | None = None


# For a broker whose topics have not been accepted yet: no registration has this version.
UNKNOWN_VERSION = DataVersion(timestamp=-1, counter=-1)


class OutOfOrder(Exception):
    """A registration that is not accepted: a newer one came before it, or its base is missing."""


class Outranked(OutOfOrder):
    """A registration with the id of another broker that was elected later."""


@dataclass
class LiveBroker:
    """A registered broker; times are of `time.monotonic`."""

    last_seen: float
    timeout: float | None
    data_version: DataVersion
    connection: BrokerConnection
    ha_address: str
    beacon_source: tuple[str, str] | None = None
    last_beacon: float | None = None  # None: none has arrived, so a missing one has no effect
    beacon_interval: float = 0.0
    order: RegistrationOrder | None = None
    # with controllers, the epoch of this master or of the master that it follows
    state_version: int = 0


def check_order(registration: Registration, before: LiveBroker | None) -> None:
    """Check the order of registrations of mq's brokers. Raises OutOfOrder."""
    order = registration.order
    if order is None:
        return
    last = None if before is None else before.order
    if last is not None and last.start == order.start and order.number <= last.number:
        raise OutOfOrder(f"registration {order.number} arrived after {last.number}")
    if order.kind is Kind.INCREMENT and (before is None or before.data_version != order.base):
        raise OutOfOrder("the base of the increment is unknown: send a whole registration")


def check_rank(registration: Registration, there: LiveBroker | None) -> None:
    """Check whether a broker may take the id of the live broker `there`: not if that one was
    elected later. Raises Outranked. Source: RouteInfoManager.registerBroker of 5.x.
    """
    own = registration.data_version.state_version or 0
    if there is not None and there.state_version > own:
        raise Outranked(
            f"another broker has id {registration.broker_id} of {registration.broker_name} from a "
            f"later election: {there.state_version}, this one from {own}"
        )


def is_whole(registration: Registration) -> bool:
    """Whether the registration has all topics of the broker. A single topic of a Java broker is an
    increment (registerIncrementBrokerData).
    """
    if registration.order is None:
        return len(registration.topics) > 1
    return registration.order.kind is Kind.WHOLE
