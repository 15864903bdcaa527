"""The Java clients 4.9.8 and 5.5.0, in both serializations, with our name server and broker."""

import asyncio
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.protocol.bodies import TopicConfig
from tests.interop import peers
from tests.interop.java_client import Got, JavaClient, JavaFailed
from tests.interop.jvm import require_java
from tests.interop.tools import our_daemons

pytestmark = pytest.mark.java

BROKER = "broker-a"
QUEUES = 4
MILLISECOND = 1000
_numbers = itertools.count()


@dataclass(frozen=True)
class Daemons:
    """Our name server and broker, each in its own process."""

    namesrv: str
    broker: str

    def topic(self, queues: int = QUEUES) -> str:
        """A new topic."""
        name = f"java-{next(_numbers)}"

        async def make() -> None:
            async with Session(self.namesrv) as session:
                config = TopicConfig(
                    topic_name=name, read_queue_nums=queues, write_queue_nums=queues
                )
                await Admin(session).create_topic(self.broker, config)

        asyncio.run(make())
        return name

    def committed(self, group: str, topic: str, queues: int = QUEUES) -> list[int]:
        """The committed offsets of a group."""
        with BlockingSession(self.namesrv) as session:
            admin = Admin(session)
            return [
                run(admin.query_consumer_offset(self.broker, group, topic, queue)) or 0
                for queue in range(queues)
            ]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    require_java()
    with our_daemons(tmp_path_factory.mktemp("daemons")) as (namesrv, broker):
        yield Daemons(namesrv, broker)


