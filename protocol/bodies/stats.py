"""Statistics of a broker, and the state of replication."""

from mq.protocol.bodies.schema import Body, field
from mq.protocol.codes import SINCE_5


class BrokerStatsItem(Body):
    """A statistic: its sum, its rate per second, and its average per call."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """A statistic over the last minute, hour and day."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


class HAConnectionRuntimeInfo(Body, release=SINCE_5):
    """A replica, as its master sees it."""

    addr: str | None = None
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


class HAClientRuntimeInfo(Body, release=SINCE_5):
    """Replication, as a replica sees it."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    is_activated: bool | None = None  # Java has no getter for it, so its JSON never has it


class HARuntimeInfo(Body, release=SINCE_5):
    """The state of replication on a broker."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = field(factory=HAClientRuntimeInfo)
