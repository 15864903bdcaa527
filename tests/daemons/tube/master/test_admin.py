"""/webapi.htm: the settings of administrators, and their queries."""

import json
from pathlib import Path

import pytest

from mq.daemons.tube.master.admin.table import CHANGES
from tests.daemons.tube.loops import in_loop
from tests.daemons.tube.master.masters import TOKEN, get, running

BROKER: dict[str, object] = {"brokerId": 1, "brokerIp": "127.0.0.1", "brokerPort": 9001}


@in_loop
async def test_a_change_needs_the_token(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        port = cluster.master.web_port
        for token in ({}, {"confModAuthToken": "ASDFGHJKL"}, {"confModAuthToken": TOKEN + "x"}):
            for method in CHANGES:
                _, _, body = await get(port, method, {**BROKER, "createUser": "me", **token})
                assert not json.loads(body)["result"], method
        assert not list(cluster.core.catalog.brokers())
        _, _, body = await get(port, "admin_query_broker_configure", {})
        assert json.loads(body) == {
            "result": True, "errCode": 0, "errMsg": "OK", "data": [], "count": 0,
        }  # fmt: skip


@in_loop
async def test_all_methods_are_listed_and_others_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        methods = (await cluster.web("admin_get_methods"))["data"]
        assert {"admin_add_broker_configure", "admin_query_sub_info"} <= {
            row["method"] for row in methods
        }
        answer = await cluster.web("admin_make_coffee")
        assert (answer["result"], answer["errCode"]) == (False, 400)


@in_loop
async def test_a_broker_is_set_up_and_looked_at(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        added = await cluster.web("admin_add_broker_configure", numPartitions=3, **BROKER)
        assert added["data"] == [
            {"brokerId": 1, "brokerIp": "127.0.0.1", "success": True, "errCode": 200,
             "errInfo": "Ok!"}
        ]  # fmt: skip
        [row] = (await cluster.web("admin_query_broker_configure", withTopic="true"))["data"]
        assert (row["brokerId"], row["brokerPort"], row["brokerTLSPort"]) == (1, 9001, 8124)
        assert (row["manageStatus"], row["numPartitions"]) == ("draft", 3)
        assert row["deletePolicy"] == "delete,168h"
        assert row["createUser"] == "me"
        assert [t["topicName"] for t in row["topicSet"]] == ["__offset_history__"]
        [status] = (await cluster.web("admin_query_broker_run_status"))["data"]
        assert (status["runStatus"], status["subStatus"]) == ("-", "-")
        await cluster.changed("admin_online_broker_configure", brokerId=1)
        [status] = (await cluster.web("admin_query_broker_run_status"))["data"]
        assert status["runStatus"] == "unRegister"
        await cluster.serve()
        [status] = (await cluster.web("admin_query_broker_run_status", withDetail="true"))["data"]
        assert (status["runStatus"], status["subStatus"]) == ("running", "idle")
        assert status["isBrokerOnline"] == status["acceptPublish"] == "true"
        assert status["BrokerRunStatusInfo"]["curStepStatus"] == "idle"
        await cluster.changed("admin_update_broker_configure", brokerId=1, numPartitions=5)
        await cluster.changed("admin_reload_broker_configure", brokerId=1)
        [row] = (await cluster.web("admin_query_broker_configure", manageStatus="online"))["data"]
        assert row["numPartitions"] == 5
        assert row["isConfChanged"]


@pytest.mark.parametrize(
    ("method", "more", "code"),
    [
        ("admin_add_broker_configure", {"brokerId": 2}, 402),  # the address is taken
        ("admin_add_broker_configure", {"brokerPort": 9002}, 402),  # the id is
        ("admin_update_broker_configure", {"brokerId": 9}, 401),
        ("admin_update_broker_configure", {}, 403),
        ("admin_online_broker_configure", {"brokerId": 9}, 401),
        ("admin_reload_broker_configure", {}, 406),
        ("admin_set_broker_read_or_write", {"acceptPublish": "true"}, 405),
        ("admin_add_new_topic_record", {"topicName": "demo", "brokerId": 9}, 401),
        ("admin_modify_topic_info", {"topicName": "demo"}, 401),
        ("admin_delete_topic_info", {"topicName": "demo"}, 401),
        ("admin_add_authorized_consumergroup_info", {"topicName": "demo", "groupName": "gg"}, 401),
        ("admin_mod_group_filtercond_info", {"topicName": "demo", "groupName": "gg"}, 401),
    ],
)
@in_loop
async def test_a_change_that_does_not_fit_is_refused_by_its_code(
    tmp_path: Path, method: str, more: dict[str, object], code: int
) -> None:
    async with running(tmp_path) as cluster:
        await cluster.changed("admin_add_broker_configure", **BROKER)
        before = cluster.core.catalog.changes
        [row] = (await cluster.web(method, **{**BROKER, **more}))["data"]
        assert (row["success"], row["errCode"]) == (False, code)
        assert cluster.core.catalog.changes == before


@pytest.mark.parametrize(
    ("method", "parameters", "text"),
    [
        ("admin_add_broker_configure", {"brokerIp": ""}, "brokerIp"),
        ("admin_add_broker_configure", {"brokerIp": "1.2.3"}, "IPv4"),
        ("admin_add_broker_configure", {"brokerIp": "1.2.3.4", "createUser": ""}, "createUser"),
        ("admin_add_broker_configure", {"brokerIp": "1.2.3.4", "createUser": "1"}, "createUser"),
        ("admin_add_broker_configure", {"brokerIp": "1.2.3.4", "brokerPort": 0}, "brokerPort"),
        ("admin_add_broker_configure", {"brokerIp": "1.2.3.4", "brokerPort": "x"}, "brokerPort"),
        (
            "admin_add_broker_configure",
            {"brokerIp": "1.2.3.4", "manageStatus": "x"},
            "manageStatus",
        ),
        ("admin_add_broker_configure", {"brokerIp": "1.2.3.4", "createDate": "x"}, "createDate"),
        ("admin_online_broker_configure", {"brokerId": "1,x"}, "brokerId"),
        ("admin_online_broker_configure", {}, "brokerId"),
        ("admin_query_broker_configure", {"brokerId": "9" * 5000}, "brokerId"),
        ("admin_online_broker_configure", {"brokerId": ",".join(map(str, range(1, 1002)))}, "1000"),
        ("admin_add_new_topic_record", {"brokerId": 1, "topicName": "1"}, "topicName"),
        ("admin_add_new_topic_record", {"brokerId": 1}, "topicName"),
        ("admin_set_broker_read_or_write", {"brokerId": 1}, "must exist"),
        ("admin_set_def_flow_control_rule", {"flowCtrlInfo": "[{}]"}, "type"),
        ("admin_set_def_flow_control_rule", {"qryPriorityId": 104}, "qryPriorityId"),
        ("admin_set_cluster_default_setting", {"maxMsgSizeInMB": 21}, "maxMsgSizeInMB"),
        ("admin_rebalance_group_allocate", {"groupName": "gg", "consumerId": "c"}, "not online"),
        ("admin_bath_add_new_topic_record", {"topicJsonSet": "{"}, "topicJsonSet"),
        ("admin_bath_add_new_topic_record", {"topicJsonSet": "[1]"}, "objects"),
        ("admin_query_consume_group_detail", {}, "groupName"),
        ("admin_rebalance_group_allocate", {"groupName": ",", "consumerId": "c"}, "groupName"),
    ],
)
@in_loop
async def test_a_parameter_that_is_wrong_is_named(
    tmp_path: Path, method: str, parameters: dict[str, object], text: str
) -> None:
    async with running(tmp_path) as cluster:
        answer = await cluster.web(method, **parameters)
        assert not answer["result"]
        assert text in answer["errMsg"]


@in_loop
async def test_topics_are_deployed_changed_and_looked_at(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=2, stores=2)
        [old] = (await cluster.web("admin_query_topic_info", topicName="demo"))["data"]
        assert old["topicName"] == "demo"
        assert old["maxMsgSizeInMB"] == 1
        assert (old["infoCount"], old["totalCfgNumPart"], old["totalRunNumPartCount"]) == (1, 4, 4)
        assert old["isSrvAcceptPublish"]
        assert old["topicInfo"][0]["runInfo"]["brokerManageStatus"] == "online"
        [new] = (await cluster.web("admin_query_topic_deploy_info", topicName="demo"))["data"]
        assert new["deployInfo"][0]["numTopicStores"] == 2
        which: dict[str, object] = {"topicName": "demo", "brokerId": 1}
        await cluster.changed("admin_modify_topic_info", numPartitions=3, **which)
        refused = await cluster.web("admin_modify_topic_info", numPartitions=1, **which)
        assert refused["data"][0]["errCode"] == 407
        again = await cluster.web("admin_add_new_topic_record", **which)
        assert again["data"][0]["errCode"] == 402
        closed = {"acceptPublish": "false", "acceptSubscribe": "false"}
        await cluster.changed("admin_modify_topic_info", **which, **closed)
        await cluster.changed("admin_delete_topic_info", **which)
        refused = await cluster.web("admin_modify_topic_info", numPartitions=9, **which)
        assert refused["data"][0]["errCode"] == 406
        await cluster.changed("admin_redo_deleted_topic_info", **which)
        await cluster.changed("admin_modify_topic_info", **which, acceptPublish="true")
        more = {"topicName": "more", "brokerId": 1, "numPartitions": 4}
        records = json.dumps([more, {"topicName": "most", "brokerId": 1}])
        await cluster.changed("admin_bath_add_new_topic_record", topicJsonSet=records)
        found = (await cluster.web("admin_query_topic_info", topicName="more,most"))["data"]
        assert [row["topicInfo"][0]["numPartitions"] for row in found] == [4, 1]


@in_loop
async def test_a_broker_is_forgotten_when_nothing_is_left_on_it(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        delete = "admin_delete_broker_configure"
        assert (await cluster.web(delete, brokerId=1))["data"][0]["errCode"] == 406
        await cluster.changed("admin_offline_broker_configure", brokerId=1)
        assert (await cluster.web(delete, brokerId=1))["data"][0]["errCode"] == 404
        closed = {"acceptPublish": "false", "acceptSubscribe": "false"}
        await cluster.changed("admin_modify_topic_info", topicName="demo", brokerId=1, **closed)
        await cluster.changed(delete, brokerId=1, isReservedData="true")
        assert not list(cluster.core.catalog.brokers())
        assert not cluster.core.catalog.deployed_topics()
        assert not cluster.core.brokers.runs
        await cluster.changed(delete, brokerId=1)  # duplicates count once


@in_loop
async def test_what_goes_for_the_cluster_reaches_brokers_and_producers(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        await cluster.changed("admin_set_cluster_default_setting", maxMsgSizeInMB=3)
        [row] = (await cluster.web("admin_query_cluster_default_setting"))["data"]
        assert (row["maxMsgSizeInMB"], row["flowCtrlInfo"]) == (3, [])
        from mq.protocol.tube import messages as m

        answer = await cluster.register_broker(1, clsConfig=m.ClusterConfig(configId=-2))
        assert answer.clsConfig.maxMsgSize == 3 << 20
        known = m.ClusterConfig(configId=answer.clsConfig.configId)
        again = await cluster.register_broker(1, clsConfig=known, flowCheckId=-2)
        assert not again.clsConfig.HasField("maxMsgSize")
        assert (again.flowControlInfo, again.qryPriorityId) == (" ", 301)


RULES = '[{"type":1,"rule":[{"zeroCnt":3,"freqInMs":300}]}]'


@in_loop
async def test_limits_are_set_looked_at_and_removed(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        limits: dict[str, object] = {"flowCtrlInfo": RULES, "statusId": 1}
        await cluster.changed("admin_set_def_flow_control_rule", **limits)
        [row] = (await cluster.web("admin_query_def_flow_control_rule"))["data"]
        assert (row["statusId"], row["ruleCnt"], row["flowCtrlInfo"]) == (1, 1, json.loads(RULES))
        await cluster.changed("admin_rmv_def_flow_control_rule")
        assert (await cluster.web("admin_query_def_flow_control_rule"))["data"][0]["ruleCnt"] == 0
        await cluster.changed("admin_set_group_flow_control_rule", groupName="gg", **limits)
        await cluster.changed(
            "admin_add_consume_group_setting", groupName="gg", allowedBClientRate=7
        )
        [row] = (await cluster.web("admin_query_group_flow_control_rule"))["data"]
        assert (row["groupName"], row["statusId"]) == ("gg", 1)
        assert cluster.core.allowed_rate("gg") == 7
        await cluster.changed("admin_rmv_group_flow_control_rule", groupName="gg")
        [row] = (await cluster.web("admin_query_group_flow_control_rule", groupName="gg"))["data"]
        assert (row["statusId"], row["flowCtrlInfo"]) == (0, [])


@in_loop
async def test_who_may_consume_what_is_looked_at(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        both: dict[str, object] = {"topicName": "demo", "groupName": "gg"}
        await cluster.changed(
            "admin_set_topic_authorize_control", topicName="demo", isEnable="true"
        )
        await cluster.changed("admin_add_authorized_consumergroup_info", **both)
        await cluster.changed(
            "admin_add_group_filtercond_info", condStatus=2, filterConds="b,a", **both
        )
        [row] = (await cluster.web("admin_query_topic_authorize_control", topicName="demo"))["data"]
        assert (row["isEnable"], row["groupCount"]) == (True, 1)
        [row] = (await cluster.web("admin_query_group_filtercond_info"))["data"]
        assert (row["condStatus"], row["filterConds"]) == (2, ",a,b,")
        [row] = (await cluster.web("admin_query_topic_info", topicName="demo"))["data"]
        assert row["authData"]["authFilterCondSet"][0]["filterConds"] == "a,b"
        await cluster.changed("admin_del_group_filtercond_info", **both)
        await cluster.changed("admin_delete_allowed_consumer_group_info", **both)
        assert (await cluster.web("admin_query_allowed_consumer_group_info"))["data"] == []
        await cluster.changed("admin_delete_topic_authorize_control", topicName="demo")
        assert (await cluster.peer.consume("c1", "gg")).success


@in_loop
async def test_groups_and_what_their_members_hold_are_shown(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=2)
        await cluster.peer.consume("c1", topicCondition=["demo#b,a"])
        await cluster.settle("c1")
        assert (await cluster.web("admin_query_sub_info"))["data"] == [
            {"consumeGroup": "group", "topicSet": ["demo"], "consumerNum": 1}
        ]
        assert (await cluster.web("admin_query_sub_info", topicName="other"))["count"] == 0
        detail = await cluster.web("admin_query_consume_group_detail", consumeGroup="group")
        assert detail["count"] == 1
        assert detail["filterConds"] == {"demo": ["a", "b"]}
        assert detail["rebInfo"]["checkPasted"]
        [member] = detail["data"]
        assert member["consumerId"] == "c1"
        assert member["parInfo"][0] == {
            "partId": 0, "brokerAddr": "1:127.0.0.1:9001", "topicName": "demo",
        }  # fmt: skip
        [row] = (await cluster.web("admin_query_group_info_by_topic"))["data"]
        assert row == {"topicName": "demo", "groupSet": ["group"], "groupCnt": 1}
        gone = await cluster.web("admin_query_consume_group_detail", groupName="other")
        assert (gone["count"], gone["data"]) == (0, [])


@in_loop
async def test_figures_and_state_are_told(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        await cluster.peer.consume("c1")
        await cluster.settle("c1")
        figures = {one.name: one.values for one in cluster.master.metrics()}
        assert figures["mq_tube_brokers"] == [((), 1)]
        assert figures["mq_tube_consumers"] == [((), 1)]
        assert figures["mq_tube_events_done_total"] == [((), 1)]
        assert figures["mq_tube_master_active"] == [((), 1.0)]
        state = "\n".join(cluster.master.state())
        assert "group group: 1 members, 4 partitions held, 0 members with events" in state
        assert "1 brokers, 1 consumers, 0 producers" in cluster.master.status_text()
