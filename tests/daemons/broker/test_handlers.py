"""Clients and administrators ask a broker's handlers over real sockets; a real store answers."""

from copy import deepcopy
from pathlib import Path

import orjson
import pytest

from mq.daemons.broker.store.store_times import store_time
from mq.daemons.properties import read_properties
from mq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    GroupList,
    HeartbeatData,
    KVTable,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    MessageQueue,
    ProducerConnection,
    ProducerData,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicStatsTable,
    UnlockBatchRequestBody,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import decode_record, decode_records
from mq.protocol.tags import tags_code
from tests import answered
from tests.daemons.broker.harness import Harness, create_topic, send, serve
from tests.daemons.peer import Peer


def heartbeat(client_id: str, group: str = "g", *topics: str, version: int = 1) -> bytes:
    subscriptions = [SubscriptionData(topic=t, sub_string="*", sub_version=version) for t in topics]
    return HeartbeatData(
        client_id=client_id,
        producer_data_set=[ProducerData(group_name="P")],
        consumer_data_set=[
            ConsumerData(
                group_name=group,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                subscription_data_set=subscriptions,
            )
        ],
    ).encode()


async def beat(
    peer: Peer, client_id: str, *topics: str, group: str = "g", version: int = 1
) -> None:
    body = heartbeat(client_id, group, *topics, version=version)
    reply = await peer.ask(RequestCode.HEART_BEAT, None, body)
    assert reply.code == ResponseCode.SUCCESS, reply


async def consumer_ids(peer: Peer, group: str = "g") -> list[str]:
    reply = await peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    if reply.code != ResponseCode.SUCCESS:
        assert (reply.code, reply.remark) == (1, f"no consumer for this group, {group}")
        return []
    return GetConsumerListByGroupResponseBody.decode(reply.body).consumer_id_list


def refusal(reply: Command) -> tuple[int, str | None]:
    return reply.code, reply.remark


# clients --------------------------------------------------------------------------------------


