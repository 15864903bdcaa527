"""Settings of the message store: every name and default of MessageStoreConfig in 4.9.8, the 5.x
names that this store supports, and settings of this broker only.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mq.daemons.acl.networks import parse_networks
from mq.daemons.config import ConfigError, Section, setting

MIB = 1024 * 1024
_MOST_BULK = 8 * MIB  # half of the largest frame that peers read; one message may be added
CONSUME_QUEUE_UNIT = 20  # bytes of one consume queue entry


class BrokerRole(StrEnum):
    """The role of a broker; brokerId is 0 for a master."""

    ASYNC_MASTER = "ASYNC_MASTER"  # acknowledges a send before its slaves have the message
    SYNC_MASTER = "SYNC_MASTER"  # acknowledges when a slave has it
    SLAVE = "SLAVE"


class FlushDiskType(StrEnum):
    """When a send is acknowledged: once the message is on the disk, or before."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


@dataclass(frozen=True)
class MessageStoreConfig(Section):
    """The store of one broker."""

    store_path_root_dir: str = setting(
        factory=lambda: str(Path.home() / "store"),
        shown="~/store",
        doc="folder of the store",
        important=True,
        path=True,
    )
    store_path_commit_log: str | None = setting(
        None, "folder of the commit log; empty: commitlog under the root", important=True, path=True
    )
    store_path_dledger_commit_log: str | None = setting(
        None,
        "folder of the DLedger commit log",
        name="storePathDLedgerCommitLog",
        important=True,
        effect=False,
    )
    read_only_commit_log_store_paths: str | None = setting(
        None, "commit log folders that get no new files", effect=False
    )
    mapped_file_size_commit_log: int = setting(
        1024 * MIB, "size of a commit log file", unit="bytes"
    )
    mapped_file_size_consume_queue: int = setting(
        300_000 * CONSUME_QUEUE_UNIT, "size of a consume queue file", unit="bytes"
    )
    enable_consume_queue_ext: bool = setting(False, "extension files of the consume queue")
    mapped_file_size_consume_queue_ext: int = setting(
        48 * MIB, "size of an extension file", unit="bytes"
    )
    bit_map_length_consume_queue_ext: int = setting(
        64, "bits of the filter map of an extension", effect=False
    )
    flush_interval_commit_log: int = setting(
        500, "pause between asynchronous flushes", unit="ms", important=True, updatable=True
    )
    commit_interval_commit_log: int = setting(
        200, "pause between commits of the transient pool", unit="ms", important=True, effect=False
    )
    use_reentrant_lock_when_put_message: bool = setting(
        True, "kind of lock around appends", effect=False
    )
    flush_commit_log_timed: bool = setting(
        True, "flush on a timer instead of on demand", important=True, effect=False
    )
    flush_interval_consume_queue: int = setting(
        1000, "pause between flushes of the consume queues", unit="ms", updatable=True
    )
    clean_resource_interval: int = setting(
        10_000, "pause between checks for files to delete", unit="ms", updatable=True
    )
    delete_commit_log_files_interval: int = setting(
        100, "pause between two deletions of commit log files", unit="ms", updatable=True
    )
    delete_consume_queue_files_interval: int = setting(
        100, "pause between two deletions of consume queue files", unit="ms", effect=False
    )
    destroy_maped_file_interval_forcibly: int = setting(
        120_000, "a file in use is deleted after this", unit="ms", effect=False
    )
    redelete_hanged_file_interval: int = setting(
        120_000, "pause before a failed deletion is retried", unit="ms", effect=False
    )
    delete_when: str = setting(
        "04",
        "hours of the day, separated by ;, in which expired files are deleted",
        important=True,
        updatable=True,
    )
    disk_max_used_space_ratio: int = setting(
        75, "above this use of the disk files are deleted early", unit="%", updatable=True
    )
    disk_space_warning_level_ratio: int = setting(
        90, "above this use of the disk sends are refused (a 5.x name)", unit="%", updatable=True
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85,
        "above this use of the disk unexpired files are deleted (a 5.x name)",
        unit="%",
        updatable=True,
    )
    file_reserved_time: int = setting(
        72, "age at which a commit log file is deleted", unit="h", important=True, updatable=True
    )
    delete_file_batch_max: int = setting(
        10, "files deleted in one round (a 5.x name)", effect=False
    )
    put_msg_index_hight_water: int = setting(
        600_000, "queued index requests above which a warning is logged", effect=False
    )
    max_message_size: int = setting(
        4 * MIB, "largest body of a message", unit="bytes", updatable=True
    )
    check_crc_on_recover: bool = setting(
        True, "verify bodies while recovering", name="checkCRCOnRecover", effect=False
    )
    flush_commit_log_least_pages: int = setting(
        4, "dirty 4 KiB pages that make a flush worthwhile", effect=False
    )
    commit_commit_log_least_pages: int = setting(4, "the same for the transient pool", effect=False)
    flush_least_pages_when_warm_maped_file: int = setting(
        4096, "pages between flushes while a file is warmed", effect=False
    )
    flush_consume_queue_least_pages: int = setting(
        2, "dirty pages that make a flush of a consume queue worthwhile", effect=False
    )
    flush_commit_log_thorough_interval: int = setting(
        10_000, "flush whatever is dirty at least this often", unit="ms", effect=False
    )
    commit_commit_log_thorough_interval: int = setting(
        200, "the same for the transient pool", unit="ms", effect=False
    )
    flush_consume_queue_thorough_interval: int = setting(
        60_000, "flush dirty consume queues at least this often", unit="ms", effect=False
    )
    max_transfer_bytes_on_message_in_memory: int = setting(
        256 * 1024,
        "bytes of one pull, from memory or the disk",
        unit="bytes",
        important=True,
        updatable=True,
    )
    max_transfer_count_on_message_in_memory: int = setting(
        32, "messages of one pull, from memory or the disk", important=True, updatable=True
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        64 * 1024,
        "bytes of one pull from the disk",
        unit="bytes",
        important=True,
        effect=False,
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8, "messages of one pull from the disk", important=True, effect=False
    )
    max_transfer_bytes_on_bulk_pull: int = setting(
        MIB,
        "bytes of a pull that asks for more than the above (this broker's own); 0: no bulk pulls",
        unit="bytes",
        updatable=True,
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        "a new group starts at the first message of a queue that still has all its messages, if "
        "the log from there is no longer than this part of the memory",
        unit="%",
        important=True,
        updatable=True,
    )
    message_index_enable: bool = setting(True, "index messages by key", important=True)
    max_hash_slot_num: int = setting(5_000_000, "slots of an index file")
    max_index_num: int = setting(20_000_000, "entries of an index file")
    max_msgs_num_batch: int = setting(64, "messages of one query by key", updatable=True)
    message_index_safe: bool = setting(
        False, "recover the index only up to its checkpoint", important=True, effect=False
    )
    ha_listen_port: int = setting(10912, "port that slaves replicate from")
    ha_send_heartbeat_interval: int = setting(
        5000, "pause between heartbeats of master and slave", unit="ms"
    )
    ha_housekeeping_interval: int = setting(
        20_000, "a silent replication connection is closed after this", unit="ms"
    )
    ha_transfer_batch_size: int = setting(
        32 * 1024, "bytes of one transfer to a slave", unit="bytes"
    )
    ha_flow_control_enable: bool = setting(
        False,
        "limit replication to maxHaTransferByteInSecond per slave (a 5.x name)",
        updatable=True,
    )
    max_ha_transfer_byte_in_second: int = setting(
        100 * MIB,
        "limit of bytes per second to each slave, with haFlowControlEnable (a 5.x name)",
        unit="bytes",
        long=True,
        updatable=True,
    )
    ha_master_address: str | None = setting(
        None,
        "address from which a slave replicates; empty: from the name server",
        important=True,
    )
    ha_slave_fallbehind_max: int = setting(
        256 * MIB, "a slave further behind does not count", unit="bytes"
    )
    ha_max_gap_not_in_sync: int = setting(
        256 * MIB,
        "with enableAutoInSyncReplicas a slave further behind does not count (a 5.x name)",
        unit="bytes",
    )
    ha_max_time_slave_not_catchup: int = setting(
        15_000,
        "a slave that has lagged for this long leaves the sync state set (a 5.x name)",
        unit="ms",
    )
    in_sync_replicas: int = setting(
        1,
        "copies, including this broker's, that a SYNC_MASTER's senders wait for; outside "
        "controller mode at least 2 (a 5.x name)",
        updatable=True,
    )
    min_in_sync_replicas: int = setting(
        1,
        "with fewer in the sync state set, or near with enableAutoInSyncReplicas, sends are "
        "refused (a 5.x name)",
        updatable=True,
    )
    enable_auto_in_sync_replicas: bool = setting(
        False,
        "senders wait for as many of the inSyncReplicas copies as are near (a 5.x name)",
        updatable=True,
    )
    all_ack_in_sync_state_set: bool = setting(
        False,
        "in controller mode senders and readers wait until the whole sync state set has a message "
        "(a 5.x name)",
    )
    sync_from_last_file: bool = setting(
        False, "an empty slave starts with its master's last file (a 5.x name)"
    )
    async_learner: bool = setting(
        False, "a slave that never joins the sync state set nor becomes the master (a 5.x name)"
    )
    store_path_broker_identity: str | None = setting(
        None,
        "file of the id assigned by controllers; empty: brokerIdentity under the root (a 5.x name)",
        path=True,
    )
    store_path_epoch_file: str | None = setting(
        None,
        "file of the epochs; empty: epochFileCheckpoint under the root (a 5.x name)",
        path=True,
    )
    ha_allowed_addresses: str = setting(
        "",
        "addresses and networks, separated by ;, that may replicate from this broker, and so read "
        "everything; empty: all, and with aclEnable only this machine (this broker's own)",
    )
    broker_role: BrokerRole = setting(  # noqa: RUF009 - a StrEnum does not change
        BrokerRole.ASYNC_MASTER,
        "ASYNC_MASTER; SYNC_MASTER: a send is answered when a slave has it; SLAVE",
        important=True,
    )
    flush_disk_type: FlushDiskType = setting(  # noqa: RUF009
        FlushDiskType.ASYNC_FLUSH,
        "SYNC_FLUSH: a send is answered when its message is on the disk",
        important=True,
    )
    sync_flush_timeout: int = setting(
        5000, "a send waits this long for its flush", unit="ms", updatable=True
    )
    slave_timeout: int = setting(
        3000, "a send waits this long for a slave", unit="ms", updatable=True
    )
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "delays of the levels 1, 2, …; units s, m, h, d",
    )
    timer_wheel_enable: bool = setting(True, "accept timed messages (a 5.x name)")
    timer_precision_ms: int = setting(1000, "a slot of the timer's wheel (a 5.x name)", unit="ms")
    timer_max_delay_sec: int = setting(
        3 * 24 * 3600, "messages due later are refused (a 5.x name)", unit="s", updatable=True
    )
    timer_roll_window_slot: int = setting(
        2 * 24 * 3600, "slots after which a message is stored again (a 5.x name)"
    )
    timer_flush_interval_ms: int = setting(
        1000, "pause between flushes of the timer's files (a 5.x name)", unit="ms"
    )
    mapped_file_size_timer_log: int = setting(
        100 * 1024 * 1024, "size of a file of the timer's log (a 5.x name)", unit="bytes"
    )
    flush_delay_offset_interval: int = setting(
        10_000, "pause between saves of delayOffset.json", unit="ms", long=True
    )
    clean_file_forcibly_enable: bool = setting(
        True, "delete unexpired files when the disk is full", important=True, updatable=True
    )
    warm_maped_file_enable: bool = setting(False, "touch every page of a new file", effect=False)
    offset_check_in_slave: bool = setting(
        False, "a slave corrects offsets that it does not have; false: pulls wait for them"
    )
    debug_lock_enable: bool = setting(False, "log threads when the store stalls", effect=False)
    duplication_enable: bool = setting(False, "confirm offsets of duplicated logs", effect=False)
    disk_fall_recorded: bool = setting(True, "allow disabling groups with a large lag")
    os_page_cache_busy_time_out_mills: int = setting(
        1000, "an append that takes longer refuses sends", unit="ms", long=True, effect=False
    )
    default_query_max_num: int = setting(
        32, "default number of messages of one query by key", updatable=True
    )
    transient_store_pool_enable: bool = setting(
        False, "append to memory first", important=True, effect=False
    )
    transient_store_pool_size: int = setting(5, "buffers of that pool", effect=False)
    fast_fail_if_no_buffer_in_store_pool: bool = setting(
        False, "refuse sends when that pool is used up", effect=False
    )
    store_type: str = setting(
        "default", "default; defaultRocksDB of Java 5.x is refused (a 5.x name)"
    )
    timer_rocksdb_enable: bool = setting(
        False, "keep the timer in RocksDB: not supported (a 5.x name)", name="timerRocksDBEnable"
    )
    rocksdb_cq_double_write_enable: bool = setting(
        False,
        "write consume queues to RocksDB, too: not supported (a 5.x name)",
        name="rocksdbCQDoubleWriteEnable",
    )
    enable_dledger_commit_log: bool = setting(
        False, "replicate by DLedger: not supported", name="enableDLegerCommitLog"
    )
    d_leger_group: str | None = setting(None, "DLedger group", effect=False)
    d_leger_peers: str | None = setting(None, "DLedger peers", effect=False)
    d_leger_self_id: str | None = setting(None, "DLedger id", effect=False)
    preferred_leader_id: str | None = setting(None, "DLedger leader", effect=False)
    is_enable_batch_push: bool = setting(
        False, "push batches to DLedger", aliases=("enableBatchPush",), effect=False
    )
    enable_schedule_message_stats: bool = setting(True, "count delayed messages", effect=False)
    enable_lmq: bool = setting(False, "light message queues", effect=False)
    enable_multi_dispatch: bool = setting(False, "one message in many queues", effect=False)
    max_lmq_consume_queue_num: int = setting(20_000, "light queues at most", effect=False)
    enable_schedule_async_deliver: bool = setting(
        False, "deliver delayed messages in a pipeline", effect=False
    )
    schedule_async_deliver_max_pending_limit: int = setting(
        2000, "messages in that pipeline", effect=False
    )
    schedule_async_deliver_max_resend_num2_blocked: int = setting(
        3, "failures that stop that pipeline", effect=False
    )
    max_recovery_commitlog_files: int = setting(
        30, "files read after a crash if the checkpoint is missing (a 5.x name)", effect=False
    )

    def check(self) -> None:
        """Refuse values with which no store can work.

        Raises:
            ConfigError: names the setting.
        """
        least = {
            "mappedFileSizeCommitLog": (self.mapped_file_size_commit_log, 4096),
            "mappedFileSizeConsumeQueue": (self.mapped_file_size_consume_queue, CONSUME_QUEUE_UNIT),
            "maxMessageSize": (self.max_message_size, 1),
            "maxHashSlotNum": (self.max_hash_slot_num, 1),
            "maxIndexNum": (self.max_index_num, 2),
            "fileReservedTime": (self.file_reserved_time, 0),
            "flushIntervalCommitLog": (self.flush_interval_commit_log, 1),
            "flushIntervalConsumeQueue": (self.flush_interval_consume_queue, 1),
            "maxTransferBytesOnBulkPull": (self.max_transfer_bytes_on_bulk_pull, 0),
            "cleanResourceInterval": (self.clean_resource_interval, 1),
            "maxTransferCountOnMessageInMemory": (self.max_transfer_count_on_message_in_memory, 1),
            "haTransferBatchSize": (self.ha_transfer_batch_size, 1),
            "maxHaTransferByteInSecond": (self.max_ha_transfer_byte_in_second, 1),
            "haSendHeartbeatInterval": (self.ha_send_heartbeat_interval, 1),
            "haHousekeepingInterval": (self.ha_housekeeping_interval, 1),
            "haSlaveFallbehindMax": (self.ha_slave_fallbehind_max, 1),
            "haMaxGapNotInSync": (self.ha_max_gap_not_in_sync, 1),
            "haMaxTimeSlaveNotCatchup": (self.ha_max_time_slave_not_catchup, 1),
            "inSyncReplicas": (self.in_sync_replicas, 1),
            "minInSyncReplicas": (self.min_in_sync_replicas, 1),
            "slaveTimeout": (self.slave_timeout, 1),
        }
        for name, (value, minimum) in least.items():
            if value < minimum:
                raise ConfigError(f"{name}={value}: must be at least {minimum}")
        if self.max_transfer_bytes_on_bulk_pull > _MOST_BULK:
            raise ConfigError(
                f"maxTransferBytesOnBulkPull={self.max_transfer_bytes_on_bulk_pull}: "
                f"must be at most {_MOST_BULK}"
            )
        if self.enable_dledger_commit_log:
            raise ConfigError("enableDLegerCommitLog=true: this broker does not support DLedger")
        self._check_rocksdb()
        try:
            delay_levels(self.message_delay_level)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        parse_networks(self.ha_allowed_addresses, "haAllowedAddresses")
        for hour in filter(None, self.delete_when.split(";")):
            if not (hour.strip().isdecimal() and int(hour) <= 23):
                raise ConfigError(f"deleteWhen={self.delete_when}: expected hours such as 04;16")

    def _check_rocksdb(self) -> None:
        if "rocksdb" in self.store_type.lower():
            raise ConfigError(
                f"storeType={self.store_type}: this broker does not read RocksDB, where Java keeps "
                "topics, groups and consumer offsets. Write them as JSON first: mqadmin "
                "rocksDBConfigToJson of Java 5.3.2 or later, for topics, subscriptionGroups and "
                "consumerOffsets; then remove storeType"
            )
        if self.timer_rocksdb_enable:
            raise ConfigError(
                "timerRocksDBEnable=true: this broker does not read RocksDB, where Java keeps "
                "messages that wait for their time. Let Java deliver them, then remove "
                "timerRocksDBEnable"
            )
        if self.rocksdb_cq_double_write_enable:
            raise ConfigError(
                "rocksdbCQDoubleWriteEnable=true: this broker does not write RocksDB. Its consume "
                "queues are files, which Java has written, too: remove rocksdbCQDoubleWriteEnable"
            )

    @property
    def commit_log_path(self) -> Path:
        """Folder of the commit log."""
        if self.store_path_commit_log:
            return Path(self.store_path_commit_log)
        return Path(self.store_path_root_dir) / "commitlog"

    @property
    def epoch_path(self) -> Path:
        """The file of the epochs."""
        if self.store_path_epoch_file:
            return Path(self.store_path_epoch_file)
        return Path(self.store_path_root_dir) / "epochFileCheckpoint"

    @property
    def broker_identity_path(self) -> Path:
        """The file with the id that controllers have assigned."""
        if self.store_path_broker_identity:
            return Path(self.store_path_broker_identity)
        return Path(self.store_path_root_dir) / "brokerIdentity"

    @property
    def config_path(self) -> Path:
        """Folder of topics.json, consumerOffset.json and similar files."""
        return Path(self.store_path_root_dir) / "config"


_DELAY_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def delay_levels(text: str) -> dict[int, int]:
    """Parse messageDelayLevel ("1s 5s …") into milliseconds by level; levels start at 1.

    Raises ValueError naming the part that is not a number with a unit of s, m, h or d.
    """
    levels = {}
    for level, part in enumerate(text.split(), 1):
        unit = _DELAY_UNITS.get(part[-1:])
        if unit is None or not part[:-1].isdigit():
            raise ValueError(f"messageDelayLevel: {part} is not a number and one of s, m, h, d")
        levels[level] = int(part[:-1]) * unit
    return levels
