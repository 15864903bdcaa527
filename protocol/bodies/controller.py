"""The controller of 5.x and its replica sets."""

from mq.protocol.bodies.cluster import BrokerMemberGroup
from mq.protocol.bodies.schema import Body, field
from mq.protocol.codes import SINCE_5


class SyncStateSet(Body, release=SINCE_5):
    """The replicas of a set that are in sync."""

    sync_state_set: set[int] = field(factory=set)
    sync_state_set_epoch: int = 0


class ElectMasterResponseBody(Body, release=SINCE_5):
    """The members of a set after an election."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: set[int] = field(factory=set)


class ReplicaIdentity(Body, release=SINCE_5):
    """A replica."""

    broker_name: str = ""
    broker_id: int = 0
    broker_address: str = ""
    alive: bool = False


class ReplicasInfo(Body, release=SINCE_5):
    """The replicas of a set."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    in_sync_replicas: list[ReplicaIdentity] = field(factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(factory=list)


class BrokerReplicasInfo(Body, release=SINCE_5):
    """The replicas of each set."""

    replicas_info_table: dict[str, ReplicasInfo] = field(factory=dict)


class RoleChangeNotifyEntry(Body, release=SINCE_5):
    """A set has a new master."""

    broker_member_group: BrokerMemberGroup | None = None
    master_address: str | None = None
    master_broker_id: int | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    sync_state_set: set[int] = field(factory=set)


class EpochEntry(Body, release=SINCE_5):
    """The part of the commit log that was written under one master."""

    epoch: int = 0
    start_offset: int = 0
    end_offset: int = 0


class EpochEntryCache(Body, release=SINCE_5):
    """All such parts of a broker."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: int = 0
    epoch_list: list[EpochEntry] = field(factory=list)
    max_offset: int = 0
