import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.cli.commands import tracing
from mq.client import Consumer, Session
from mq.client.admin import Admin
from mq.client.consumer.send_back import send_back
from mq.client.operations.messages.traces import MOST_TRACE_BYTES
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.blocking import BlockingSession, run
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message, StoredMessage
from mq.protocol.names import TRACE_TOPIC, dead_letter_topic, retry_topic
from mq.testing import RunningBroker
from tests.cli.pairs import DEAD, dead_broker, make_topic, put, running_pair
from tests.cli.support import Finished, Mq

TOPIC = "Orders"


@pytest.fixture
def broker(mq_broker: RunningBroker) -> RunningBroker:
    mq_broker.create_topic(TOPIC, queues=1)
    return mq_broker


@pytest.fixture
def mq(broker: RunningBroker, cluster: Mq) -> Mq:
    return cluster.having({"NAMESRV_ADDR": broker.name_server})


def consume(broker: RunningBroker, group: str, expression: str, count: int) -> None:
    """Consume this number of messages as a member of a group, and leave it."""

    async def work() -> None:
        done = asyncio.Event()
        left = count

        async def listen(message: StoredMessage) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        async with Consumer(broker.name_server, group, {TOPIC: expression}, listener=listen):
            await asyncio.wait_for(done.wait(), 30)

    asyncio.run(work())


def give_back(broker: RunningBroker, group: str, level: int, most: int = 16) -> None:
    """Send the first message of the topic back like a failing member of a group."""

    async def work() -> None:
        async with Session(broker.name_server) as session:
            queue = MessageQueue(TOPIC, "broker-a", 0)
            message = await anext(aiter(PullConsumer(session).read(queue, 0)))
            await send_back(
                session, group, queue, message, delay_level=level, max_reconsume_times=most
            )

    asyncio.run(work())


def events(done: Finished) -> Iterator[tuple[str, str | None, str]]:
    assert done.status == 0, done.err
    for row in done.json["data"]:
        yield row["event"], row["group"], row["detail"]


def wait_for(mq: Mq, message_id: str, event: str) -> list[tuple[str, str | None, str]]:
    """A broker indexes a message shortly after storing it."""
    end = time.monotonic() + 60
    while True:
        found = list(events(mq("trace", message_id, "-o", "json")))
        if any(one[0] == event for one in found) or time.monotonic() > end:
            return found


def test_it_tells_who_has_consumed_a_message_and_how_many_come_before_it(
    mq: Mq, broker: RunningBroker
) -> None:
    broker.send(TOPIC, b"one")
    broker.send(TOPIC, b"two")
    consume(broker, "first", "*", 2)
    for _ in range(3):
        broker.send(TOPIC, b"more")
    last = broker.send(TOPIC, b"last", tags="new", keys=("k1", "k2"))
    done = mq("trace", last.message_id, "-o", "json")
    sent, stored, verdict = events(done)
    assert sent == ("sent", None, "4 bytes, tag new, keys k1 k2")
    assert stored[0] == "stored"
    assert stored[2].startswith("topic Orders, queue 0, offset 5, log offset ")
    assert verdict == (
        "waiting",
        "first",
        "3 messages of the queue come before it; no member is online",
    )
    consume(broker, "first", "*", 4)
    *_, verdict = events(mq("trace", last.message_id, "-t", TOPIC, "-o", "json"))
    assert verdict == ("consumed", "first", "the group has committed offset 6 of the queue")


ACCOUNTS = """
accounts:
- {accessKey: administrator, secretKey: "12345678", admin: true}
- accessKey: some-user
  secretKey: "12345678"
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Orders=PUB|SUB]
"""