@answered.by_broker(
    RequestCode.HEART_BEAT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_ALL_PRODUCER_INFO,
)
def test_a_heartbeat_makes_a_client_known_and_the_retry_topic(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await beat(peer, "c1", "T", "%RETRY%g")
        assert await consumer_ids(peer) == ["c1"]
        assert broker.stores.topics.table["%RETRY%g"].write_queue_nums == 1
        assert "g" in broker.stores.groups.table
        reply = await peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
        shown = ConsumerConnection.decode(reply.body)
        assert [(c.client_id, c.client_addr) for c in shown.connection_set] == [
            ("c1", peer.address)
        ]
        assert set(shown.subscription_table) == {"T", "%RETRY%g"}
        assert shown.consume_type is ConsumeType.CONSUME_PASSIVELY
        reply = await peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"})
        assert ProducerConnection.decode(reply.body).connection_set[0].client_id == "c1"
        reply = await peer.ask(RequestCode.GET_ALL_PRODUCER_INFO)
        assert ProducerTableInfo.decode(reply.body).data["P"][0].remote_ip == f"/{peer.address}"

    serve(tmp_path, script)


@answered.by_broker(RequestCode.UNREGISTER_CLIENT)
def test_members_are_told_when_others_come_and_go(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await beat(peer, "c1", "T")
        first = await peer.pushed_command()
        assert (first.code, first.is_one_way) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, True)
        assert first.fields == {"consumerGroup": "g"}
        async with Peer(broker.port) as other:
            await beat(other, "c2", "T")
            assert (await peer.pushed_command()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            assert await consumer_ids(peer) == ["c1", "c2"]
        assert (await peer.pushed_command()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert await consumer_ids(peer) == ["c1"]
        async with Peer(broker.port) as other:
            await beat(other, "c3", "T")
            await peer.pushed_command()
            fields = {"clientID": "c3", "producerGroup": "P", "consumerGroup": "g"}
            reply = await other.ask(RequestCode.UNREGISTER_CLIENT, fields)
            assert reply.code == ResponseCode.SUCCESS
            await peer.pushed_command()
            assert await consumer_ids(peer) == ["c1"]

    serve(tmp_path, script)


def test_nobody_is_told_while_nothing_changes_or_the_group_does_not_want_it(
    tmp_path: Path,
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        group = SubscriptionGroupConfig(
            group_name="quiet", notify_consumer_ids_changed_enable=False
        )
        await broker.stores.groups.update(group)
        await beat(peer, "c1", "T", group="quiet")
        await beat(peer, "c1", "T")
        await peer.pushed_command()
        await beat(peer, "c1", "T")
        await beat(peer, "c1", "T", version=2)
        await beat(peer, "c1", "T", "U", version=3)
        await beat(peer, "c1", "T", "U", version=3)
        assert await consumer_ids(peer) == ["c1"]
        assert [c.fields["consumerGroup"] for c in peer.pushed] == ["g"]

    serve(tmp_path, script)


def test_a_broker_that_shall_not_tell_anybody_does_not(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await beat(peer, "c1", "T")
        assert await consumer_ids(peer) == ["c1"]
        assert not peer.pushed
        update = b"notifyConsumerIdsChangedEnable=true\n"
        await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, None, update)
        await beat(peer, "c1", "T", "U", version=2)
        assert (await peer.pushed_command()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    serve(tmp_path, script, notifyConsumerIdsChangedEnable="false")


def test_silent_clients_expire(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        async with Peer(broker.port) as other:
            await beat(other, "c2", "T")
            await beat(peer, "c1", "T")
            for registered in broker.clients.consumers.groups["g"].clients.values():
                if registered.client_id == "c2":
                    registered.last_seen -= 121
            broker.clients.consumers.expire(120)
            broker.clients.producers.expire(120)
            assert [await consumer_ids(peer), len(broker.clients.producers.groups["P"])] == [
                ["c1"],
                1,
            ]
            await other.closed_by_daemon()

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "HeartbeatData"),
        (b"{}", "clientID is missing"),
        (heartbeat("c1", "../x", "T"), "The specified group contains illegal characters"),
        (heartbeat("c1", "", "T"), "The specified group is blank."),
    ],
)
def test_a_bad_heartbeat_is_refused_and_registers_nobody(
    tmp_path: Path, body: bytes, reason: str
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.HEART_BEAT, None, body)
        assert reply.code == ResponseCode.SYSTEM_ERROR and reason in (reply.remark or "")
        assert (broker.clients.consumers.groups, broker.clients.producers.groups) == ({}, {})

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("kind", "code"), [("TAG", ResponseCode.SUCCESS), ("SQL92", ResponseCode.SYSTEM_ERROR)]
)
def test_a_subscription_is_checked(tmp_path: Path, kind: str, code: int) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        body = CheckClientRequestBody(
            client_id="c", group="g", subscription_data=SubscriptionData(expression_type=kind)
        )
        assert (await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body.encode())).code == code

    serve(tmp_path, script)


def test_who_is_not_there_is_answered_in_the_words_of_java(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "x"})
        assert refusal(reply) == (206, "the consumer group[x] not online")
        reply = await peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "x"})
        assert refusal(reply) == (1, "the producer group[x] not exist")

    serve(tmp_path, script)


@answered.by_broker(RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
def test_queues_are_locked_for_one_client(tmp_path: Path) -> None:
    queues = {MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)}

    async def script(broker: Harness, peer: Peer) -> None:
        for client_id, held in (("c1", queues), ("c2", set())):
            body = LockBatchRequestBody(consumer_group="g", client_id=client_id, mq_set=queues)
            reply = await peer.ask(RequestCode.LOCK_BATCH_MQ, None, body.encode())
            assert LockBatchResponseBody.decode(reply.body).lock_ok_mq_set == held
        unlock = UnlockBatchRequestBody(consumer_group="g", client_id="c1", mq_set=queues)
        reply = await peer.ask(RequestCode.UNLOCK_BATCH_MQ, None, unlock.encode())
        assert reply.code == ResponseCode.SUCCESS
        assert broker.clients.locks.holder("g", MessageQueue("T", "broker-a", 0)) is None
        reply = await peer.ask(RequestCode.LOCK_BATCH_MQ, None, b"{}")
        assert reply.code == ResponseCode.SYSTEM_ERROR

    serve(tmp_path, script)


