"""Requests that a slave refuses, those that it serves, and tasks that do not run on it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.daemons.broker.offsets.offset_table import SEPARATOR
from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from tests.daemons.broker.harness import Harness, create_topic, send
from tests.daemons.broker.pulls import bodies, outcome, request, start_pull
from tests.daemons.broker.pulls import pull as pull_of
from tests.daemons.peer import Peer

TOPIC = "orders"
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}
COMMIT = 1
SUBSCRIPTION = 4

Script = Callable[[Harness, Peer], Awaitable[None]]


def followed(tmp_path: Path, script: Script, *, messages: int = 3, **settings: str) -> None:
    """Run a script against a slave whose store has messages of a master: of `TOPIC`, queue 0."""

    async def main() -> None:
        async with Harness(tmp_path, {}) as broker, Peer(broker.port) as peer:
            await create_topic(peer, TOPIC)
            for number in range(messages):
                await send(peer, TOPIC, b"%d" % number)
        async with Harness(tmp_path, SLAVE | settings) as broker, Peer(broker.port) as peer:
            await script(broker, peer)

    asyncio.run(main())


def pull(offset: int, **others: str) -> Command:
    return request(offset, **{"topic": TOPIC, **others})  # type: ignore[arg-type]


V1 = {
    **{"producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102"},
    **{"defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1"},
    **{"flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false"},
}
V2 = {
    **{"a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"},
    **{"i": "", "j": "0", "k": "false", "m": "false"},
}


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.SEND_MESSAGE, V1),
        (RequestCode.SEND_MESSAGE_V2, V2),
        (RequestCode.SEND_BATCH_MESSAGE, V2 | {"m": "true"}),
        (RequestCode.SEND_REPLY_MESSAGE, V1),
        (RequestCode.SEND_REPLY_MESSAGE_V2, V2),
    ],
)
def test_a_slave_refuses_messages(tmp_path: Path, code: int, fields: dict[str, str]) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        end = broker.stores.messages.max_physical_offset
        for _ in range(2):  # the second time by the remembered result of the first
            reply = await peer.ask(code, fields, b"body")
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "send to the master" in (reply.remark or "")
        assert broker.stores.messages.max_physical_offset == end

    followed(tmp_path, script)


def test_a_send_to_a_slave_creates_no_topic(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, V2 | {"b": "new"}, b"body")
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "new" not in broker.stores.topics.table

    followed(tmp_path, script)


def test_a_slave_refuses_send_backs_like_javas(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        header = ConsumerSendMsgBackRequestHeader(offset=0, group="g", delay_level=1)
        reply = await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        assert (reply.code, reply.remark) == (1, "SERVICE_NOT_AVAILABLE")

    followed(tmp_path, script)


def test_transactions_end_at_the_master(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.END_TRANSACTION, {})
        assert reply.code == ResponseCode.SLAVE_NOT_AVAILABLE

    followed(tmp_path, script)


def test_a_slave_writes_nothing_of_its_own_to_its_log(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        store = broker.stores.messages
        assert store.appender.refusal is not None
        assert store.appender.refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
        names = [name for group in (broker.delivery, broker.services) for _, name in group.works()]
        assert names == ["sizes of topics"]

    followed(tmp_path, script)


def test_a_pop_is_refused_because_it_would_write(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0", "maxMsgNums": "1"}
        fields |= {"invisibleTime": "60000", "pollTime": "0", "bornTime": "0", "initMode": "0"}
        reply = await peer.ask(RequestCode.POP_MESSAGE, fields)
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE

    followed(tmp_path, script)


# what it serves -------------------------------------------------------------------------------


def test_pulls_are_served_and_their_commits_are_ignored(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        flags = str(COMMIT | SUBSCRIPTION)
        reply = await pull_of(peer, pull(0, sysFlag=flags, commitOffset="2"))
        assert outcome(reply) == (0, 3)
        assert bodies(reply) == [b"0", b"1", b"2"]
        assert reply.fields["suggestWhichBrokerId"] == "0"
        assert broker.stores.offsets.query("g", TOPIC, 0) == -1

    followed(tmp_path, script)


def test_offsets_are_committed_and_queried_at_a_slave(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        where = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0"}
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        reply = await peer.ask(code, where | {"commitOffset": "2"})
        assert reply.code == 0
        reply = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, where)
        assert reply.fields["offset"] == "2"
        reply = await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
        assert reply.fields["offset"] == "3"

    followed(tmp_path, script)


def test_a_pull_waits_for_an_offset_that_is_not_replicated_yet(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        start_pull(peer, pull(7, sysFlag=str(2 | SUBSCRIPTION), suspendTimeoutMillis="60000"))
        while not broker.stores.messages.queue(TOPIC, 0).waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        broker.stores.messages.queue(TOPIC, 0).waiting.popitem()[0].wake()
        assert outcome(await peer.receive()) == (ResponseCode.PULL_NOT_FOUND, 7)

    followed(tmp_path, script)


def test_an_offset_that_a_slave_never_had_is_answered_after_a_moment(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        broker.stores.messages.queue(TOPIC, 0).minimum = 2
        command = pull(0, sysFlag=str(2 | SUBSCRIPTION), suspendTimeoutMillis="60000")
        assert outcome(await pull_of(peer, command)) == (ResponseCode.PULL_NOT_FOUND, 0)

    followed(tmp_path, script, shortPollingTimeMills="50")


def test_a_slave_corrects_offsets_if_enabled(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        assert outcome(await pull_of(peer, pull(7))) == (ResponseCode.PULL_OFFSET_MOVED, 3)

    followed(tmp_path, script, offsetCheckInSlave="true")


# what is the master's -------------------------------------------------------------------------


def test_data_created_for_a_consumer_does_not_change_the_copy(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        topics, groups = broker.stores.topics, broker.stores.groups
        versions = topics.data_version, groups.data_version
        files = [each.file.path for each in (topics, groups)]
        before = [path.exists() and path.read_bytes() for path in files]
        reply = await pull_of(peer, pull(0, consumerGroup="new"))
        assert reply.code == 0
        topics.create_internal("%RETRY%new", 1)
        assert (topics.data_version, groups.data_version) == versions
        await topics.file.close()
        await groups.file.close()
        assert [path.exists() and path.read_bytes() for path in files] == before

    followed(tmp_path, script)


def test_a_copy_replaces_local_data_with_a_higher_version(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        topics, groups = broker.stores.topics, broker.stores.groups
        version = type(topics.data_version)(timestamp=5, counter=1)
        for _ in range(2):
            await topics.take_copy({"A": TopicConfig(topic_name="A")}, version)
            await groups.take_copy({"g": SubscriptionGroupConfig(group_name="g")}, version)
        assert list(topics.table) == ["A"] and topics.data_version == version
        assert list(groups.table) == ["g"] and groups.data_version == version
        for table in (topics, groups):
            assert b'"counter":1' in table.file.path.read_bytes()

    followed(tmp_path, script)


def test_offsets_of_the_master_win_and_commits_made_only_here_stay(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        offsets = broker.stores.offsets
        offsets.commit("here", TOPIC, 0, 2)
        offsets.commit("both", TOPIC, 0, 3)
        both, gone = f"{TOPIC}{SEPARATOR}both", f"{TOPIC}{SEPARATOR}gone"
        await offsets.take_copy({both: {0: 1}, gone: {0: 1}})
        assert offsets.queues("both", TOPIC) == {0: 1}
        assert offsets.query("here", TOPIC, 0) == 2
        await offsets.take_copy({both: {0: 2}})
        assert offsets.groups_of_topic(TOPIC) == ["here", "both"]

    followed(tmp_path, script)


def test_offsets_ahead_of_replicated_messages_are_reduced_when_a_slave_stops(
    tmp_path: Path,
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await broker.stores.offsets.take_copy({f"{TOPIC}{SEPARATOR}g": {0: 50}})
        assert broker.stores.offsets.query("g", TOPIC, 0) == 50

    async def as_master() -> None:
        async with Harness(tmp_path, {}) as broker:
            assert broker.stores.offsets.query("g", TOPIC, 0) == 3

    followed(tmp_path, script)
    asyncio.run(as_master())
