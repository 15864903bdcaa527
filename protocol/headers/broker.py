"""Requests of brokers to name servers and each other, and of administrators to brokers."""

from mq.protocol.codes import SINCE_5, RequestCode
from mq.protocol.headers.schema import Header, Int, Long, field


class RegisterBrokerRequestHeader(Header, request=RequestCode.REGISTER_BROKER):
    """Registers a broker, with its topics in the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str = ""
    broker_id: Long
    compressed: bool = False
    body_crc32: Int = 0
    heartbeat_timeout_millis: Long | None = field(default=None, release=SINCE_5)
    enable_acting_master: bool | None = field(default=None, release=SINCE_5)


class RegisterBrokerResponseHeader(Header, answers=RequestCode.REGISTER_BROKER):
    """The master of the broker's set."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header, request=RequestCode.UNREGISTER_BROKER):
    """Unregisters a broker that stops."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionRequestHeader(Header, request=RequestCode.QUERY_DATA_VERSION):
    """Asks whether the name server knows the version of the topics in the body."""

    broker_name: str = ""
    broker_addr: str
    cluster_name: str = ""
    broker_id: Long = 0


class QueryDataVersionResponseHeader(Header, answers=RequestCode.QUERY_DATA_VERSION):
    """Whether the broker has to register again."""

    changed: bool


class WipeWritePermOfBrokerRequestHeader(Header, request=RequestCode.WIPE_WRITE_PERM_OF_BROKER):
    """Remove the write permission from all topics of a broker."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, answers=RequestCode.WIPE_WRITE_PERM_OF_BROKER):
    """The number of changed topics."""

    wipe_topic_count: Int


class AddWritePermOfBrokerRequestHeader(Header, request=RequestCode.ADD_WRITE_PERM_OF_BROKER):
    """Restore the write permission."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, answers=RequestCode.ADD_WRITE_PERM_OF_BROKER):
    """The number of changed topics."""

    add_topic_count: Int


class GetBrokerConfigResponseHeader(Header, answers=RequestCode.GET_BROKER_CONFIG):
    """The version of the settings in the body."""

    version: str


class ViewBrokerStatsDataRequestHeader(Header, request=RequestCode.VIEW_BROKER_STATS_DATA):
    """One statistic of a broker, over a minute, an hour and a day."""

    stats_name: str
    stats_key: str


class GetBrokerMemberGroupRequestHeader(
    Header, request=RequestCode.GET_BROKER_MEMBER_GROUP, release=SINCE_5
):
    """The living brokers of a set."""

    cluster_name: str
    broker_name: str


class AddBrokerRequestHeader(Header, request=RequestCode.ADD_BROKER, release=SINCE_5):
    """Start a broker inside a broker container."""

    config_path: str | None = None


class RemoveBrokerRequestHeader(Header, request=RequestCode.REMOVE_BROKER, release=SINCE_5):
    """Stop a broker inside a broker container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Long


class NotifyMinBrokerIdChangeRequestHeader(
    Header, request=RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, release=SINCE_5
):
    """The name server notifies brokers of the acting master of their set."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class ExchangeHAInfoRequestHeader(
    Header, request=RequestCode.EXCHANGE_BROKER_HA_INFO, release=SINCE_5
):
    """A replica asks the master for its replication address."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(
    Header, answers=RequestCode.EXCHANGE_BROKER_HA_INFO, release=SINCE_5
):
    """The replication address, and the flushed offset of the master."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetHeader(
    Header, request=RequestCode.RESET_MASTER_FLUSH_OFFSET, release=SINCE_5
):
    """Makes a replica forget the flushed offset of its master."""

    master_flush_offset: Long


class CheckRocksdbCqWriteProgressRequestHeader(
    Header, request=RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, release=SINCE_5
):
    """Compare the queues in files with those in RocksDB."""

    topic: str
    check_store_time: Long = 0


class ExportRocksDBConfigToJsonRequestHeader(
    Header, request=RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, release=SINCE_5
):
    """Write settings kept in RocksDB to JSON files."""

    config_type: str