# topics ---------------------------------------------------------------------------------------


@answered.by_broker(
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.DELETE_TOPIC_IN_BROKER,
)
def test_a_topic_is_created_changed_listed_and_deleted(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T", 4)
        await create_topic(peer, "T", 6)
        assert broker.announcements == 2
        reply = await peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        listed = TopicConfigSerializeWrapper.decode(reply.body)
        assert listed.topic_config_table["T"].write_queue_nums == 6
        assert listed.data_version == broker.stores.topics.data_version
        reply = await peer.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})
        assert TopicConfig.decode(reply.body).read_queue_nums == 6
        await send(peer, "T", b"x")
        broker.stores.offsets.commit("g", "T", 0, 1)
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        assert "T" not in broker.stores.topics.table
        assert broker.stores.messages.queues_of("T") == []
        assert broker.stores.offsets.query("g", "T", 0) == -1
        reply = await peer.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"})
        assert refusal(reply) == (17, "topic[T] not exist")

    serve(tmp_path, script)


TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topic": "../x"}, "The specified topic contains illegal characters, allowing only"),
        ({"topic": " "}, "The specified topic is blank."),
        ({"topic": "t" * 128}, "The specified topic is longer than topic max length."),
        ({"topic": "TBW102"}, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "broker-a"}, "The topic[broker-a] is conflict with system topic."),
        ({"readQueueNums": "-1"}, "readQueueNums=-1: expected 0 to 65536"),
        ({"writeQueueNums": "9999999"}, "writeQueueNums=9999999: expected 0 to 65536"),
        ({"writeQueueNums": "many"}, "writeQueueNums must be a whole number"),
        ({"perm": "99"}, "perm=99: expected 0 to 15"),
        ({"topicFilterType": "X"}, "topicFilterType=X: expected SINGLE_TAG or MULTI_TAG"),
    ],
)
def test_a_bad_topic_is_refused_with_the_cause(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        before = dict(broker.stores.topics.table)
        reply = await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC | change)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reason in (reply.remark or "")
        assert broker.stores.topics.table == before

    serve(tmp_path, script)


@answered.by_broker(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
def test_a_system_topic_cannot_be_deleted(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "SELF_TEST_TOPIC"})
        assert refusal(reply) == (1, "The topic[SELF_TEST_TOPIC] is conflict with system topic.")
        reply = await peer.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert "SELF_TEST_TOPIC" in TopicList.decode(reply.body).topic_list

    serve(tmp_path, script)


def test_a_slave_refuses_changes(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        for code, fields in (
            (RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC),
            (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}),
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}),
        ):
            reply = await peer.ask(code, fields)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert "execute it from master broker" in (reply.remark or "")

    serve(tmp_path, script, brokerRole="SLAVE", brokerId="1")


def test_a_change_that_cannot_be_saved_is_refused_with_the_cause(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        (broker.settings.store.config_path / "topics.json.tmp").mkdir(parents=True)
        reply = await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
        assert refusal(reply) == (1, "the change cannot be saved: Is a directory")

    serve(tmp_path, script)


# offsets and progress -------------------------------------------------------------------------


@answered.by_broker(
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
)
def test_offsets_of_a_queue_are_answered(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T", 2)
        for number in range(3):
            await send(peer, "T", b"%d" % number, 1)
        queue = {"topic": "T", "queueId": "1"}
        assert (await peer.ask(RequestCode.GET_MAX_OFFSET, queue)).fields == {"offset": "3"}
        assert (await peer.ask(RequestCode.GET_MIN_OFFSET, queue)).fields == {"offset": "0"}
        reply = await peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, queue)
        earliest = int(reply.fields["timestamp"])
        assert earliest == store_time(broker.stores.messages, "T", 1, 0)
        reply = await peer.ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue | {"timestamp": str(earliest - 1)}
        )
        assert reply.fields == {"offset": "0"}
        none = {"topic": "none", "queueId": "7"}
        assert (await peer.ask(RequestCode.GET_MAX_OFFSET, none)).fields == {"offset": "0"}
        reply = await peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, none)
        assert reply.fields == {"timestamp": "-1"}
        assert not (tmp_path / "store" / "consumequeue" / "none").exists()

    serve(tmp_path, script)


