"""Consumers at a master: checks in order, heartbeats, events, assigned partitions."""

from pathlib import Path
from typing import Any

import pytest

from mq.daemons.tube.master import groups
from mq.daemons.tube.master.groups import GroupEvents
from mq.protocol.tube import messages as m
from mq.protocol.tube.codes import Code, Method
from mq.protocol.tube.strings import BrokerInfo, Partition
from tests.daemons.tube.loops import in_loop
from tests.daemons.tube.master.masters import Masters, peer_of, running


@in_loop
async def test_partitions_are_shared_out_after_a_round(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=3, stores=2)
        answer = await cluster.peer.consume("c1")
        assert answer.success
        assert answer.errCode == 200
        assert answer.notAllocated
        assert answer.authorizedInfo.visitAuthorizedToken > 0
        assert not (await cluster.peer.beat("c1")).HasField("event")
        cluster.round()
        event = (await cluster.peer.beat("c1")).event
        assert event.opType == 10
        assert sorted(event.subscribeInfo) == [
            f"c1@group#1:127.0.0.1:9001#demo:{part}" for part in (0, 1, 10000, 10001, 10002, 2)
        ]
        # It gets the event once; after its report the group counts as allocated.
        again = await cluster.peer.beat("c1")
        assert not again.HasField("event")
        assert again.notAllocated
        event.status = 2
        done = await cluster.peer.beat("c1", event=event, reportSubscribeInfo=True)
        assert not done.notAllocated


@in_loop
async def test_who_joins_gets_a_share_and_lets_go_before_he_takes(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=4)
        await cluster.peer.consume("c1")
        assert len((await cluster.settle("c1"))["c1"]) == 4
        await cluster.peer.consume("c2")
        cluster.round()
        # The partition for c2 is still assigned: c2 gets it only after c1 has released it.
        assert not (await cluster.peer.beat("c2")).HasField("event")
        event = (await cluster.peer.beat("c1")).event
        assert event.opType == 20
        assert len(event.subscribeInfo) == 2
        kept = [f"c1@group#1:127.0.0.1:9001#demo:{part}" for part in range(4)]
        kept = [text for text in kept if text not in event.subscribeInfo]
        event.status = 2
        await cluster.peer.beat("c1", event=event, reportSubscribeInfo=True, subscribeInfo=kept)
        assert (await cluster.peer.beat("c2")).event.opType == 10


@in_loop
async def test_what_a_member_had_goes_to_the_others_when_it_goes(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=5)
        await cluster.peer.consume("c1")
        await cluster.peer.consume("c2")
        shares = await cluster.settle("c1", "c2")
        assert sorted(map(len, shares.values())) == [2, 3]
        close = m.CloseRequestC2M(clientId="c2", groupName="group")
        assert (await cluster.peer.ask(Method.CONSUMER_CLOSE_C2M, close)).success
        assert len((await cluster.settle("c1"))["c1"]) == 5


@in_loop
async def test_a_member_that_is_silent_is_let_go_and_told_to_register(tmp_path: Path) -> None:
    async with running(tmp_path, consumerHeartbeatTimeoutMs=100) as cluster:
        await cluster.with_topic()
        await cluster.peer.consume("c1")
        now = cluster.core.now
        cluster.core.now = lambda: now() + 1  # type: ignore[method-assign]
        late = await cluster.peer.beat("c1")
        assert (late.success, late.errCode) == (False, Code.HB_NO_NODE)
        cluster.core.expire()
        assert len(cluster.core.groups) == 0
        gone = await cluster.peer.beat("c1")
        assert (gone.errCode, gone.errMsg) == (411, "Not found groupName group in holder!")


@in_loop
async def test_a_report_replaces_what_the_master_thought(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=2)
        await cluster.peer.consume("c1")
        await cluster.settle("c1")
        report = ["c1@group#1:127.0.0.1:9001#demo:1"]
        await cluster.peer.beat("c1", reportSubscribeInfo=True, subscribeInfo=report)
        cluster.round()
        event = (await cluster.peer.beat("c1")).event
        assert list(event.subscribeInfo) == ["c1@group#1:127.0.0.1:9001#demo:0"]


