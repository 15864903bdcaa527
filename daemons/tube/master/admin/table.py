"""The methods of /webapi.htm, by their names, and which of them change something.

These are the ones of TubeMQ that its scripts and documentation use. Some have two names: an old one
and that of later releases; "bath" is TubeMQ's spelling.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from mq.daemons.tube.master.admin import (
    authorization,
    brokers,
    limits,
    orders,
    queries,
    topics,
)
from mq.daemons.tube.master.admin.answers import Row, data
from mq.daemons.tube.master.admin.parameters import Parameters
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.web_methods import Method, Methods, Redirected, RequestRefused, WebRequest

PATH = "/webapi.htm"

Work = Callable[[Core, Parameters], Awaitable[Row]]

CHANGES: dict[str, Work] = {
    "admin_add_broker_configure": brokers.add,
    "admin_batch_add_broker_configure": brokers.add_many,
    "admin_bath_add_broker_configure": brokers.add_many,
    "admin_update_broker_configure": brokers.update,
    "admin_online_broker_configure": brokers.online,
    "admin_offline_broker_configure": brokers.offline,
    "admin_reload_broker_configure": brokers.reload,
    "admin_delete_broker_configure": brokers.delete,
    "admin_set_broker_read_or_write": brokers.read_or_write,
    "admin_release_broker_autoforbidden_status": brokers.release_forbidden,
    "admin_add_new_topic_record": topics.add,
    "admin_add_topic_deploy_info": topics.add,
    "admin_bath_add_new_topic_record": topics.add_many,
    "admin_bath_add_topic_deploy_info": topics.add_many,
    "admin_modify_topic_info": topics.update,
    "admin_update_topic_deploy_info": topics.update,
    "admin_delete_topic_info": topics.delete,
    "admin_delete_topic_deploy_info": topics.delete,
    "admin_redo_deleted_topic_info": topics.redo,
    "admin_redo_deleted_topic_deploy_info": topics.redo,
    "admin_remove_topic_info": topics.remove,
    "admin_remove_topic_deploy_info": topics.remove,
    "admin_set_cluster_default_setting": limits.set_cluster,
    "admin_update_cluster_default_setting": limits.set_cluster,
    "admin_set_def_flow_control_rule": limits.set_default_flow,
    "admin_upd_def_flow_control_rule": limits.set_default_flow,
    "admin_rmv_def_flow_control_rule": limits.remove_default_flow,
    "admin_set_group_flow_control_rule": limits.set_group_flow,
    "admin_upd_group_flow_control_rule": limits.set_group_flow,
    "admin_rmv_group_flow_control_rule": limits.remove_group_flow,
    "admin_add_consume_group_setting": limits.set_group_resources,
    "admin_upd_consume_group_setting": limits.set_group_resources,
    "admin_set_topic_authorize_control": authorization.set_topic_authorization,
    "admin_delete_topic_authorize_control": authorization.delete_topic_authorization,
    "admin_add_authorized_consumergroup_info": authorization.allow_group,
    "admin_delete_allowed_consumer_group_info": authorization.forbid_group,
    "admin_add_black_consumergroup_info": authorization.blacklist_group,
    "admin_add_group_filtercond_info": authorization.set_filter,
    "admin_mod_group_filtercond_info": authorization.update_filter,
    "admin_del_group_filtercond_info": authorization.delete_filter,
    "admin_rebalance_group_allocate": orders.rebalance,
    "admin_set_client_balance_group_consume_from_max": orders.from_max,
}

QUERIES: dict[str, Work] = {
    "admin_query_broker_configure": brokers.query,
    "admin_query_broker_run_status": brokers.run_status,
    "admin_query_topic_info": topics.query,
    "admin_query_topic_deploy_info": topics.query_deployed,
    "admin_query_cluster_default_setting": limits.query_cluster,
    "admin_query_def_flow_control_rule": limits.query_default_flow,
    "admin_query_group_flow_control_rule": limits.query_group_flow,
    "admin_query_topic_authorize_control": authorization.query_topic_authorization,
    "admin_query_allowed_consumer_group_info": authorization.query_allowed,
    "admin_query_group_filtercond_info": authorization.query_filter,
    "admin_query_sub_info": queries.subscriptions,
    "admin_query_consume_group_detail": queries.group_detail,
    "admin_query_group_info_by_topic": queries.groups_by_topic,
    "admin_query_server_version": queries.version,
}


class WebApi:
    """The paths of the web port. ``active_web`` returns host:port of the active master, "" if it is
    unknown."""

    def __init__(self, core: Core, token: str, active_web: Callable[[], str]) -> None:
        self._core = core
        self._active_web = active_web
        by_name: dict[str, Method] = {
            name: partial(self._call, work) for name, work in {**CHANGES, **QUERIES}.items()
        }
        by_name["admin_get_methods"] = self._methods
        self.paths = {PATH: Methods(by_name, frozenset(CHANGES), token, before=self._check_active)}

    async def _call(self, work: Work, request: WebRequest) -> Row:
        return await work(self._core, Parameters(request))

    def _methods(self, _: WebRequest) -> Row:
        names = sorted((*CHANGES, *QUERIES, "admin_get_methods"))
        return data([{"id": number, "method": name} for number, name in enumerate(names, 1)])

    def _check_active(self, request: WebRequest) -> None:
        """Raises Redirected from a standby, RequestRefused if no master is active."""
        if self._core.is_active():
            return
        web = self._active_web()
        if not web or web.endswith(":-1"):
            raise RequestRefused("Not found the master node address!", 503)
        raise Redirected(f"http://{web}{request.target}")