@answered.by_broker(
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
)
def test_a_groups_offset_is_kept(tmp_path: Path) -> None:
    where = {"consumerGroup": "g", "topic": "T", "queueId": "0"}

    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, where)
        assert reply.fields == {"offset": "0"}  # a young queue
        reply = await peer.ask(
            RequestCode.QUERY_CONSUMER_OFFSET, where | {"setZeroIfNotFound": "false"}
        )
        assert reply.code == ResponseCode.QUERY_NOT_FOUND
        await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, where | {"commitOffset": "42"})
        reply = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, where)
        assert reply.fields == {"offset": "42"}
        reply = await peer.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        # Behind the offsets of the broker's own group, which brings popped messages back.
        text = bytes(reply.body)
        version = b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},'
        assert text.startswith(version + b'"offsetTable":{"rmq_sys_REVIVE_LOG_')
        assert text.endswith(b'},"T@g":{0:42}}}') and text.count(b"@") == 2

    serve(tmp_path, script)


def test_a_new_group_of_an_old_queue_has_no_offset(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T", 1)
        await send(peer, "T", b"x")
        where = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
        reply = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, where)
        assert reply.code == ResponseCode.QUERY_NOT_FOUND
        assert "maybe this group consumer boot first" in (reply.remark or "")

    # No memory counts as holding new messages, so every queue counts as old.
    serve(tmp_path, script, accessMessageInMemoryMaxRatio="-1")


@pytest.mark.parametrize(
    "change", [{"topic": "a@b"}, {"consumerGroup": "../x"}, {"queueId": "-1"}, {"queueId": "x"}]
)
def test_an_offset_under_a_bad_name_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        where = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "1"}
        before = deepcopy(broker.stores.offsets.table)
        reply = await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, where | change)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert broker.stores.offsets.table == before

    serve(tmp_path, script)


async def three_messages_one_consumed(broker: Harness, peer: Peer) -> None:
    await create_topic(peer, "T", 2)
    for number in range(3):
        await send(peer, "T", b"%d" % number)
    broker.stores.offsets.commit("g", "T", 0, 1)
    broker.stores.groups.find("g")


@answered.by_broker(
    RequestCode.GET_CONSUME_STATS,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.GET_BROKER_CONSUME_STATS,
)
def test_topic_and_consume_stats_show_progress(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await three_messages_one_consumed(broker, peer)
        queue = MessageQueue("T", "broker-a", 0)
        reply = await peer.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"})
        stats = TopicStatsTable.decode(reply.body).offset_table
        assert len(stats) == 2
        assert (stats[queue].min_offset, stats[queue].max_offset) == (0, 3)
        assert stats[queue].last_update_timestamp == store_time(broker.stores.messages, "T", 0, 2)
        for fields in ({}, {"topic": "T"}, {"topicList": "T;U"}):
            reply = await peer.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", **fields})
            progress = ConsumeStats.decode(reply.body).offset_table
            assert len(progress) == 2
            assert (progress[queue].broker_offset, progress[queue].consumer_offset) == (3, 1)
            assert progress[queue].last_timestamp == store_time(broker.stores.messages, "T", 0, 0)
        reply = await peer.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
        everything = ConsumeStatsList.decode(reply.body)
        assert everything.total_diff == 2
        assert {"g"} <= {name for entry in everything.consume_stats_list for name in entry}
        reply = await peer.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "g"})
        span = QueryConsumeTimeSpanBody.decode(reply.body).consume_time_span_set[0]
        assert span.min_time_stamp == span.consume_time_stamp
        assert span.max_time_stamp == store_time(broker.stores.messages, "T", 0, 2)

    serve(tmp_path, script)