@in_loop
async def test_holdings_that_come_with_a_registration_stay(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=3)
        held = ["c1@group#1:127.0.0.1:9001#demo:2"]
        answer = await cluster.peer.consume("c1", subscribeInfo=held)
        assert not answer.notAllocated
        await cluster.peer.consume("c2")
        await cluster.peer.beat("c2")
        shares = await cluster.settle("c1", "c2")
        assert "1:127.0.0.1:9001#demo:2" in shares["c1"]
        assert sorted(map(len, shares.values())) == [1, 2]


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"clientId": " "}, 400, "clientId is blank"),
        ({"clientId": "x" * 1025}, 400, "1024"),
        ({"clientId": "a@b#c"}, 400, "not legal"),
        ({"hostName": ""}, 400, "hostName"),
        ({"groupName": "1"}, 400, "groupName"),
        ({"topicList": []}, 400, "topicList"),
        ({"topicList": [" "]}, 400, "Blank"),
        ({"topicList": ["other", "demo"]}, 431, "other"),
        ({"topicCondition": ["demo"]}, 400, "condition"),
        ({"topicCondition": ["demo#a b"]}, 400, "filterItem"),
        ({"topicCondition": ["elsewhere#a"]}, 400, "not subscribed"),
        ({"subscribeInfo": ["nonsense"]}, 400, "nonsense"),
        ({"requireBound": True, "requiredPartition": "1:demo:0"}, 400, "aa:bbb:ccc"),
        ({"requireBound": True, "requiredPartition": "1:x:0=5"}, 400, "unsubscribed"),
        ({"requireBound": True}, 400, "sessionKey"),
        ({"requireBound": True, "sessionKey": "k"}, 400, "totalSourceCount"),
    ],
)
@in_loop
async def test_a_registration_that_says_nonsense_is_refused(
    tmp_path: Path, fields: dict[str, Any], code: int, text: str
) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        usual = {"clientId": "c1", "groupName": "group", "hostName": "h", "topicList": ["demo"]}
        request = m.RegisterRequestC2M(**{**usual, **fields})
        answer = await cluster.peer.ask(Method.CONSUMER_REGISTER_C2M, request)
        assert (answer.success, answer.errCode) == (False, code)
        assert text in answer.errMsg
        assert len(cluster.core.groups) == 0


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ({}, {"requireBound": True, "sessionKey": "k", "totalCount": 1}, 424),
        ({}, {"topicList": ["demo", "more"]}, 425),
        ({}, {"topicCondition": ["demo#a"]}, 426),
        ({"topicCondition": ["demo#a,b"]}, {"topicCondition": ["demo#a"]}, 426),
    ],
)
@in_loop
async def test_members_have_to_agree(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], code: int
) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        await cluster.with_topic("more")
        assert (await cluster.peer.consume("c1", **first)).success
        answer = await cluster.peer.consume("c2", **second)
        assert (answer.success, answer.errCode) == (False, code)
        assert answer.errMsg.startswith("[Inconsistency subscribe] c2")
        # The order of items and topics does not matter.
        assert (await cluster.peer.consume("c3", **first)).success


@pytest.mark.parametrize(
    ("other", "code"),
    [({"sessionKey": "x"}, 427), ({"selectBig": False}, 428), ({"totalCount": 3}, 429)],
)
@in_loop
async def test_members_of_a_bound_group_have_to_agree_on_more(
    tmp_path: Path, other: dict[str, Any], code: int
) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        usual: dict[str, Any] = {"requireBound": True, "sessionKey": "k", "totalCount": 2}
        assert (await cluster.peer.consume("c1", **usual)).success
        assert (await cluster.peer.consume("c2", **{**usual, **other})).errCode == code


@in_loop
async def test_a_bound_group_gets_what_its_members_name_when_all_are_there(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=3)
        usual: dict[str, Any] = {"requireBound": True, "sessionKey": "k", "totalCount": 2}
        await cluster.peer.consume("c1", requiredPartition="1:demo:0=28,1:demo:1=56", **usual)
        cluster.round()
        assert not (await cluster.peer.beat("c1")).HasField("event")
        # If two name a partition, the larger offset counts.
        await cluster.peer.consume("c2", requiredPartition="1:demo:1=84", **usual)
        cluster.round()
        one = (await cluster.peer.beat("c1")).event
        other = (await cluster.peer.beat("c2")).event
        assert list(one.subscribeInfo) == ["c1@group#1:127.0.0.1:9001#demo:0"]
        assert list(other.subscribeInfo) == ["c2@group#1:127.0.0.1:9001#demo:1"]
        # Unnamed partitions are assigned when the group is allocated.
        shares = await _finish(cluster, {"c1": one, "c2": other})
        assert sorted(set().union(*shares.values())) == [
            f"1:127.0.0.1:9001#demo:{part}" for part in range(3)
        ]


async def _finish(cluster: Masters, events: dict[str, Any]) -> dict[str, set[str]]:
    for member, event in events.items():
        event.status = 2
        await cluster.peer.beat(
            member, event=event, reportSubscribeInfo=True, subscribeInfo=list(event.subscribeInfo)
        )
    return await cluster.settle(*events)


