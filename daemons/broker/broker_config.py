"""The broker's own section of its settings: every name and default of BrokerConfig in 4.9.8."""

import os
import socket
from dataclasses import dataclass

from mq.daemons.acl.networks import parse_networks
from mq.daemons.config import ConfigError, Section, setting
from mq.daemons.host_addresses import parse_name_servers
from mq.protocol.names import MASTER_ID, MAX_TOPIC_LENGTH, REVIVE_TOPIC_PREFIX

# Limit of filter servers: each is in every route of the broker.
MOST_FILTER_SERVERS = 64


def _cores() -> int:
    return os.cpu_count() or 1


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_BROKER"


@dataclass(frozen=True)
class BrokerConfig(Section):
    """The broker itself: its identity and its permissions."""

    rocketmq_home: str | None = setting(
        factory=lambda: os.environ.get("ROCKETMQ_HOME"),
        shown="$ROCKETMQ_HOME",
        doc="folder of the installation, which contains the ACL files",
    )
    namesrv_addr: str | None = setting(
        factory=lambda: os.environ.get("NAMESRV_ADDR"),
        shown="$NAMESRV_ADDR",
        doc="name servers, host:port separated by ;",
        important=True,
        updatable=True,
    )
    broker_ip1: str = setting(
        "",
        "address announced to clients; empty: where it listens, or this host's own address",
        name="brokerIP1",
        important=True,
    )
    broker_ip2: str = setting("", "address announced to slaves; empty: brokerIP1", name="brokerIP2")
    broker_name: str = setting(
        factory=_host_name,
        shown="the host name",
        doc="name shared by a master and its slaves",
        important=True,
    )
    broker_cluster_name: str = setting("DefaultCluster", "name of the cluster", important=True)
    broker_id: int = setting(
        MASTER_ID, "0 for a master, above 0 for a slave", long=True, important=True
    )
    broker_permission: int = setting(
        6, "permissions of clients: 4 read, 2 write, 6 both", updatable=True
    )
    default_topic_queue_nums: int = setting(8, "queues of TBW102")
    auto_create_topic_enable: bool = setting(
        True, "create missing topics at the first send", important=True, updatable=True
    )
    cluster_topic_enable: bool = setting(
        True, "the topic named after the cluster may be read and written"
    )
    broker_topic_enable: bool = setting(
        True, "the topic named after the broker may be read and written"
    )
    auto_create_subscription_group: bool = setting(
        True, "create missing consumer groups", important=True, updatable=True
    )
    message_store_plug_in: str = setting("", "Java store plug-ins", effect=False)
    msg_trace_topic_name: str = setting(
        "RMQ_SYS_TRACE_TOPIC", "topic of message traces", important=True
    )
    trace_topic_enable: bool = setting(False, "make the topic of message traces", important=True)
    send_message_thread_pool_nums: int = setting(
        factory=lambda: min(_cores(), 4),
        shown="cores, at most 4",
        doc="threads for sends",
        effect=False,
    )
    put_message_future_thread_pool_nums: int = setting(
        factory=lambda: min(_cores(), 4),
        shown="cores, at most 4",
        doc="threads that answer sends",
        effect=False,
    )
    pull_message_thread_pool_nums: int = setting(
        factory=lambda: 16 + _cores() * 2,
        shown="16 + 2 * cores",
        doc="threads for pulls",
        effect=False,
    )
    process_reply_message_thread_pool_nums: int = setting(
        factory=lambda: 16 + _cores() * 2,
        shown="16 + 2 * cores",
        doc="threads for replies",
        effect=False,
    )
    query_message_thread_pool_nums: int = setting(
        factory=lambda: 8 + _cores(), shown="8 + cores", doc="threads for queries", effect=False
    )
    admin_broker_thread_pool_nums: int = setting(16, "threads for administration", effect=False)
    client_manage_thread_pool_nums: int = setting(32, "threads for clients", effect=False)
    consumer_manage_thread_pool_nums: int = setting(32, "threads for consumers", effect=False)
    heartbeat_thread_pool_nums: int = setting(
        factory=lambda: min(32, _cores()),
        shown="cores, at most 32",
        doc="threads for heartbeats",
        effect=False,
    )
    end_transaction_thread_pool_nums: int = setting(
        factory=lambda: max(8 + _cores() * 2, min(_cores(), 4) * 4),
        shown="8 + 2 * cores",
        doc="threads that end transactions",
        effect=False,
    )
    flush_consumer_offset_interval: int = setting(
        5000, "pause between saves of consumerOffset.json", unit="ms", updatable=True
    )
    flush_consumer_offset_history_interval: int = setting(
        60_000, "pause between saves of the offsets' history", unit="ms", effect=False
    )
    reject_transaction_message: bool = setting(
        False, "refuse transaction messages", important=True, updatable=True
    )
    fetch_namesrv_addr_by_address_server: bool = setting(
        False, "ask an HTTP address server for the name servers", important=True
    )
    rmq_address_server_domain: str = setting(
        "jmenv.tbsite.net", "host, or host:port, of the address server; the default port is 8080"
    )
    rmq_address_server_sub_group: str = setting(
        "nsaddr", "last part of the path at the address server"
    )
    update_name_server_addr_period: int = setting(
        120_000, "pause between queries of the address server (a 5.x name)", unit="ms"
    )
    send_thread_pool_queue_capacity: int = setting(
        10_000, "limit of sends that wait for the disk (SYNC_FLUSH); more are refused"
    )
    put_thread_pool_queue_capacity: int = setting(10_000, "appends that wait", effect=False)
    pull_thread_pool_queue_capacity: int = setting(
        100_000, "shown in the runtime info; pulls do not queue here"
    )
    reply_thread_pool_queue_capacity: int = setting(10_000, "replies that wait", effect=False)
    query_thread_pool_queue_capacity: int = setting(
        20_000, "shown in the runtime info; queries do not queue here"
    )
    client_manager_thread_pool_queue_capacity: int = setting(
        1_000_000, "client requests that wait", effect=False
    )
    consumer_manager_thread_pool_queue_capacity: int = setting(
        1_000_000, "consumer requests that wait", effect=False
    )
    heartbeat_thread_pool_queue_capacity: int = setting(
        50_000, "heartbeats that wait", effect=False
    )
    end_transaction_pool_queue_capacity: int = setting(
        100_000, "transaction ends that wait: only shown in the runtime info"
    )
    filter_server_nums: int = setting(0, "number of filter servers to start and keep running")
    filter_server_allow_list: str = setting(
        "",
        "addresses and networks, separated by ;, that may register filter servers of their own "
        "(this broker's own name); empty: only those that this broker has started and, with "
        "aclEnable, administrators",
    )
    long_polling_enable: bool = setting(
        True, "suspend a pull that finds nothing until a message arrives", updatable=True
    )
    short_polling_time_mills: int = setting(
        1000,
        "suspend it this long instead when long polling is off",
        unit="ms",
        long=True,
        updatable=True,
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True, "notify a group when its members change", updatable=True
    )
    high_speed_mode: bool = setting(False, "unused in Java too", effect=False)
    commercial_enable: bool = setting(True, "counters of the cloud service", effect=False)
    commercial_timer_count: int = setting(1, "counters of the cloud service", effect=False)
    commercial_trans_count: int = setting(1, "counters of the cloud service", effect=False)
    commercial_big_count: int = setting(1, "counters of the cloud service", effect=False)
    commercial_base_count: int = setting(1, "counters of the cloud service", effect=False)
    transfer_msg_by_heap: bool = setting(
        True, "copy messages of a pull to the heap first", effect=False
    )
    max_delay_time: int = setting(40, "unused in Java too", effect=False)
    region_id: str = setting("DefaultRegion", "region written to traced messages")
    register_broker_timeout_mills: int = setting(
        6000, "timeout of a registration with a name server", unit="ms", updatable=True
    )
    slave_read_enable: bool = setting(
        False, "redirect lagging consumers to a slave", updatable=True
    )
    disable_consume_if_consumer_read_slowly: bool = setting(
        False, "disable groups with a large lag", updatable=True
    )
    consumer_fallbehind_threshold: int = setting(
        16 * 1024**3, "lag above which a group is disabled", unit="bytes", long=True, updatable=True
    )
    broker_fast_failure_enable: bool = setting(
        True, "refuse sends that waited too long", updatable=True
    )
    wait_time_mills_in_send_queue: int = setting(
        200, "limit of a send's wait before it is served", unit="ms", long=True, updatable=True
    )
    wait_time_mills_in_pull_queue: int = setting(
        5000, "limit of a pull's wait", unit="ms", long=True, effect=False
    )
    wait_time_mills_in_heartbeat_queue: int = setting(
        31_000, "limit of a heartbeat's wait", unit="ms", long=True, effect=False
    )
    wait_time_mills_in_transaction_queue: int = setting(
        3000, "limit of a transaction end's wait", unit="ms", long=True, effect=False
    )
    start_accept_send_request_time_stamp: int = setting(
        0, "refuse sends before this time", unit="ms since 1970", long=True, updatable=True
    )
    trace_on: bool = setting(True, "tell clients whether to trace", updatable=True)
    enable_calc_filter_bit_map: bool = setting(
        False, "compute filter maps while storing", updatable=True
    )
    expect_consumer_num_use_filter: int = setting(
        32, "number of groups with a filter for which the map is sized"
    )
    max_error_rate_of_bloom_filter: int = setting(20, "rate of false matches of the map", unit="%")
    filter_data_clean_time_span: int = setting(
        86_400_000,
        "filters of dead groups are kept this long",
        unit="ms",
        long=True,
        updatable=True,
    )
    filter_support_retry: bool = setting(False, "filter retry topics too", updatable=True)
    enable_property_filter: bool = setting(False, "allow SQL92 filters", updatable=True)
    compressed_register: bool = setting(False, "compress registrations with name servers")
    force_register: bool = setting(
        True, "register each time even if nothing changed", updatable=True
    )
    register_name_server_period: int = setting(
        30_000, "pause between registrations; 10 s to 60 s", unit="ms"
    )
    transaction_time_out: int = setting(
        6000,
        "age at which a half message is checked first",
        unit="ms",
        long=True,
        important=True,
        updatable=True,
    )
    transaction_check_max: int = setting(
        15, "checks before a half message is discarded", important=True, updatable=True
    )
    transaction_check_interval: int = setting(
        60_000,
        "pause between rounds of checks",
        unit="ms",
        long=True,
        important=True,
        updatable=True,
    )
    acl_enable: bool = setting(False, "enable access control", important=True)
    acl_plain_file: str = setting(
        "conf/plain_acl.yml",
        "file of accounts, relative to rocketmqHome; conf/acl/*.yml are read, too",
        name="rocketmq.acl.plain.file",
    )
    namesrv_acl_file: str = setting(
        "",
        "file with accessKey and secretKey, as conf/tools.yml, which sign requests to name "
        "servers, and those of a slave to its master; empty: they are not signed. SIGHUP reloads "
        "it",
    )
    store_reply_message_enable: bool = setting(True, "store reply messages", updatable=True)
    recall_message_enable: bool = setting(
        False, "let producers recall messages that are not due yet (a 5.x name)", updatable=True
    )
    allow_recall_when_broker_not_writeable: bool = setting(
        True, "also while brokerPermission forbids sends (a 5.x name)", updatable=True
    )
    enable_detail_stat: bool = setting(True, "count per queue", updatable=True)
    auto_delete_unused_stats: bool = setting(
        False, "drop counters with their topic", updatable=True
    )
    isolate_log_enable: bool = setting(False, "a log folder per broker", effect=False)
    config_black_list: str = setting(
        "configBlackList;brokerConfigPath",
        "settings, separated by ;, that may not be changed while the broker runs",
    )
    rebalance_lock_max_live_time: int = setting(
        60_000,
        "an ordered consumer's lock expires if it is not renewed for this long (a system "
        "property of Java's broker)",
        name="rocketmq.broker.rebalance.lockMaxLiveTime",
        unit="ms",
        long=True,
    )
    revive_queue_num: int = setting(
        8, "queues of the topic with the check points of pops (a 5.x name)"
    )
    pop_from_retry_probability: int = setting(
        20, "how often a pop reads retries first (a 5.x name)", unit="%", updatable=True
    )
    pop_polling_size: int = setting(
        1024, "pops of a group that may wait for a queue (a 5.x name)", updatable=True
    )
    server_load_balancer_enable: bool = setting(
        True, "assign queues to clients that ask the broker (a 5.x name)", updatable=True
    )
    enable_controller_mode: bool = setting(False, "controllers elect the master (a 5.x name)")
    controller_addr: str = setting("", "controllers, host:port separated by ; (a 5.x name)")
    sync_controller_metadata_period: int = setting(
        10_000,
        "pause between queries of the controllers' leader (a 5.x name)",
        unit="ms",
        long=True,
    )
    sync_broker_metadata_period: int = setting(
        5000,
        "pause between queries of the master at the controllers (a 5.x name)",
        unit="ms",
        long=True,
    )
    enable_slave_acting_master: bool = setting(
        False,
        "while the master is absent, the slave with the lowest id of a replica set serves reads "
        "in its place, and delivers waiting messages (a 5.x name)",
    )
    enable_remote_escape: bool = setting(
        False,
        "an acting master delivers waiting messages to other brokers of the cluster; false: they "
        "keep waiting (a 5.x name)",
    )
    skip_pre_online: bool = setting(
        False,
        "with enableSlaveActingMaster: start without asking the replica set which messages were "
        "delivered meanwhile (a 5.x name)",
    )
    sync_broker_member_group_period: int = setting(
        1000,
        "pause between queries of the replica set's live members at name servers (a 5.x name)",
        unit="ms",
        long=True,
    )
    broker_not_active_timeout_millis: int = setting(
        10_000,
        "with enableSlaveActingMaster: name servers consider this broker dead after so long "
        "without a heartbeat (a 5.x name)",
        unit="ms",
        long=True,
    )
    broker_heartbeat_interval: int = setting(
        1000,
        "pause between heartbeats to controllers, and with enableSlaveActingMaster to name "
        "servers (a 5.x name)",
        unit="ms",
        long=True,
    )
    controller_heart_beat_timeout_mills: int = setting(
        10_000,
        "controllers consider this broker dead after so long without a heartbeat (a 5.x name)",
        unit="ms",
        long=True,
    )
    broker_election_priority: int = setting(
        2_147_483_647, "of equal members the one with the lowest is elected (a 5.x name)"
    )
    stop_without_controller: bool = setting(
        True,
        "a master that no controller confirms for controllerHeartBeatTimeoutMills refuses "
        "messages if another master may have been elected, which would lose them; false: it "
        "accepts them, as with Java (this broker's own)",
    )
    check_sync_state_set_period: int = setting(
        5000,
        "pause between a master's checks of its sync state set (a 5.x name)",
        unit="ms",
        long=True,
    )
    channel_expired_timeout: int = setting(
        120_000,
        "a client without a heartbeat for this long is evicted (a 5.x name)",
        unit="ms",
        long=True,
    )

    def check(self) -> None:
        """Raise ConfigError for settings that contradict each other or are out of bounds."""
        parse_name_servers(self.namesrv_addr or "")
        for name, text in (
            ("brokerName", self.broker_name),
            ("brokerClusterName", self.broker_cluster_name),
        ):
            if not text.strip() or any(c in "/\\" or not c.isprintable() for c in text):
                raise ConfigError(
                    f"{name}={text}: must be a name without /, \\ and control characters"
                )
        cluster = self.broker_cluster_name
        longest = MAX_TOPIC_LENGTH - len(REVIVE_TOPIC_PREFIX)
        if len(cluster.encode()) > longest:
            raise ConfigError(
                f"brokerClusterName={cluster}: longer than {longest} bytes; topics of this broker "
                "are named after the cluster"
            )
        if not 0 <= self.broker_permission <= 6 or self.broker_permission & 1:
            raise ConfigError(
                f"brokerPermission={self.broker_permission}: expected 2 (write), 4 (read) or 6 "
                "(both)"
            )
        for name, value in (
            ("flushConsumerOffsetInterval", self.flush_consumer_offset_interval),
            ("registerNameServerPeriod", self.register_name_server_period),
            ("registerBrokerTimeoutMills", self.register_broker_timeout_mills),
            ("rocketmq.self.rebalance.lockMaxLiveTime", self.rebalance_lock_max_live_time),
            ("channelExpiredTimeout", self.channel_expired_timeout),
            ("updateNameServerAddrPeriod", self.update_name_server_addr_period),
            ("defaultTopicQueueNums", self.default_topic_queue_nums),
            ("expectConsumerNumUseFilter", self.expect_consumer_num_use_filter),
            ("reviveQueueNum", self.revive_queue_num),
            ("popPollingSize", self.pop_polling_size),
            ("checkSyncStateSetPeriod", self.check_sync_state_set_period),
            ("syncControllerMetadataPeriod", self.sync_controller_metadata_period),
            ("syncBrokerMetadataPeriod", self.sync_broker_metadata_period),
            ("brokerHeartbeatInterval", self.broker_heartbeat_interval),
            ("brokerNotActiveTimeoutMillis", self.broker_not_active_timeout_millis),
            ("syncBrokerMemberGroupPeriod", self.sync_broker_member_group_period),
            ("controllerHeartBeatTimeoutMills", self.controller_heart_beat_timeout_mills),
        ):
            if value < 1:
                raise ConfigError(f"{name}={value}: must be at least 1")
        beats, silence = self.broker_heartbeat_interval, self.broker_not_active_timeout_millis
        if self.enable_slave_acting_master and silence <= beats:
            raise ConfigError(
                f"brokerNotActiveTimeoutMillis={silence}: must be more than "
                f"brokerHeartbeatInterval={beats}"
            )
        parse_networks(self.filter_server_allow_list, "filterServerAllowList")
        if not 0 <= self.filter_server_nums <= MOST_FILTER_SERVERS:
            raise ConfigError(
                f"filterServerNums={self.filter_server_nums}: expected 0 to {MOST_FILTER_SERVERS}"
            )
        if not 1 <= self.max_error_rate_of_bloom_filter <= 99:
            raise ConfigError(
                f"maxErrorRateOfBloomFilter={self.max_error_rate_of_bloom_filter}: expected 1 to 99"
            )
