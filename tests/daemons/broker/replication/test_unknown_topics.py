"""A slave has the topic of a message before it acknowledges the message."""

import asyncio
import logging
from pathlib import Path

import pytest

from mq.client.errors import MQError, NoPermission, RequestTimeout
from mq.daemons.broker.app import Broker
from mq.daemons.broker.replication.metadata import SlaveSynchronize
from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.replication.pair import caught_up, master, send, slave_of
from tests.daemons.peer import Peer

SYNC = {"brokerRole": "SYNC_MASTER"}


@pytest.fixture(autouse=True)
def _rare_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first round of copies takes place."""
    monkeypatch.setattr("mq.daemons.broker.replication.metadata.MIN_PERIOD_SECONDS", 1000.0)
    monkeypatch.setattr("mq.daemons.broker.replication.metadata.PERIOD_SECONDS", 1000.0)


async def connected(slave: Broker) -> None:
    assert slave.replication.slave is not None
    await slave.replication.slave.connected.wait()


def test_an_acknowledged_message_of_a_new_topic_can_be_read_at_the_slave(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **SYNC) as first, slave_of(tmp_path, first) as slave:
            await connected(slave)
            topic = TopicConfig(topic_name="New", read_queue_nums=7, write_queue_nums=7, perm=6)
            await first.stores.topics.update(topic)
            await first.stores.groups.update(SubscriptionGroupConfig(group_name="g"))
            async with Peer(first.port) as peer:
                reply = await send(peer, b"a chair", "New", queue_id=5)
                assert reply.code == ResponseCode.SUCCESS
            assert slave.stores.topics.get("New") == topic
            assert "g" in slave.stores.groups.table
            assert slave.stores.topics.data_version == first.stores.topics.data_version
            folder = slave.stores.messages.root / "config"
            assert b'"New"' in (folder / "topics.json").read_bytes()
            async with Peer(slave.port) as peer:
                reply = await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "New", "queueId": "5"})
                assert reply.fields["offset"] == "1"

    asyncio.run(main())


def test_a_topic_that_a_send_creates_is_at_the_slave(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **SYNC) as first, slave_of(tmp_path, first) as slave:
            await connected(slave)
            async with Peer(first.port) as peer:
                for topic in ("A", "B", "C"):
                    reply = await send(peer, b"a chair", topic)
                    assert reply.code == ResponseCode.SUCCESS
                    assert slave.stores.topics.get(topic) == first.stores.topics.get(topic)

    asyncio.run(main())


def test_a_raised_number_of_queues_is_at_the_slave(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **SYNC) as first, slave_of(tmp_path, first) as slave:
            await connected(slave)
            async with Peer(first.port) as peer:
                await send(peer, b"a chair", "New")
                wider = TopicConfig(topic_name="New", read_queue_nums=9, write_queue_nums=9)
                await first.stores.topics.update(wider)
                reply = await send(peer, b"a table", "New", queue_id=8)
                assert reply.code == ResponseCode.SUCCESS
            assert slave.stores.topics.get("New") == wider

    asyncio.run(main())


def test_messages_of_a_topic_that_the_master_has_deleted_are_stored(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as first:
            async with Peer(first.port) as peer:
                for number in range(20):
                    await send(peer, b"%d" % number, "Gone", queue_id=number % 3)
                    await send(peer, b"%d" % number, "Stays", queue_id=number % 3)
            await first.stores.topics.delete("Gone")
            async with slave_of(tmp_path, first) as slave:
                await caught_up(slave, first)
                assert slave.stores.topics.get("Gone") is None
                assert slave.stores.topics.get("Stays") is not None

    asyncio.run(main())


@pytest.mark.parametrize(
    "error",
    [
        NoPermission("not for slaves", "127.0.0.1:10911"),
        RequestTimeout("127.0.0.1:10911", 3.0, RequestCode.GET_ALL_TOPIC_CONFIG),
    ],
    ids=["refused", "slow"],
)
def test_a_slave_serves_unknown_topics_with_defaults_if_it_cannot_get_the_tables(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: MQError,
) -> None:
    async def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(SlaveSynchronize, "_copy_topics", refused)

    async def main() -> None:
        async with master(tmp_path, **SYNC) as first, slave_of(tmp_path, first) as slave:
            await connected(slave)
            async with Peer(first.port) as peer:
                for queue_id in (1, 30):
                    topic = TopicConfig(
                        topic_name="New", read_queue_nums=31, write_queue_nums=31, perm=6
                    )
                    await first.stores.topics.update(topic)
                    reply = await send(peer, b"a chair", "New", queue_id)
                    assert reply.code == ResponseCode.SUCCESS
                    assert slave.stores.topics.knows("New", queue_id)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "cannot copy topics and groups" in caplog.text


def test_an_older_answer_does_not_replace_a_newer_table(tmp_path: Path) -> None:
    """A round asks for topics; before its answer is stored, a new topic is copied ahead."""

    async def main() -> None:
        async with master(tmp_path, **SYNC) as first, slave_of(tmp_path, first) as slave:
            await connected(slave)
            synchronize = slave.metadata.synchronize
            assert synchronize is not None
            rounds = [asyncio.create_task(synchronize.round(first.address)) for _ in range(20)]
            async with Peer(first.port) as peer:
                for number in range(20):
                    await send(peer, b"a chair", f"New{number}")
                    assert slave.stores.topics.get(f"New{number}") is not None
            await asyncio.gather(*rounds)
            assert slave.stores.topics.table == first.stores.topics.table

    asyncio.run(main())
