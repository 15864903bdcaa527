"""The controller of 5.x, which elects masters."""

from mq.protocol.codes import SINCE_5, RequestCode
from mq.protocol.headers.schema import Header, Int, Long


class AlterSyncStateSetRequestHeader(
    Header, request=RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, release=SINCE_5
):
    """The master reports which replicas are in sync."""

    broker_name: str | None = None
    master_broker_id: Long | None = None
    master_epoch: Int | None = None
    invoke_time: Long = 0


class AlterSyncStateSetResponseHeader(
    Header, answers=RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, release=SINCE_5
):
    """The new epoch of that set."""

    new_sync_state_set_epoch: Int = 0


class ElectMasterRequestHeader(
    Header, request=RequestCode.CONTROLLER_ELECT_MASTER, release=SINCE_5
):
    """Elect a master for a set."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Long = -1
    designate_elect: bool = False
    invoke_time: Long = 0


class ElectMasterResponseHeader(
    Header, answers=RequestCode.CONTROLLER_ELECT_MASTER, release=SINCE_5
):
    """The elected master."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class RegisterBrokerToControllerRequestHeader(
    Header, request=RequestCode.CONTROLLER_REGISTER_BROKER, release=SINCE_5
):
    """A broker joins its set."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Long | None = None
    broker_address: str | None = None
    invoke_time: Long = 0


class RegisterBrokerToControllerResponseHeader(
    Header, answers=RequestCode.CONTROLLER_REGISTER_BROKER, release=SINCE_5
):
    """The master of the set."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class GetReplicaInfoRequestHeader(
    Header, request=RequestCode.CONTROLLER_GET_REPLICA_INFO, release=SINCE_5
):
    """The master and replicas of a set."""

    broker_name: str | None = None


class GetReplicaInfoResponseHeader(
    Header, answers=RequestCode.CONTROLLER_GET_REPLICA_INFO, release=SINCE_5
):
    """The master; the replicas are the body."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None


class GetMetaDataResponseHeader(
    Header, answers=RequestCode.CONTROLLER_GET_METADATA_INFO, release=SINCE_5
):
    """The controllers and their leader."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class GetNextBrokerIdRequestHeader(
    Header, request=RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, release=SINCE_5
):
    """Get a free broker id of a set."""

    cluster_name: str | None = None
    broker_name: str | None = None


class GetNextBrokerIdResponseHeader(
    Header, answers=RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, release=SINCE_5
):
    """The free id."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Long | None = None


class ApplyBrokerIdRequestHeader(
    Header, request=RequestCode.CONTROLLER_APPLY_BROKER_ID, release=SINCE_5
):
    """Reserve a broker id."""

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Long | None = None
    register_check_code: str | None = None


class ApplyBrokerIdResponseHeader(
    Header, answers=RequestCode.CONTROLLER_APPLY_BROKER_ID, release=SINCE_5
):
    """Confirms the reservation."""

    cluster_name: str | None = None
    broker_name: str | None = None


class CleanControllerBrokerDataRequestHeader(
    Header, request=RequestCode.CLEAN_BROKER_DATA, release=SINCE_5
):
    """Remove the data of brokers."""

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Long = 0


class BrokerHeartbeatRequestHeader(Header, request=RequestCode.BROKER_HEARTBEAT, release=SINCE_5):
    """A heartbeat of a broker."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


class NotifyBrokerRoleChangedRequestHeader(
    Header, request=RequestCode.NOTIFY_BROKER_ROLE_CHANGED, release=SINCE_5
):
    """The controller notifies brokers of their master."""

    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    master_broker_id: Long | None = None
