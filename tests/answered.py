"""The test of each request that the daemons answer, as the rows of mq.protocol.codes say.

From these tables comes the part of docs/protocol.md between START and END: after a change run
`python -m tests.answered` from the root of the project. tests/test_answered.py holds the tables to
the daemons, and each test that is named to be there.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from mq.protocol.codes import AnyCode, RequestCode, SnodeCode

START = "<!-- generated from here on: python -m tests.answered -->\n"
END = "<!-- generated up to here: python -m tests.answered -->\n"
PATH = Path("docs/protocol.md")

_HANDLERS = "daemons/broker/test_handlers.py"
_CLEANING = "daemons/broker/test_retention_requests.py"
_RELAY = "daemons/broker/test_relay.py"
_SENDS = "daemons/broker/test_sends.py"
_LISTS = "daemons/broker/test_lists.py"
_POP = "daemons/broker/pop/test_pop.py"
_ASSIGNMENT = "daemons/broker/pop/test_assignment.py"
_ACCESS = "system/test_access_control.py"
_TRANSACTIONS = "daemons/broker/transactions/test_transactions.py"
_REPLICATION = "daemons/broker/replication/test_pair.py"
_MEMBERSHIP = "daemons/broker/membership/test_controlled_broker.py"
_ROUTES = "daemons/namesrv/test_routes.py"
_REGISTRATION = "daemons/namesrv/test_registration.py"
_LIVENESS = "daemons/namesrv/test_liveness.py"
_NAMESRV_TOPICS = "daemons/namesrv/test_topics.py"
_KV = "daemons/namesrv/test_kv.py"
_NAMESRV = "daemons/namesrv/test_namesrv.py"
_FILTERSRV = "daemons/filtersrv/test_filtersrv.py"
_SNODE = "daemons/snode"
_DIALECT = "daemons/broker/test_snode_dialect.py"
_SNODES = "daemons/namesrv/test_snodes.py"
_CONTROLLER = "daemons/controller/test_controller.py"

#: By code: the file of the test, under tests/, and its name.
BROKER: Mapping[AnyCode, str] = {
    RequestCode.SEND_MESSAGE: (
        f"{_SENDS}::test_a_message_in_the_first_form_of_the_header_is_stored_as_in_the_second"
    ),
    RequestCode.PULL_MESSAGE: (
        "daemons/broker/test_pull.py::test_a_queue_with_messages_answers_as_java"
    ),
    RequestCode.QUERY_MESSAGE: (
        f"{_HANDLERS}::test_a_message_is_found_by_offset_key_and_queue_entry"
    ),
    RequestCode.QUERY_CONSUMER_OFFSET: f"{_HANDLERS}::test_a_groups_offset_is_kept",
    RequestCode.UPDATE_CONSUMER_OFFSET: f"{_HANDLERS}::test_a_groups_offset_is_kept",
    RequestCode.UPDATE_AND_CREATE_TOPIC: (
        f"{_HANDLERS}::test_a_topic_is_created_changed_listed_and_deleted"
    ),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (
        f"{_LISTS}::test_topics_are_created_with_one_save_or_none_is"
    ),
    RequestCode.GET_ALL_TOPIC_CONFIG: (
        f"{_HANDLERS}::test_a_topic_is_created_changed_listed_and_deleted"
    ),
    RequestCode.UPDATE_BROKER_CONFIG: (
        f"{_HANDLERS}::test_settings_are_shown_and_changed_by_the_allow_list"
    ),
    RequestCode.GET_BROKER_CONFIG: (
        f"{_HANDLERS}::test_settings_are_shown_and_changed_by_the_allow_list"
    ),
    RequestCode.GET_BROKER_RUNTIME_INFO: (
        f"{_HANDLERS}::test_runtime_info_has_what_cluster_list_prints"
    ),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: f"{_HANDLERS}::test_offsets_of_a_queue_are_answered",
    RequestCode.GET_MAX_OFFSET: f"{_HANDLERS}::test_offsets_of_a_queue_are_answered",
    RequestCode.GET_MIN_OFFSET: f"{_HANDLERS}::test_offsets_of_a_queue_are_answered",
    RequestCode.GET_EARLIEST_MSG_STORETIME: f"{_HANDLERS}::test_offsets_of_a_queue_are_answered",
    RequestCode.VIEW_MESSAGE_BY_ID: (
        f"{_HANDLERS}::test_a_message_is_found_by_offset_key_and_queue_entry"
    ),
    RequestCode.HEART_BEAT: (
        f"{_HANDLERS}::test_a_heartbeat_makes_a_client_known_and_the_retry_topic"
    ),
    RequestCode.UNREGISTER_CLIENT: f"{_HANDLERS}::test_members_are_told_when_others_come_and_go",
    RequestCode.CONSUMER_SEND_MSG_BACK: (
        "daemons/broker/test_delay.py::test_a_message_sent_back_comes_again_in_the_retry_topic"
    ),
    RequestCode.END_TRANSACTION: f"{_TRANSACTIONS}::test_nobody_sees_a_half_before_its_commit",
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (
        f"{_HANDLERS}::test_a_heartbeat_makes_a_client_known_and_the_retry_topic"
    ),
    RequestCode.LOCK_BATCH_MQ: f"{_HANDLERS}::test_queues_are_locked_for_one_client",
    RequestCode.UNLOCK_BATCH_MQ: f"{_HANDLERS}::test_queues_are_locked_for_one_client",
    RequestCode.GET_ALL_CONSUMER_OFFSET: f"{_HANDLERS}::test_a_groups_offset_is_kept",
    RequestCode.GET_ALL_DELAY_OFFSET: (
        "daemons/broker/test_delay.py::test_an_offset_outside_its_queue_is_corrected"
    ),
    RequestCode.CHECK_CLIENT_CONFIG: (
        "daemons/broker/filter/test_pull_filters.py::test_a_supported_expression_passes_the_check"
    ),
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: (
        f"{_ACCESS}::test_accounts_change_by_request_and_by_editing_the_file"
    ),
    RequestCode.DELETE_ACL_CONFIG: (
        f"{_ACCESS}::test_accounts_change_by_request_and_by_editing_the_file"
    ),
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: (
        "cli/commands/test_acl.py::test_no_secret_key_is_shown_in_any_format"
    ),
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: (
        f"{_ACCESS}::test_accounts_change_by_request_and_by_editing_the_file"
    ),
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (
        f"{_ACCESS}::test_accounts_change_by_request_and_by_editing_the_file"
    ),
    RequestCode.GET_TIMER_CHECK_POINT: (
        f"{_LISTS}::test_the_timer_tells_how_far_it_has_come_once_it_is_used"
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (
        f"{_HANDLERS}::test_a_group_is_created_listed_and_deleted"
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (
        f"{_HANDLERS}::test_a_group_is_created_listed_and_deleted"
    ),
    RequestCode.GET_TOPIC_STATS_INFO: (
        f"{_HANDLERS}::test_a_topic_is_created_changed_listed_and_deleted"
    ),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (
        f"{_HANDLERS}::test_a_heartbeat_makes_a_client_known_and_the_retry_topic"
    ),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: (
        f"{_HANDLERS}::test_a_heartbeat_makes_a_client_known_and_the_retry_topic"
    ),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (
        f"{_HANDLERS}::test_a_group_is_created_listed_and_deleted"
    ),
    RequestCode.GET_CONSUME_STATS: f"{_HANDLERS}::test_topic_and_consume_stats_show_progress",
    RequestCode.DELETE_TOPIC_IN_BROKER: (
        f"{_HANDLERS}::test_a_topic_is_created_changed_listed_and_deleted"
    ),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: f"{_RELAY}::test_consumers_are_told_new_offsets",
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (
        f"{_RELAY}::test_consumers_say_how_far_they_are"
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (
        f"{_LISTS}::test_groups_are_created_with_one_save_or_none_is"
    ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (
        f"{_HANDLERS}::test_groups_of_a_topic_are_found_online_and_by_offset"
    ),
    RequestCode.QUERY_CONSUME_TIME_SPAN: f"{_HANDLERS}::test_topic_and_consume_stats_show_progress",
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: (
        f"{_HANDLERS}::test_a_system_topic_cannot_be_deleted"
    ),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: (
        f"{_CLEANING}::test_expired_log_files_and_then_queues_without_messages_are_deleted"
    ),
    RequestCode.GET_CONSUMER_RUNNING_INFO: f"{_RELAY}::test_a_consumer_answers_for_its_inner_state",
    RequestCode.QUERY_CORRECTION_OFFSET: f"{_HANDLERS}::test_offsets_are_cloned_and_corrected",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (
        f"{_RELAY}::test_a_consumer_is_given_a_stored_message_to_consume_now"
    ),
    RequestCode.SEND_MESSAGE_V2: (
        "daemons/broker/test_delay.py::"
        "test_a_delayed_message_comes_when_it_is_due_with_all_that_it_had"
    ),
    RequestCode.CLONE_GROUP_OFFSET: f"{_HANDLERS}::test_offsets_are_cloned_and_corrected",
    RequestCode.VIEW_BROKER_STATS_DATA: (
        "daemons/broker/statistics/test_stat_items.py::"
        "test_a_broker_shows_what_it_has_put_and_given_and_refuses_what_it_never_counted"
    ),
    RequestCode.CLEAN_UNUSED_TOPIC: (
        f"{_CLEANING}::test_queues_of_topics_that_are_not_there_are_deleted"
    ),
    RequestCode.GET_BROKER_CONSUME_STATS: (
        f"{_HANDLERS}::test_topic_and_consume_stats_show_progress"
    ),
    RequestCode.SEND_BATCH_MESSAGE: f"{_SENDS}::test_the_messages_of_a_batch_are_stored_one_by_one",
    RequestCode.QUERY_CONSUME_QUEUE: (
        f"{_HANDLERS}::test_a_message_is_found_by_offset_key_and_queue_entry"
    ),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (
        f"{_TRANSACTIONS}::test_after_so_many_checks_a_transaction_is_given_up_and_can_be_resumed"
    ),
    RequestCode.SEND_REPLY_MESSAGE: (
        f"{_SENDS}::test_a_reply_in_either_form_of_the_header_is_pushed_and_stored"
    ),
    RequestCode.SEND_REPLY_MESSAGE_V2: (
        f"{_SENDS}::test_a_reply_in_either_form_of_the_header_is_pushed_and_stored"
    ),
    RequestCode.GET_ALL_PRODUCER_INFO: (
        f"{_HANDLERS}::test_a_heartbeat_makes_a_client_known_and_the_retry_topic"
    ),
    RequestCode.DELETE_EXPIRED_COMMITLOG: (
        f"{_CLEANING}::test_expired_log_files_and_then_queues_without_messages_are_deleted"
    ),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: (
        f"{_HANDLERS}::test_groups_of_a_topic_are_found_online_and_by_offset"
    ),
    RequestCode.GET_TOPIC_CONFIG: f"{_LISTS}::test_topics_are_created_with_one_save_or_none_is",
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: (
        f"{_LISTS}::test_groups_are_created_with_one_save_or_none_is"
    ),
    RequestCode.LITE_PULL_MESSAGE: (
        "daemons/broker/test_pull.py::test_the_lite_pull_consumers_code_is_served_alike"
    ),
    RequestCode.RECALL_MESSAGE: (
        "client/test_transactions.py::test_a_message_can_be_recalled_by_the_handle_of_its_send"
    ),
    RequestCode.QUERY_ASSIGNMENT: (
        f"{_ASSIGNMENT}::test_with_pop_each_client_gets_all_queues_or_those_of_some_more"
    ),
    RequestCode.SET_MESSAGE_REQUEST_MODE: (
        f"{_ASSIGNMENT}::test_modes_are_kept_over_a_restart_in_the_file_of_java"
    ),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: (
        f"{_ASSIGNMENT}::test_modes_are_kept_over_a_restart_in_the_file_of_java"
    ),
    RequestCode.POP_MESSAGE: (
        f"{_POP}::test_what_is_not_acknowledged_in_time_comes_again_in_the_retry_topic"
    ),
    RequestCode.ACK_MESSAGE: (
        f"{_POP}::test_each_message_is_popped_once_and_an_acknowledged_one_does_not_come_again"
    ),
    RequestCode.PEEK_MESSAGE: f"{_POP}::test_a_peek_takes_nothing",
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: (
        f"{_POP}::test_the_invisible_time_can_be_changed_both_ways"
    ),
    RequestCode.NOTIFICATION: f"{_POP}::test_a_notification_comes_when_there_is_something_to_pop",
    RequestCode.POLLING_INFO: (
        f"{_POP}::test_a_pop_waits_for_a_message_and_the_first_that_waits_gets_it"
    ),
    RequestCode.POP_ROLLBACK: f"{_POP}::test_what_is_popped_is_nowhere_to_be_exported_from",
    RequestCode.GET_BROKER_HA_STATUS: (
        f"{_REPLICATION}::test_ha_status_tells_of_slaves_and_of_the_master"
    ),
    RequestCode.GET_BROKER_EPOCH_CACHE: (
        "daemons/broker/replication/test_controlled_pair.py"
        "::test_a_slave_has_the_log_the_queues_and_the_epochs_of_its_master"
    ),
    RequestCode.EXCHANGE_BROKER_HA_INFO: (
        f"{_MEMBERSHIP}::test_a_master_says_where_it_is_replicated_from_and_a_slave_does_not"
    ),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: (
        "daemons/broker/acting/test_acting_master.py::test_a_notice_has_a_slave_ask_at_once"
    ),
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: (
        f"{_MEMBERSHIP}::test_a_notice_has_a_broker_ask_and_is_not_believed"
    ),
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: (
        f"{_HANDLERS}::test_settings_are_json_already_when_they_are_to_be_exported"
    ),
    RequestCode.BATCH_ACK_MESSAGE: (
        f"{_POP}::test_what_is_not_acknowledged_in_time_comes_again_in_the_retry_topic"
    ),
    RequestCode.REGISTER_FILTER_SERVER: (
        "daemons/broker/test_filter_servers.py"
        "::test_one_of_an_allowed_address_is_told_its_broker_and_is_in_the_routes"
    ),
}

NAME_SERVER: Mapping[AnyCode, str] = {
    RequestCode.PUT_KV_CONFIG: f"{_KV}::test_kv_values_are_kept_over_a_restart",
    RequestCode.GET_KV_CONFIG: f"{_KV}::test_kv_values_are_kept_over_a_restart",
    RequestCode.DELETE_KV_CONFIG: f"{_KV}::test_kv_values_are_kept_over_a_restart",
    RequestCode.REGISTER_BROKER: f"{_ROUTES}::test_a_registered_topic_has_a_route",
    RequestCode.UNREGISTER_BROKER: f"{_LIVENESS}::test_an_unregistered_broker_is_gone",
    RequestCode.GET_ROUTEINFO_BY_TOPIC: f"{_ROUTES}::test_a_registered_topic_has_a_route",
    RequestCode.GET_BROKER_CLUSTER_INFO: (
        f"{_ROUTES}::test_a_slave_that_became_master_stands_at_one_id_only"
    ),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: (
        f"{_ROUTES}::test_write_permission_is_wiped_and_given_back"
    ),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (
        f"{_NAMESRV_TOPICS}::test_topics_are_listed_by_cluster_system_and_unit"
    ),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: (
        f"{_NAMESRV_TOPICS}::test_a_topic_is_deleted_everywhere_or_in_one_cluster"
    ),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: (
        f"{_NAMESRV_TOPICS}::test_a_topic_told_alone_by_a_5x_broker_is_taken_in"
    ),
    RequestCode.GET_KVLIST_BY_NAMESPACE: f"{_KV}::test_kv_values_are_kept_over_a_restart",
    RequestCode.GET_TOPICS_BY_CLUSTER: (
        f"{_NAMESRV_TOPICS}::test_topics_are_listed_by_cluster_system_and_unit"
    ),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: (
        f"{_NAMESRV_TOPICS}::test_topics_are_listed_by_cluster_system_and_unit"
    ),
    RequestCode.GET_UNIT_TOPIC_LIST: (
        f"{_NAMESRV_TOPICS}::test_topics_are_listed_by_cluster_system_and_unit"
    ),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (
        f"{_NAMESRV_TOPICS}::test_topics_are_listed_by_cluster_system_and_unit"
    ),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (
        f"{_NAMESRV_TOPICS}::test_topics_are_listed_by_cluster_system_and_unit"
    ),
    RequestCode.UPDATE_NAMESRV_CONFIG: (
        f"{_NAMESRV}::test_settings_are_shown_and_changed_by_the_allow_list"
    ),
    RequestCode.GET_NAMESRV_CONFIG: (
        f"{_NAMESRV}::test_settings_are_shown_and_changed_by_the_allow_list"
    ),
    RequestCode.QUERY_DATA_VERSION: (
        f"{_REGISTRATION}::test_the_data_version_says_whether_to_register_again"
    ),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: (
        f"{_ROUTES}::test_write_permission_is_wiped_and_given_back"
    ),
    RequestCode.GET_BROKER_MEMBER_GROUP: (
        f"{_ROUTES}::test_a_5x_broker_learns_the_members_of_its_group"
    ),
    RequestCode.BROKER_HEARTBEAT: (
        f"{_LIVENESS}::test_a_sign_of_life_without_registration_keeps_a_broker"
    ),
    SnodeCode.REGISTER_SNODE: f"{_SNODES}::test_snodes_are_listed_by_name_and_by_cluster",
    SnodeCode.GET_SNODE_CLUSTER_INFO: f"{_SNODES}::test_snodes_are_listed_by_name_and_by_cluster",
    SnodeCode.GET_SNODE_INFO: (
        f"{_SNODES}::test_all_snodes_of_a_cluster_are_listed_by_their_names"
    ),
}


CONTROLLER: Mapping[AnyCode, str] = {
    RequestCode.BROKER_HEARTBEAT: (
        f"{_CONTROLLER}::test_a_master_whose_connection_ends_is_replaced_by_the_best_in_sync"
    ),
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: (
        f"{_CONTROLLER}::test_who_is_in_sync_is_changed_by_the_master_of_this_epoch_only"
    ),
    RequestCode.CONTROLLER_ELECT_MASTER: (
        f"{_CONTROLLER}::test_the_first_that_asks_is_the_master_and_the_others_are_told"
    ),
    RequestCode.CONTROLLER_REGISTER_BROKER: (
        f"{_CONTROLLER}::test_the_first_that_asks_is_the_master_and_the_others_are_told"
    ),
    RequestCode.CONTROLLER_GET_REPLICA_INFO: (
        f"{_CONTROLLER}::test_who_is_in_sync_is_changed_by_the_master_of_this_epoch_only"
    ),
    RequestCode.CONTROLLER_GET_METADATA_INFO: (
        "daemons/controller/test_leadership.py"
        "::test_all_name_the_leader_and_one_that_follows_says_who_is_to_be_asked"
    ),
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: (
        f"{_CONTROLLER}::test_replicas_are_shown_and_forgotten"
    ),
    RequestCode.UPDATE_CONTROLLER_CONFIG: (
        f"{_CONTROLLER}::test_settings_are_shown_and_changed_by_the_allow_list"
    ),
    RequestCode.GET_CONTROLLER_CONFIG: (
        f"{_CONTROLLER}::test_settings_are_shown_and_changed_by_the_allow_list"
    ),
    RequestCode.CLEAN_BROKER_DATA: f"{_CONTROLLER}::test_replicas_are_shown_and_forgotten",
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: (
        f"{_CONTROLLER}::test_brokers_get_ids_one_after_the_other_each_once"
    ),
    RequestCode.CONTROLLER_APPLY_BROKER_ID: (
        f"{_CONTROLLER}::test_brokers_get_ids_one_after_the_other_each_once"
    ),
}

FILTER_SERVER: Mapping[AnyCode, str] = {
    RequestCode.PULL_MESSAGE: f"{_FILTERSRV}::test_a_pull_gives_what_the_class_lets_through",
    RequestCode.REGISTER_MESSAGE_FILTER_CLASS: (
        f"{_FILTERSRV}::test_a_class_is_replaced_when_it_changes_and_else_stays"
    ),
}


#: Of a broker on a connection that a snode has opened.
BROKER_OF_SNODES: Mapping[AnyCode, str] = {
    SnodeCode.SNODE_PULL_MESSAGE: (
        f"{_DIALECT}::test_a_number_means_what_each_connection_has_agreed_on"
    ),
    SnodeCode.CREATE_RETRY_TOPIC: (
        f"{_DIALECT}::test_a_number_means_what_each_connection_has_agreed_on"
    ),
}

SNODE: Mapping[AnyCode, str] = {
    RequestCode.PULL_MESSAGE: (
        f"{_SNODE}/test_pulls.py::test_the_subscription_of_the_heartbeat_counts_at_the_enode"
    ),
    RequestCode.QUERY_CONSUMER_OFFSET: (
        f"{_SNODE}/test_offsets.py::test_what_the_enode_knows_is_told_where_nothing_was_committed_here"
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: (
        f"{_SNODE}/test_offsets.py::test_an_offset_is_kept_here_and_goes_to_the_enode_at_the_end"
    ),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (
        f"{_SNODE}/test_queues.py::test_the_bounds_of_queues_are_told"
    ),
    RequestCode.GET_MAX_OFFSET: f"{_SNODE}/test_queues.py::test_the_bounds_of_queues_are_told",
    RequestCode.GET_MIN_OFFSET: f"{_SNODE}/test_queues.py::test_the_bounds_of_queues_are_told",
    RequestCode.HEART_BEAT: (
        f"{_SNODE}/test_clients.py::test_members_are_told_of_each_other_until_they_leave"
    ),
    RequestCode.UNREGISTER_CLIENT: (
        f"{_SNODE}/test_clients.py::test_members_are_told_of_each_other_until_they_leave"
    ),
    RequestCode.CONSUMER_SEND_MSG_BACK: (
        f"{_SNODE}/test_sends.py::test_a_message_that_was_not_consumed_comes_back_later"
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (
        f"{_SNODE}/test_clients.py::test_a_client_with_two_connections_is_one_member"
    ),
    RequestCode.LOCK_BATCH_MQ: (
        f"{_SNODE}/test_queues.py::test_a_lock_is_held_until_it_is_given_up"
    ),
    RequestCode.UNLOCK_BATCH_MQ: (
        f"{_SNODE}/test_queues.py::test_a_lock_is_held_until_it_is_given_up"
    ),
    RequestCode.CHECK_CLIENT_CONFIG: f"{_SNODE}/test_clients.py::test_expressions_are_looked_at",
    RequestCode.GET_ROUTEINFO_BY_TOPIC: (
        f"{_SNODE}/test_queues.py::test_in_routes_the_snode_stands_for_brokers_by_its_ports"
    ),
    RequestCode.SEND_MESSAGE_V2: (
        f"{_SNODE}/test_sends.py::test_a_message_goes_to_the_enode_that_it_names"
    ),
    RequestCode.SEND_BATCH_MESSAGE: f"{_SNODE}/test_sends.py::test_a_batch_is_stored_whole",
    RequestCode.LITE_PULL_MESSAGE: (
        f"{_SNODE}/test_pulls.py::test_the_subscription_of_the_heartbeat_counts_at_the_enode"
    ),
    SnodeCode.SNODE_PULL_MESSAGE: (
        f"{_SNODE}/test_pulls.py::test_the_subscription_of_the_heartbeat_counts_at_the_enode"
    ),
    SnodeCode.CREATE_RETRY_TOPIC: (
        f"{_SNODE}/test_queues.py::test_a_retry_topic_is_made_at_the_enode_that_is_named"
    ),
}


def text() -> str:
    """The part of the document."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for title, table in (
        ("A broker", BROKER),
        ("A name server", NAME_SERVER),
        ("A controller", CONTROLLER),
        ("A filter server", FILTER_SERVER),
        ("A snode", SNODE),
        ("A broker, on a connection that a snode has opened, besides", BROKER_OF_SNODES),
    ):
        yield f"{title} answers:\n"
        yield "| code | name | releases | test |"
        yield "|---|---|---|---|"
        for code in sorted(table):
            path, _, name = table[code].partition("::")
            yield f"| {int(code)} | {code.name} | {code.release or 'all'} | `{path}` {name} |"
        yield ""


def write(path: Path = PATH) -> None:
    """Put the tables in the document at `path`, between START and END."""
    before, start, rest = path.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise SystemExit(f"{path} has not both lines {START!r} and {END!r}")
    path.write_text(before + START + text() + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    write()