@in_loop
async def test_a_group_with_too_few_members_for_its_brokers_waits(tmp_path: Path) -> None:
    async with running(tmp_path, maxGroupBrokerConsumeRate=1) as cluster:
        await cluster.with_topic(partitions=1, brokers=2)
        await cluster.peer.consume("c1")
        cluster.round()
        assert not (await cluster.peer.beat("c1")).HasField("event")
        await cluster.peer.consume("c2")
        await cluster.peer.beat("c2")
        assert sorted(map(len, (await cluster.settle("c1", "c2")).values())) == [1, 1]
        # After one success it is not checked again.
        close = m.CloseRequestC2M(clientId="c2", groupName="group")
        await cluster.peer.ask(Method.CONSUMER_CLOSE_C2M, close)
        assert len((await cluster.settle("c1"))["c1"]) == 2


@in_loop
async def test_events_that_are_never_done_are_dropped_in_the_end(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        await cluster.peer.consume("c1")
        cluster.round()
        assert (await cluster.peer.beat("c1")).HasField("event")
        for _ in range(10):
            cluster.round()
            assert not (await cluster.peer.beat("c1")).HasField("event")
        cluster.round()
        assert (await cluster.peer.beat("c1")).HasField("event")


@in_loop
async def test_a_late_answer_to_an_old_event_does_not_end_a_new_one(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        await cluster.peer.consume("c1")
        cluster.round()
        event = (await cluster.peer.beat("c1")).event
        event.rebalanceId -= 1
        await cluster.peer.beat("c1", event=event)
        assert cluster.core.events_done == 0
        event.rebalanceId += 1
        await cluster.peer.beat("c1", event=event)
        assert cluster.core.events_done == 1


RULES = '[{"type":1,"rule":[{"zeroCnt":3,"freqInMs":300}]}]'


@in_loop
async def test_flow_control_rules_come_when_their_id_is_another(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        answer = await cluster.peer.consume("c1")
        assert (answer.defFlowCheckId, answer.defFlowControlInfo) == (-2, " ")
        assert (answer.groupFlowCheckId, answer.groupFlowControlInfo) == (-2, " ")
        set_it: dict[str, object] = {"flowCtrlInfo": RULES, "statusId": 1}
        await cluster.changed("admin_set_def_flow_control_rule", **set_it)
        await cluster.changed(
            "admin_set_group_flow_control_rule", groupName="group", qryPriorityId=202, **set_it
        )
        told = await cluster.peer.beat("c1", defFlowCheckId=-2, groupFlowCheckId=-2)
        assert told.defFlowControlInfo == told.groupFlowControlInfo == RULES
        assert told.qryPriorityId == 202
        ids = {"defFlowCheckId": told.defFlowCheckId, "groupFlowCheckId": told.groupFlowCheckId}
        again = await cluster.peer.beat("c1", **ids)
        assert again.defFlowControlInfo == again.groupFlowControlInfo == " "
        assert again.groupFlowCheckId == told.groupFlowCheckId
        # A request without an id gets none of it.
        assert not (await cluster.peer.beat("c1")).HasField("defFlowCheckId")


@in_loop
async def test_a_topic_that_is_not_for_a_group_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        both: dict[str, object] = {"topicName": "demo", "groupName": "group"}
        await cluster.changed(
            "admin_set_topic_authorize_control", topicName="demo", isEnable="true"
        )
        assert (await cluster.peer.consume("c1")).errCode == 450
        await cluster.changed("admin_add_authorized_consumergroup_info", **both)
        assert (await cluster.peer.consume("c1")).success
        await cluster.changed(
            "admin_add_group_filtercond_info", condStatus=2, filterConds="a,b", **both
        )
        assert (await cluster.peer.consume("c2", "other")).errCode == 450
        close = m.CloseRequestC2M(clientId="c1", groupName="group")
        await cluster.peer.ask(Method.CONSUMER_CLOSE_C2M, close)
        assert (await cluster.peer.consume("c1")).errCode == 455
        refused = await cluster.peer.consume("c1", topicCondition=["demo#a,c"])
        assert refused.errCode == 455
        assert "demo=[c]" in refused.errMsg
        assert (await cluster.peer.consume("c1", topicCondition=["demo#a"])).success
        await cluster.changed("admin_add_black_consumergroup_info", **both)
        assert (await cluster.peer.consume("c9", topicCondition=["demo#a"])).errCode == 450


@in_loop
async def test_a_group_that_is_forbidden_a_topic_later_loses_it(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=2)
        await cluster.peer.consume("c1")
        assert len((await cluster.settle("c1"))["c1"]) == 2
        both: dict[str, object] = {"topicName": "demo", "groupName": "group"}
        await cluster.changed("admin_add_black_consumergroup_info", **both)
        assert (await cluster.settle("c1"))["c1"] == set()


@in_loop
async def test_a_member_that_is_to_give_all_up_gets_other_partitions(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=2)
        for member in ("c1", "c2"):
            await cluster.peer.consume(member)
            await cluster.peer.beat(member)
        before = await cluster.settle("c1", "c2")
        await cluster.changed(
            "admin_rebalance_group_allocate", groupName="group", consumerId="c1", reJoinWait=3
        )
        during = await cluster.settle("c1", "c2", rounds=1)
        assert during == {"c1": set(), "c2": before["c1"] | before["c2"]}
        after = await cluster.settle("c1", "c2", rounds=5)
        assert sorted(map(len, after.values())) == [1, 1]


@in_loop
async def test_there_are_so_many_consumers_at_most(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        cluster.core.groups.most_members = 2
        assert (await cluster.peer.consume("c1")).success
        assert (await cluster.peer.consume("c2")).success
        assert (await cluster.peer.consume("c2")).success
        assert (await cluster.peer.consume("c3")).errCode == 503


@in_loop
async def test_who_is_refused_in_another_group_stays_in_its_own(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        await cluster.peer.consume("c1", "first")
        await cluster.peer.consume("c2", "second")
        refused = await cluster.peer.consume("c1", "second", topicCondition=["demo#item"])
        assert refused.errCode == 426
        assert (await cluster.peer.beat("c1", "first")).success


@in_loop
async def test_who_is_refused_for_what_it_holds_does_not_stay_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        monkeypatch.setattr(groups, "MOST_HELD", 0)
        held = ["c1@group#1:127.0.0.1:9001#demo:0"]
        assert (await cluster.peer.consume("c1", subscribeInfo=held)).errCode == 400
        members = cluster.core.groups.members()
        assert members == len(cluster.core.consumer_beats)


@in_loop
async def test_consumers_may_name_so_much_at_most_and_what_they_name_goes_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        monkeypatch.setattr(groups, "MOST_KEPT", 5)
        bound: dict[str, Any] = {
            "requireBound": True,
            "sessionKey": "key",
            "sessionTime": 1,
            "totalCount": 2,
            "requiredPartition": "1:demo:0=28,1:demo:1=28",
        }
        assert (await cluster.peer.consume("c1", **bound)).success
        assert (await cluster.peer.consume("c1", **bound)).success
        assert (await cluster.peer.consume("c2", **bound)).success
        assert (await cluster.peer.consume("c3", "other")).errCode == 503
        for who in ("c1", "c2"):
            request = m.CloseRequestC2M(clientId=who, groupName="group")
            assert (await cluster.peer.ask(Method.CONSUMER_CLOSE_C2M, request)).success
        filters: dict[str, Any] = {"topicCondition": ["demo#one,two,three"]}
        assert (await cluster.peer.consume("c3", "other", **filters)).success
        # Members share their common settings.
        assert (await cluster.peer.consume("c4", "other", **filters)).success


@in_loop
async def test_an_event_whose_answer_was_lost_comes_again_by_the_next_connection(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        await cluster.peer.consume("c1")
        await cluster.peer.beat("c1")
        cluster.round()
        told = await cluster.peer.beat("c1")
        assert told.HasField("event")
        assert not (await cluster.peer.beat("c1")).HasField("event")
        async with peer_of(cluster.master) as next_one:
            again = await next_one.beat("c1")
            assert again.event == told.event
            assert not (await next_one.beat("c1")).HasField("event")
            again.event.status = 2
            held: dict[str, Any] = {
                "reportSubscribeInfo": True,
                "subscribeInfo": list(again.event.subscribeInfo),
            }
            for _ in range(2):  # a client that got the event twice reports it twice
                answer = await next_one.beat("c1", event=again.event, **held)
                assert answer.success
                assert not answer.HasField("event")


def test_what_is_said_twice_does_not_end_what_comes_next_in_the_same_round() -> None:
    def partition(number: int) -> Partition:
        return Partition(BrokerInfo(1, "h"), "demo", number)

    events = GroupEvents()
    events.add("c1", 7, [partition(0)], [partition(1)])
    first = events.next("c1", "address")
    assert first is not None
    assert events.done("c1", 7, first.kind) is first
    second = events.next("c1", "address")
    assert second is not None
    assert events.done("c1", 7, first.kind) is None
    assert events.done("c1", 7, second.kind) is second