def test_who_may_not_read_everything_sees_the_rest_and_is_told_what_is_missing(
    tmp_path: Path,
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    keys = {}
    for name in ("administrator", "some-user"):
        path = tmp_path / name
        path.write_text(f'accessKey: {name}\nsecretKey: "12345678"\n')
        path.chmod(0o600)
        keys[name] = str(path)
    with running_pair({"aclEnable": "true", "rocketmqHome": str(tmp_path)}) as pair:
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        every = ("--acl-file", keys["administrator"])
        mine = ("--acl-file", keys["some-user"])
        assert mq("updateTopic", "-c", "DefaultCluster", "-t", TOPIC, *every).status == 0
        sent = mq("sendMessage", "-t", TOPIC, "-p", "x", "-o", "json", *mine).json["data"][0]
        done = mq("trace", sent["messageId"], "-o", "json", *mine)
        assert done.status == 1
        assert [row["event"] for row in done.json["data"]] == ["sent", "stored", "no group"]
        everywhere, delays = done.json["failures"]
        assert everywhere.startswith("not searched: 3 topics that this account may not read (")
        assert everywhere.endswith("); choose one, or use an account that may")
        assert delays.startswith(f"topic SCHEDULE_TOPIC_XXXX: {pair.broker.address}: NO_PERMISSION")
        assert delays.endswith("; its messages are missing: use an account that may read it")
        of_one = mq("trace", sent["messageId"], TOPIC, "-o", "json", *mine)
        assert of_one.json["failures"] == [delays]
        assert mq("trace", sent["messageId"], *every).status == 0


def test_it_tells_that_a_tag_was_not_wanted(mq: Mq, broker: RunningBroker) -> None:
    sent = broker.send(TOPIC, b"one", tags="old")
    broker.send(TOPIC, b"two", tags="new")

    async def work() -> Finished:
        done = asyncio.Event()

        async def listen(message: StoredMessage) -> None:
            done.set()

        consumer = Consumer(broker.name_server, "choosy", {TOPIC: "new"}, listener=listen)
        async with consumer:
            await asyncio.wait_for(done.wait(), 30)
            await asyncio.to_thread(broker.wait_until_consumed, "choosy", TOPIC)
            return await asyncio.to_thread(mq, "trace", sent.message_id, "-o", "json")

    *_, verdict = events(asyncio.run(work()))
    assert verdict == (
        "left out",
        "choosy",
        "its tag old is not among those the group wants: new",
    )


def test_it_tells_of_retries_and_of_dead_letters(mq: Mq, broker: RunningBroker) -> None:
    sent = broker.send(TOPIC, b"one")
    consume(broker, "failing", "*", 1)
    give_back(broker, "failing", level=3)
    found = wait_for(mq, sent.message_id, "delayed")
    assert ("delayed", None, "delay level 3, for topic %RETRY%failing") in found
    give_back(broker, "failing", level=-1)
    found = wait_for(mq, sent.message_id, "dead letter")
    letter = next(event for event in found if event[:2] == ("dead letter", "failing"))
    assert letter[2].startswith("given up early, try 1, offset 0 of %DLQ%failing")
    assert found[-1][:2] == ("dead letter", "failing")
    assert "mq dlq resend -g failing" in found[-1][2]


@pytest.mark.parametrize("topic", [retry_topic("billing"), dead_letter_topic("billing")])
def test_nothing_is_claimed_where_a_broker_does_not_say_what_has_come_back(
    mq: Mq, broker: RunningBroker, topic: str
) -> None:
    sent = broker.send(TOPIC, b"one")
    consume(broker, "billing", "*", 1)
    assert list(events(mq("trace", sent.message_id, "-o", "json")))[-1][0] == "consumed"
    with dead_broker(broker.name_server, topic):
        done = mq("trace", sent.message_id, TOPIC, "-o", "json")
    failure = f"topic {topic}: {DEAD}: Connection refused"
    assert (done.status, done.json["failures"]) == (1, [failure])
    assert done.err == f"mq trace: {failure}\n"
    last = done.json["data"][-1]
    assert (last["event"], last["group"], last["detail"]) == (
        "unknown",
        "billing",
        "not all of its retries and dead letters could be searched",
    )


def test_a_dead_letter_is_told_of_though_another_broker_of_its_topic_is_away(
    mq: Mq, broker: RunningBroker
) -> None:
    sent = broker.send(TOPIC, b"one")
    consume(broker, "failing", "*", 1)
    give_back(broker, "failing", level=-1)
    before = wait_for(mq, sent.message_id, "dead letter")
    with dead_broker(broker.name_server, dead_letter_topic("failing")):
        done = mq("trace", sent.message_id, TOPIC, "-o", "json")
    assert done.status == 1
    assert done.json["failures"] == [
        f"topic {dead_letter_topic('failing')}: {DEAD}: Connection refused"
    ]
    found = [(row["event"], row["group"], row["detail"]) for row in done.json["data"]]
    assert [event[:2] for event in found] == [event[:2] for event in before]
    assert found[-1] == before[-1]


def test_a_broker_that_does_not_say_which_traces_it_has_is_told_of(
    mq: Mq, broker: RunningBroker
) -> None:
    sent = broker.send(TOPIC, b"one")
    consume(broker, "billing", "*", 1)
    before = list(events(mq("trace", sent.message_id, "-o", "json")))
    with dead_broker(broker.name_server, TRACE_TOPIC):
        done = mq("trace", sent.message_id, TOPIC, "-o", "json")
    assert done.status == 1
    assert done.json["failures"] == [f"topic {TRACE_TOPIC}: {DEAD}: Connection refused"]
    found = [(row["event"], row["group"], row["detail"]) for row in done.json["data"]]
    assert found == before
    assert found[-1][0] == "consumed"


@pytest.mark.parametrize("group", ["billing", None])
def test_a_message_is_told_of_though_another_broker_of_its_topic_is_away(
    mq: Mq, broker: RunningBroker, group: str | None
) -> None:
    sent = broker.send(TOPIC, b"one")
    if group:
        consume(broker, group, "*", 1)
    before = list(events(mq("trace", sent.message_id, "-o", "json")))
    with dead_broker(broker.name_server, TOPIC):
        done = mq("trace", sent.message_id, TOPIC, "-o", "json")
    assert (done.status, done.json["failures"]) == (
        1,
        [f"topic {TOPIC}: {DEAD}: Connection refused"],
    )
    found = [(row["event"], row["group"], row["detail"]) for row in done.json["data"]]
    assert found[:-1] == before[:-1]
    unknown = ("unknown", None, "not all brokers of the topic say which groups read it")
    assert found[-1] == (before[-1] if group else unknown)


def test_a_message_is_told_of_that_was_stored_under_an_address_its_broker_has_no_more(
    tmp_path: Path,
) -> None:
    with running_pair(store=tmp_path / "store") as pair:
        make_topic(pair, TOPIC, 1)
        put(pair, [Message(TOPIC, b"one")])
        former = pair.broker.address
        with BlockingSession(pair.name_server_address) as session:
            run(Admin(session).update_consumer_offset(former, "billing", TOPIC, 0, 1))
    with running_pair(store=tmp_path / "store") as pair:
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        message_id = mq("message", "export", TOPIC, "-").json["messageId"]
        done = mq("trace", message_id, TOPIC, "-o", "json")
    assert done.status == 1
    assert f"the offset of group billing: {former}: Connection refused" in done.json["failures"]
    *_, stored, verdict = done.json["data"]
    assert (stored["event"], verdict["event"], verdict["group"]) == ("stored", "unknown", "billing")


def test_an_offset_id_will_do_and_a_topic_nobody_reads_is_said(
    mq: Mq, broker: RunningBroker
) -> None:
    sent = broker.send(TOPIC, b"one")
    done = mq("trace", sent.offset_message_id, "-o", "json")
    assert {row["messageId"] for row in done.json["data"]} == {sent.message_id}
    *_, verdict = events(done)
    assert verdict == ("no group", None, "no consumer group reads topic Orders")


def test_each_topic_that_an_id_is_in_is_told_of(
    mq: Mq, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("Archive", queues=1)
    sent = broker.send(TOPIC, b"one")
    consume(broker, "billing", "*", 1)
    file = str(tmp_path / "orders.jsonl")
    assert mq("message", "export", file, "-t", TOPIC).status == 0
    assert mq("message", "import", file, "--to-topic", "Archive").status == 0
    assert ("Archive", "stored") in wait_for_places(mq, sent.message_id, 2)
    done = mq("trace", sent.message_id, "-o", "json")
    verdicts = [
        (row["topic"], row["event"], row["group"], row["where"])
        for row in done.json["data"]
        if row["time"] is None
    ]
    assert verdicts == [  # the oldest first, although its name sorts later
        (TOPIC, "consumed", "billing", TOPIC),
        ("Archive", "no group", None, "Archive"),
    ]
    only = mq("trace", sent.message_id, "-t", "Archive", "-o", "json").json["data"]
    assert {row["topic"] for row in only} == {"Archive"}
    # Java's command takes one topic, and prints its events.
    assert (
        "Topic:               Archive"
        in mq("queryMsgByUniqueKey", "-t", "Archive", "-i", sent.message_id).out
    )


def wait_for_places(mq: Mq, message_id: str, count: int) -> list[tuple[str, str]]:
    """Return topics and events, once this number of copies is stored: brokers index them later."""
    end = time.monotonic() + 60
    while True:
        rows = mq("trace", message_id, "-o", "json").json["data"]
        found = [(row["topic"], row["event"]) for row in rows]
        if sum(event == "stored" for _, event in found) == count or time.monotonic() > end:
            return found


def test_dead_letters_are_told_of_with_the_topic_that_they_come_from(
    mq: Mq, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("Archive", queues=1)
    sent = broker.send(TOPIC, b"one")
    consume(broker, "failing", "*", 1)
    give_back(broker, "failing", level=-1)
    file = str(tmp_path / "orders.jsonl")
    assert mq("message", "export", file, "-t", TOPIC).status == 0
    assert mq("message", "import", file, "--to-topic", "Archive").status == 0
    assert (TOPIC, "dead letter") in (found := wait_for_places(mq, sent.message_id, 2))
    assert ("Archive", "dead letter") not in found
    assert not any(topic.startswith("%") for topic, _ in found)


def test_an_id_that_nobody_knows_is_told(mq: Mq) -> None:
    unknown = "7F0000017FAD18B4AAC2800000000000"
    done = mq("trace", unknown)
    assert (done.status, f"no message '{unknown}' in any topic" in done.err) == (66, True)
    done = mq("trace", "short", "-t", TOPIC)
    assert (done.status, "no message 'short' in topic Orders" in done.err) == (66, True)


def test_a_trace_that_cannot_be_read_is_told_of(mq: Mq, broker: RunningBroker) -> None:
    sent = broker.send(TOPIC, b"one")
    broker.send(TRACE_TOPIC, bytes(MOST_TRACE_BYTES + 1), keys=(sent.message_id,))

    def done() -> Finished:
        return mq("trace", sent.message_id, "-t", TOPIC, "-o", "json")

    deadline = time.monotonic() + 30
    while not (found := done()).err:  # the index follows a moment later
        assert time.monotonic() < deadline
    assert found.status == 1
    assert found.err.startswith("mq trace: trace ") and "is larger than" in found.err
    assert "no consumer group reads topic Orders" in found.out


def test_a_search_of_all_topics_has_an_end_and_says_what_it_has_left_out(
    mq: Mq, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = broker.send(TOPIC, b"one")
    monkeypatch.setattr(tracing, "SEARCH_SECONDS", 0.0)
    done = mq("trace", sent.message_id)
    assert (done.status, done.out) == (66, "")
    assert "in the 0 topics that were searched; not searched: " in done.err
    assert "topics: choose one" in done.err