def test_stats_leave_out_topics_that_an_online_group_no_longer_subscribes_to(
    tmp_path: Path,
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await three_messages_one_consumed(broker, peer)
        await beat(peer, "c1", "Other")
        reply = await peer.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
        assert ConsumeStats.decode(reply.body).offset_table == {}

    serve(tmp_path, script)


@answered.by_broker(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, RequestCode.QUERY_TOPICS_BY_CONSUMER)
def test_groups_of_a_topic_are_found_online_and_by_offset(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await three_messages_one_consumed(broker, peer)
        await beat(peer, "c1", "T", group="online")
        reply = await peer.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"})
        assert GroupList.decode(reply.body).group_list == {"g", "online"}
        reply = await peer.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "g"})
        assert TopicList.decode(reply.body).topic_list == {"T"}

    serve(tmp_path, script)


@answered.by_broker(RequestCode.QUERY_CORRECTION_OFFSET, RequestCode.CLONE_GROUP_OFFSET)
def test_offsets_are_cloned_and_corrected(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await three_messages_one_consumed(broker, peer)
        clone = {"srcGroup": "g", "destGroup": "h", "offline": "false"}
        assert (await peer.ask(RequestCode.CLONE_GROUP_OFFSET, clone)).code == 0
        assert broker.stores.offsets.query("h", "T", 0) == 1
        broker.stores.offsets.commit("h", "T", 0, 3)
        for filtered, compared, expected in (("", "h", {0: 1}), ("g", "g", {0: 2**63 - 1})):
            reply = await peer.ask(
                RequestCode.QUERY_CORRECTION_OFFSET,
                {"topic": "T", "filterGroups": filtered, "compareGroup": compared},
            )
            assert QueryCorrectionOffsetBody.decode(reply.body).correction_offsets == expected

    serve(tmp_path, script)


# groups ---------------------------------------------------------------------------------------


@answered.by_broker(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)
def test_a_group_is_created_listed_and_deleted(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        told = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
        reply = await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, told.encode())
        assert reply.code == ResponseCode.SUCCESS
        reply = await peer.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = SubscriptionGroupWrapper.decode(reply.body).subscription_group_table
        assert table["g"].retry_max_times == 3
        reply = await peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
        assert SubscriptionGroupConfig.decode(reply.body) == told
        broker.stores.offsets.commit("g", "T", 0, 1)
        await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
        assert "g" not in broker.stores.groups.table
        assert broker.stores.offsets.query("g", "T", 0) == 1
        fields = {"groupName": "g", "removeOffset": "true"}
        await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
        assert broker.stores.offsets.query("g", "T", 0) == -1
        reply = await peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
        assert refusal(reply) == (26, "subscription group[g] not exist")

    serve(tmp_path, script)


def test_a_group_with_a_bad_name_is_refused(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        for name in ("../x", "", "g" * 256):
            body = SubscriptionGroupConfig(group_name=name).encode()
            reply = await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert name not in broker.stores.groups.table

    serve(tmp_path, script)


# messages -------------------------------------------------------------------------------------


@answered.by_broker(
    RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_CONSUME_QUEUE
)
def test_a_message_is_found_by_offset_key_and_queue_entry(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T", 1)
        properties = "KEYS\x01k1 k2\x02TAGS\x01blue\x02"
        await send(peer, "T", b"first", properties="KEYS\x01k1\x02")
        offset_id = await send(peer, "T", b"second", properties=properties)
        physical = int(offset_id[-16:], 16)
        reply = await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical)})
        assert decode_record(reply.body).body == b"second"
        reply = await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical + 1)})
        assert refusal(reply) == (1, f"can not find message by the offset, {physical + 1}")
        asked = {
            "topic": "T",
            "key": "k1",
            "maxNum": "32",
            "beginTimestamp": "0",
            "endTimestamp": str(2**63 - 1),
        }
        reply = await peer.ask(RequestCode.QUERY_MESSAGE, asked)
        assert [m.body for m in decode_records(reply.body)] == [b"first", b"second"]
        assert reply.fields["indexLastUpdatePhyoffset"] == str(physical)
        reply = await peer.ask(RequestCode.QUERY_MESSAGE, asked | {"key": "none"})
        assert refusal(reply) == (22, "can not find message, maybe time range not correct")
        reply = await peer.ask(
            RequestCode.QUERY_CONSUME_QUEUE,
            {"topic": "T", "queueId": "0", "index": "1", "count": "5", "consumerGroup": "g"},
        )
        shown = QueryConsumeQueueResponseBody.decode(reply.body)
        assert (shown.min_queue_index, shown.max_queue_index) == (0, 2)
        assert [(e.physic_offset, e.tags_code) for e in shown.queue_data] == [
            (physical, tags_code("blue"))
        ]
        assert shown.filter_data == "g@T is not online!"
        reply = await peer.ask(
            RequestCode.QUERY_CONSUME_QUEUE, {"topic": "T", "queueId": "0", "index": "9"}
        )
        assert refusal(reply) == (0, "Index 9 of 0@T is not exist!")
        reply = await peer.ask(RequestCode.QUERY_CONSUME_QUEUE, {"topic": "T", "queueId": "5"})
        assert refusal(reply) == (1, "5@T is not exist!")

    serve(tmp_path, script)