@pytest.fixture(
    scope="module",
    params=list(itertools.product(peers.CLIENT_RELEASES, ("JSON", "ROCKETMQ"))),
    ids="-".join,
)
def java(
    request: pytest.FixtureRequest, daemons: Daemons, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    release, serialization = request.param
    home = tmp_path_factory.mktemp("java")
    with JavaClient(release, daemons.namesrv, home, serialization) as client:
        yield client


def bodies(messages: list[Got]) -> list[str]:
    return sorted(message.body for message in messages)


def expected(tag: str, count: int) -> list[str]:
    return sorted(f"{tag}-{number}" for number in range(count))


def test_messages_sent_in_every_way_are_stored_once_and_unchanged(
    daemons: Daemons, java: JavaClient
) -> None:
    topic = daemons.topic()
    sent = java.send(topic, "sync", "sync", 8) + java.send(topic, "async", "async", 20)
    chosen = java.send(topic, 2, "chosen", 3)
    assert {result.status for result in sent + chosen} == {"SEND_OK"}
    assert {result.broker for result in sent} == {BROKER}
    assert {result.queue_id for result in chosen} == {2}
    assert len({(result.queue_id, result.queue_offset) for result in sent + chosen}) == 31
    (batch,) = java.send(topic, "batch", "batch", 5)
    assert batch.status == "SEND_OK"
    assert len(set(batch.message_id.split(","))) == len(set(batch.offset_id.split(","))) == 5
    java.send(topic, "oneway", "oneway", 4)
    java.consume("all", f"all-{topic}", topic)
    ways = {"sync": 8, "async": 20, "chosen": 3, "batch": 5, "oneway": 4}
    got = [m for m in java.got("all", 40) if m.broker == BROKER]
    java.stop_consumer("all")
    for way, count in ways.items():
        mine = [m for m in got if m.tags == way]
        assert bodies(mine) == expected(way, count)
        assert {m.keys for m in mine} == {f"key-{way}-{number}" for number in range(count)}
    by_id = {m.message_id: m for m in got}
    for result in sent + chosen:
        message = by_id[result.message_id]
        assert (message.queue_id, message.queue_offset) == (result.queue_id, result.queue_offset)
    in_batch = [by_id[message_id] for message_id in batch.message_id.split(",")]
    assert [m.queue_offset for m in in_batch] == [batch.queue_offset + i for i in range(5)]


def test_a_large_body_is_sent_compressed_and_delivered_decompressed(
    daemons: Daemons, java: JavaClient
) -> None:
    topic = daemons.topic(1)
    (sent,) = java.send(topic, "sync", "large", 1, 20_000)
    (found,) = java.messages("view", topic, sent.offset_id)
    # The flag cannot be checked: the client of 5.x removes it when it has decompressed the body.
    assert found.store_size < 2000
    assert found.body == "large-0".ljust(60, ".")


def test_the_first_message_creates_its_topic(daemons: Daemons, java: JavaClient) -> None:
    topic = f"created-{next(_numbers)}"
    (sent,) = java.send(topic, "sync", "first")
    assert sent.status == "SEND_OK"
    assert {result.queue_id for result in java.send(topic, "sync", "next", 8)} == set(range(4))


def test_a_consumer_gets_only_the_tags_that_it_subscribes_to(
    daemons: Daemons, java: JavaClient
) -> None:
    topic = daemons.topic()
    for tag in ("red", "green", "blue"):
        java.send(topic, "sync", tag, 6)
    java.consume("coloured", f"coloured-{topic}", topic, "red || blue")
    # A message sent while the consumer waits: long polling filters, too.
    java.got("coloured", 12)
    java.send(topic, "sync", "green", 1)
    java.send(topic, "sync", "red", 1)
    got = java.got("coloured", 13)
    java.stop_consumer("coloured")
    assert bodies(got) == sorted(expected("red", 6) + expected("blue", 6) + ["red-0"])


def test_members_of_a_group_share_the_queues_as_they_join_and_leave(
    daemons: Daemons, java: JavaClient
) -> None:
    topic = daemons.topic()
    group = f"shared-{topic}"
    first, second = f"first-{topic}", f"second-{topic}"
    java.consume(first, group, topic)
    java.wait_for_queues([{0, 1, 2, 3}], first)
    # Notified by the broker (code 40), long before a client's own rebalance after 20 s.
    java.consume(second, group, topic)
    java.wait_for_queues([{0, 1}, {2, 3}], first, second)
    java.send(topic, "sync", "shared", 20)
    java.until(lambda: len(java.got(first)) + len(java.got(second)) == 20)
    assert bodies(java.got(first) + java.got(second)) == expected("shared", 20)
    assert {m.queue_id for m in java.got(first)}.isdisjoint(m.queue_id for m in java.got(second))

    def committed_by_both() -> bool:
        java("commit", first)
        return daemons.committed(group, topic) == [5] * QUEUES

    java.commit(second, committed_by_both)
    java.stop_consumer(first)
    java.wait_for_queues([{0, 1, 2, 3}], second)
    java.send(topic, "sync", "later", 8)
    java.until(lambda: sum(m.tags == "later" for m in java.got(second)) == 8)
    java.commit(second, lambda: daemons.committed(group, topic) == [7] * QUEUES)
    java.stop_consumer(second)
    assert daemons.committed(group, topic) == [7] * QUEUES


def test_a_group_continues_where_it_stopped(daemons: Daemons, java: JavaClient) -> None:
    topic = daemons.topic()
    group = f"resumed-{topic}"
    java.send(topic, "sync", "before", 8)
    java.consume(f"one-{topic}", group, topic)
    java.got(f"one-{topic}", 8)
    java.commit(f"one-{topic}", lambda: daemons.committed(group, topic) == [2] * QUEUES)
    java.stop_consumer(f"one-{topic}")
    assert daemons.committed(group, topic) == [2] * QUEUES
    java.send(topic, "sync", "after", 8)
    java.consume(f"two-{topic}", group, topic)
    assert bodies(java.got(f"two-{topic}", 8)) == expected("after", 8)
    java.commit(f"two-{topic}", lambda: daemons.committed(group, topic) == [4] * QUEUES)
    java.stop_consumer(f"two-{topic}")
    assert daemons.committed(group, topic) == [4] * QUEUES


def test_every_member_of_a_broadcast_gets_everything(daemons: Daemons, java: JavaClient) -> None:
    topic = daemons.topic()
    names = (f"left-{topic}", f"right-{topic}")
    java.send(topic, "sync", "cast", 8)
    for name in names:
        java.consume(name, f"cast-{topic}", topic, "*", "broadcasting")
    for name in names:
        assert bodies(java.got(name, 8)) == expected("cast", 8)
        java.stop_consumer(name)
    # each member keeps its own offsets
    assert daemons.committed(f"cast-{topic}", topic) == [0] * QUEUES


def test_orderly_consumers_hold_locks_and_keep_the_order(
    daemons: Daemons, java: JavaClient
) -> None:
    topic = daemons.topic()
    group = f"orderly-{topic}"
    first, second = f"first-{topic}", f"second-{topic}"
    java.consume(first, group, topic, "*", "orderly")
    java.wait_for_queues([{0, 1, 2, 3}], first)
    java.consume(second, group, topic, "*", "orderly")
    # A member that finds a queue locked by the other one retries after 20 s; here at once.
    java.wait_for_queues([{0, 1}, {2, 3}], first, second, rebalance=True)
    for queue in range(QUEUES):
        java.send(topic, queue, f"queue{queue}", 10)
    java.until(lambda: len(java.got(first)) + len(java.got(second)) == 40)
    for queue in range(QUEUES):
        member = [m for m in java.got(first) + java.got(second) if m.queue_id == queue]
        assert [m.body for m in member] == [f"queue{queue}-{number}" for number in range(10)]
        assert len({m.who for m in member}) == 1
    for name in (first, second):
        assert {words[3] for words in java("queues", name) if words[0] == "QUEUE"} == {"true"}
    java.stop_consumer(first)  # it unlocks its queues, and the other member gets them at once
    java.wait_for_queues([{0, 1, 2, 3}], second, rebalance=True)
    java.send(topic, 0, "taken-over", 1)
    java.until(lambda: any(m.body == "taken-over-0" for m in java.got(second)))
    java.stop_consumer(second)


def test_the_pull_consumer_reads_to_the_end_and_resumes(daemons: Daemons, java: JavaClient) -> None:
    topic = daemons.topic()
    group = f"pull-{topic}"
    java.send(topic, "sync", "first", 40)
    assert bodies(java.messages("pull", group, topic, "*")) == expected("first", 40)
    assert daemons.committed(group, topic) == [10] * QUEUES
    java.send(topic, "sync", "skipped", 4)
    java.send(topic, "sync", "wanted", 8)
    lines = java("pull", group, topic, "wanted")
    assert [words[2] for words in lines if words[0] == "FROM"] == ["10"] * QUEUES
    ends = [words[2:] for words in lines if words[0] == "END"]
    assert ends == [["13", "NO_NEW_MSG"]] * QUEUES
    got = [words[-1] for words in lines if words[0] == "GOT"]
    assert sorted(got) == expected("wanted", 8)


def test_the_lite_pull_consumer_commits_and_resumes(daemons: Daemons, java: JavaClient) -> None:
    topic = daemons.topic()
    group = f"lite-{topic}"
    java.send(topic, "sync", "first", 8)
    assert bodies(java.messages("lite", group, topic, "*", 8)) == expected("first", 8)
    assert daemons.committed(group, topic) == [2] * QUEUES
    java.send(topic, "sync", "second", 4)
    assert bodies(java.messages("lite", group, topic, "*", 4)) == expected("second", 4)


def test_offsets_are_found_by_position_and_by_time(daemons: Daemons, java: JavaClient) -> None:
    topic = daemons.topic(1)
    before = int(time.time() * MILLISECOND)
    java.send(topic, 0, "early", 3)
    time.sleep(0.3)  # a time in the gap finds the nearest message: the first late one
    late = int(time.time() * MILLISECOND)
    java.send(topic, 0, "late", 2)
    _, least, most, found, earliest = java("offsets", topic, 0, late)[0]
    assert (least, most, found) == ("0", "5", "3")
    assert before <= int(earliest) < late


def test_messages_are_found_by_key_and_by_both_ids(daemons: Daemons, java: JavaClient) -> None:
    topic = daemons.topic()
    sent = java.send(topic, "sync", "find", 4)
    (by_key,) = java.messages("query", topic, "key-find-2")
    assert (by_key.body, by_key.message_id) == ("find-2", sent[2].message_id)
    (by_unique_id,) = java.messages("view", topic, sent[1].message_id)
    (by_offset_id,) = java.messages("view", topic, sent[1].offset_id)
    assert by_unique_id.body == by_offset_id.body == "find-1"
    with pytest.raises(JavaFailed, match="query message by key finished, but no message"):
        java("query", topic, "no-such-key")
