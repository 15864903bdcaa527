"""Topics: created, changed, listed and deleted, and refused with the cause."""

from pathlib import Path

import pytest

from mq.protocol.bodies import (
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests import answered
from tests.daemons.broker.harness import Harness, create_topic, send, serve
from tests.daemons.peer import Peer


def refusal(reply: Command) -> tuple[int, str | None]:
    return reply.code, reply.remark


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


def test_attributes_are_set_kept_removed_and_stored(tmp_path: Path) -> None:
    async def change(peer: Peer, attributes: str | None) -> Command:
        fields = TOPIC if attributes is None else {**TOPIC, "attributes": attributes}
        return await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    async def stored(peer: Peer) -> dict[str, str] | None:
        reply = await peer.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC["topic"]})
        return TopicConfig.decode(reply.body).attributes

    async def script(broker: Harness, peer: Peer) -> None:
        assert (await change(peer, "+message.type=FIFO,+queue.type=SimpleCQ")).code == 0
        kept = {"message.type": "FIFO", "queue.type": "SimpleCQ"}
        assert await stored(peer) == kept
        assert (await change(peer, None)).code == 0  # as clients of 4.9 do
        assert await stored(peer) == kept
        for wrong in ("+message.type=SOON", "+no=1", "message.type=FIFO", "+queue.type=SimpleCQ"):
            assert (await change(peer, wrong)).code == ResponseCode.SYSTEM_ERROR
        assert await stored(peer) == kept
        body = CreateTopicListRequestBody(
            topic_config_list=[
                TopicConfig(topic_name=TOPIC["topic"], attributes={"-message.type": ""})
            ]
        )
        code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
        assert (await peer.ask(code, None, body.encode())).code == 0
        assert await stored(peer) == {"queue.type": "SimpleCQ"}
        body.topic_config_list[0].attributes = {"+cleanup.policy": "COMPACTION"}
        reply = await peer.ask(code, None, body.encode())
        assert reply.code == ResponseCode.SYSTEM_ERROR

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