# settings -------------------------------------------------------------------------------------


@answered.by_broker(RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_CONFIG)
def test_settings_are_shown_and_changed_by_the_allow_list(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=24\n")
        assert reply.code == ResponseCode.SUCCESS
        reply = await peer.ask(RequestCode.GET_BROKER_CONFIG)
        shown = read_properties(bytes(reply.body).decode())
        assert shown["fileReservedTime"] == "24"
        assert shown["brokerName"] == "broker-a"
        assert orjson.loads(reply.fields["version"])["counter"] == 1
        for body, code, remark in (
            (b"storePathRootDir=/", ResponseCode.NO_PERMISSION, "storePathRootDir cannot be"),
            (b"nonsense=1", ResponseCode.SYSTEM_ERROR, "nonsense is not a setting"),
            (b"fileReservedTime=x", ResponseCode.SYSTEM_ERROR, "expected a whole number"),
            (b"a=b\n" * 70_000, ResponseCode.SYSTEM_ERROR, "280000 bytes, over 262144"),
        ):
            reply = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, None, body)
            assert reply.code == code and remark in (reply.remark or "")

    serve(tmp_path, script)


def test_a_new_broker_permission_reaches_the_name_servers(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        told: list[str] = []
        broker.stores.topics.on_change.append(told.append)
        await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4\n")
        assert told == [""]
        assert broker.stores.topics.data_version.counter == 1

    serve(tmp_path, script)


@answered.by_broker(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON)
def test_settings_are_json_already_when_they_are_to_be_exported(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        fields = {"configType": "topics;subscriptionGroups;"}
        reply = await peer.ask(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, fields)
        assert (reply.code, bytes(reply.body)) == (ResponseCode.SUCCESS, b"")
        reply = await peer.ask(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "configType" in (reply.remark or "")

    serve(tmp_path, script)


DAYS = ("YesterdayMorning", "TodayMorning", "TodayNow")


@answered.by_broker(RequestCode.GET_BROKER_RUNTIME_INFO)
def test_runtime_info_has_what_cluster_list_prints(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = KVTable.decode(reply.body).table
        assert table["brokerVersionDesc"] == "V4_9_8"
        assert len(table["putTps"].split()) == len(table["getTransferedTps"].split()) == 3
        assert table["getTransferredTps"] == table["getTransferedTps"]  # as release 5 writes it
        assert {
            "commitLogDiskRatio",
            "commitLogMaxOffset",
            "earliestMessageTimeStamp",
            *(f"msg{what}Total{when}" for what in ("Put", "Get") for when in DAYS),
            "pageCacheLockTimeMills",
            "sendThreadPoolQueueHeadWaitTimeMills",
            "sendThreadPoolQueueSize",
        } <= table.keys()
        assert table["runtime"].startswith("[ 0 days, 0 hours, 0 minutes, ")
        assert table["commitLogDirCapacity"].startswith("Total : ")

    serve(tmp_path, script)


def test_half_a_character_in_a_setting_is_refused_with_a_reply(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        for body in (rb"brokerName=\ud800", rb"\ud800=1", rb"fileReservedTime=\udc00x"):
            reply = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, body)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert "half of a character" in (reply.remark or "")

    serve(tmp_path, script)
