"""The progress of groups in topics."""

from pathlib import Path

from mq.daemons.broker.store.store_times import store_time
from mq.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    MessageQueue,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    TopicList,
    TopicStatsTable,
)
from mq.protocol.codes import RequestCode
from tests import answered
from tests.daemons.broker.groups.members import beat
from tests.daemons.broker.harness import Harness, create_topic, send, serve
from tests.daemons.peer import Peer


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
def test_groups_of_a_topic_are_found_by_members_and_by_offset(tmp_path: Path) -> None:
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
