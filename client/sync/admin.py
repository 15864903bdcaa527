"""Blocking administrative calls."""

from collections.abc import Sequence

from mq.client import admin
from mq.client.options import ClientOptions
from mq.client.sync.session import Blocking, Session, waiting
from mq.client.transport.session import Session as AsyncSession


class Admin(Blocking[admin.Admin]):
    """All administrative calls of `mq.client.Admin`. A context manager.

    with Admin("127.0.0.1:9876") as admin:
        print(admin.topic_list().topic_list)
    """

    def __init__(
        self,
        session: Session | str | Sequence[str],
        *,
        timeout: float | None = None,
        client: ClientOptions | None = None,
    ) -> None:
        """`session` is the addresses of name servers, or a blocking session to share.

        `timeout` is in seconds per request, by default the session's.
        """

        def make(shared: AsyncSession) -> admin.Admin:
            return admin.Admin(shared, timeout=timeout)

        super().__init__(session, make, client)

    update_account = waiting(admin.Admin.update_account)
    delete_account = waiting(admin.Admin.delete_account)
    update_global_addresses = waiting(admin.Admin.update_global_addresses)
    account_versions = waiting(admin.Admin.account_versions)
    accounts = waiting(admin.Admin.accounts)

    create_user = waiting(admin.Admin.create_user)
    update_user = waiting(admin.Admin.update_user)
    delete_user = waiting(admin.Admin.delete_user)
    user = waiting(admin.Admin.user)
    users = waiting(admin.Admin.users)
    create_policies = waiting(admin.Admin.create_policies)
    update_policies = waiting(admin.Admin.update_policies)
    delete_policies = waiting(admin.Admin.delete_policies)
    policies = waiting(admin.Admin.policies)
    all_policies = waiting(admin.Admin.all_policies)

    cluster_info = waiting(admin.Admin.cluster_info)
    broker_runtime_info = waiting(admin.Admin.broker_runtime_info)
    broker_config = waiting(admin.Admin.broker_config)
    update_broker_config = waiting(admin.Admin.update_broker_config)
    broker_stats = waiting(admin.Admin.broker_stats)
    producers = waiting(admin.Admin.producers)
    consume_queue = waiting(admin.Admin.consume_queue)
    broker_consume_stats = waiting(admin.Admin.broker_consume_stats)
    check_rocksdb_progress = waiting(admin.Admin.check_rocksdb_progress)
    export_rocksdb_config = waiting(admin.Admin.export_rocksdb_config)
    clean_expired_consume_queues = waiting(admin.Admin.clean_expired_consume_queues)
    clean_unused_topics = waiting(admin.Admin.clean_unused_topics)
    delete_expired_commit_log = waiting(admin.Admin.delete_expired_commit_log)

    ha_status = waiting(admin.Admin.ha_status)
    epochs = waiting(admin.Admin.epochs)
    reset_master_flush_offset = waiting(admin.Admin.reset_master_flush_offset)

    cold_data_info = waiting(admin.Admin.cold_data_info)
    update_cold_data_limits = waiting(admin.Admin.update_cold_data_limits)
    remove_cold_data_limit = waiting(admin.Admin.remove_cold_data_limit)
    set_read_ahead = waiting(admin.Admin.set_read_ahead)

    controller_metadata = waiting(admin.Admin.controller_metadata)
    sync_state = waiting(admin.Admin.sync_state)
    elect_master = waiting(admin.Admin.elect_master)
    clean_broker_metadata = waiting(admin.Admin.clean_broker_metadata)
    controller_config = waiting(admin.Admin.controller_config)
    update_controller_config = waiting(admin.Admin.update_controller_config)

    add_broker = waiting(admin.Admin.add_broker)
    remove_broker = waiting(admin.Admin.remove_broker)

    update_subscription_group = waiting(admin.Admin.update_subscription_group)
    update_subscription_groups = waiting(admin.Admin.update_subscription_groups)
    set_message_request_mode = waiting(admin.Admin.set_message_request_mode)
    export_pop_records = waiting(admin.Admin.export_pop_records)
    delete_subscription_group = waiting(admin.Admin.delete_subscription_group)
    subscription_group = waiting(admin.Admin.subscription_group)
    subscription_groups = waiting(admin.Admin.subscription_groups)
    consumer_connection = waiting(admin.Admin.consumer_connection)
    group_connection = waiting(admin.Admin.group_connection)
    producer_connection = waiting(admin.Admin.producer_connection)
    consumer_ids = waiting(admin.Admin.consumer_ids)
    consume_stats = waiting(admin.Admin.consume_stats)
    whole_consume_stats = waiting(admin.Admin.whole_consume_stats)
    consumer_running_info = waiting(admin.Admin.consumer_running_info)
    consumer_status = waiting(admin.Admin.consumer_status)
    reset_offset = waiting(admin.Admin.reset_offset)
    reset_queue = waiting(admin.Admin.reset_queue)
    lock_queues = waiting(admin.Admin.lock_queues)
    unlock_queues = waiting(admin.Admin.unlock_queues)

    view_message = waiting(admin.Admin.view_message)
    find_by_offset_id = waiting(admin.Admin.find_by_offset_id)
    query_message = waiting(admin.Admin.query_message)
    find_by_key = waiting(admin.Admin.find_by_key)
    find_by_unique_id = waiting(admin.Admin.find_by_unique_id)

    put_kv = waiting(admin.Admin.put_kv)
    put_kv_at = waiting(admin.Admin.put_kv_at)
    delete_kv = waiting(admin.Admin.delete_kv)
    delete_kv_at = waiting(admin.Admin.delete_kv_at)
    get_kv = waiting(admin.Admin.get_kv)
    kv_list = waiting(admin.Admin.kv_list)
    put_order_config = waiting(admin.Admin.put_order_config)
    name_server_config = waiting(admin.Admin.name_server_config)
    update_name_server_config = waiting(admin.Admin.update_name_server_config)
    wipe_write_permission = waiting(admin.Admin.wipe_write_permission)
    add_write_permission = waiting(admin.Admin.add_write_permission)

    max_offset = waiting(admin.Admin.max_offset)
    min_offset = waiting(admin.Admin.min_offset)
    search_offset = waiting(admin.Admin.search_offset)
    earliest_store_time = waiting(admin.Admin.earliest_store_time)
    query_consumer_offset = waiting(admin.Admin.query_consumer_offset)
    update_consumer_offset = waiting(admin.Admin.update_consumer_offset)
    all_consumer_offsets = waiting(admin.Admin.all_consumer_offsets)
    clone_group_offset = waiting(admin.Admin.clone_group_offset)

    snodes = waiting(admin.Admin.snodes)
    reach_snode = waiting(admin.Admin.reach_snode)

    create_topic = waiting(admin.Admin.create_topic)
    create_topics = waiting(admin.Admin.create_topics)
    static_topic = waiting(admin.Admin.static_topic)
    create_static_topic = waiting(admin.Admin.create_static_topic)
    delete_topic_in_broker = waiting(admin.Admin.delete_topic_in_broker)
    delete_topic_in_name_server = waiting(admin.Admin.delete_topic_in_name_server)
    topic_list = waiting(admin.Admin.topic_list)
    topics_of_cluster = waiting(admin.Admin.topics_of_cluster)
    system_topics = waiting(admin.Admin.system_topics)
    topic_route = waiting(admin.Admin.topic_route)
    topic_configs = waiting(admin.Admin.topic_configs)
    broker_system_topics = waiting(admin.Admin.broker_system_topics)
    topic_stats = waiting(admin.Admin.topic_stats)
    whole_topic_stats = waiting(admin.Admin.whole_topic_stats)
    topic_consumers = waiting(admin.Admin.topic_consumers)
    groups_of_topic = waiting(admin.Admin.groups_of_topic)
