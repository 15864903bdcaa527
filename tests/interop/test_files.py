"""Message and offset files, copies, dead letters, and following a topic, with Java brokers."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.consumer.send_back import send_back
from mq.client.errors import MQError
from mq.client.producer.producer import Producer
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig
from mq.protocol.message import Message
from mq.protocol.names import dead_letter_topic, retry_topic
from tests.cli.commands.following import following
from tests.cli.pairs import make_topic as make_our_topic
from tests.cli.pairs import running_pair
from tests.cli.support import Mq
from tests.interop import peers
from tests.interop.conftest import JavaCluster
from tests.interop.jvm import require_java
from tests.waiting import until

pytestmark = pytest.mark.java

BODIES = [b"text", "Grüße".encode(), b"\x00\xff binary", b"large " * 3000, b'{"a": [1]}']


@pytest.fixture(scope="module")
def ours() -> Iterator[Standalone]:
    with running_pair() as pair:
        yield pair


@pytest.fixture
def mq(java_cluster: JavaCluster, tmp_path: Path) -> Mq:
    """`mq` for the Java cluster."""
    return Mq(tmp_path / "config", {"NAMESRV_ADDR": java_cluster.namesrv})


def ask(cluster: JavaCluster, act: Any) -> Any:
    with BlockingSession(cluster.namesrv) as session:
        return run(act(Admin(session)))


def until_routed(cluster: JavaCluster, topic: str) -> None:
    deadline = time.monotonic() + 60
    with BlockingSession(cluster.namesrv) as session:
        while True:
            try:
                run(session.route(topic, max_age=0))
                return
            except MQError:
                assert time.monotonic() < deadline, topic
                time.sleep(0.1)  # a broker registers a topic a moment later


def make_topic(cluster: JavaCluster, topic: str, queues: int = 2) -> None:
    config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
    ask(cluster, lambda admin: admin.create_topic(cluster.broker, config))
    until_routed(cluster, topic)


def put(cluster: JavaCluster, messages: Sequence[Message], queue_id: int) -> None:
    """Send messages and wait until the queue has them."""
    topic = messages[0].topic
    queue = MessageQueue(topic, cluster.broker_name, queue_id)

    async def main() -> None:
        async with Producer(cluster.namesrv, "put") as producer:
            for message in messages:
                last = await producer.send(message, queue)
            consumer = PullConsumer(producer.session)

            async def complete() -> bool:
                return await consumer.max_offset(queue) > last.queue_offset

            await until(complete)

    asyncio.run(main())


def sample(topic: str) -> list[Message]:
    return [
        Message(topic, body, f"tag{number}", [f"k{number}"], {"number": str(number)}, flag=number)
        for number, body in enumerate(BODIES)
    ]


def exported(mq: Mq, topic: str, *options: str) -> list[dict[str, Any]]:
    finished = mq("message", "export", "-", "-t", topic, *options)
    assert finished.status == 0, finished.err
    return [json.loads(line) for line in finished.out.splitlines()]


def own(line: dict[str, Any]) -> tuple[Any, ...]:
    """Return the parts of a message that do not depend on its position."""
    names = ("TAGS", "KEYS", "number", "UNIQ_KEY")
    return (
        line["body"],
        line["bodyEncoding"],
        line["flag"],
        *(line["properties"][name] for name in names),
    )


def wait_for(mq: Mq, topic: str, count: int) -> list[dict[str, Any]]:
    """Return the messages of a topic once there are enough: Java's queues follow the log a moment
    later.
    """
    deadline = time.monotonic() + 60
    while True:
        found = exported(mq, topic)
        if len(found) >= count or time.monotonic() > deadline:
            assert len(found) == count
            return found
        time.sleep(0.1)


def test_messages_survive_a_file_and_a_copy_to_our_broker_and_back(
    java_cluster: JavaCluster, ours: Standalone, mq: Mq, tmp_path: Path
) -> None:
    for topic in ("files-source", "files-back", "files-round"):
        make_topic(java_cluster, topic)
    middle = f"files-{java_cluster.release}".replace(".", "-")
    make_our_topic(ours, middle)
    for queue_id in (0, 1):
        put(java_cluster, sample("files-source"), queue_id)
    source = exported(mq, "files-source")
    assert sorted(line["queueId"] for line in source) == [0] * 5 + [1] * 5
    expected = sorted(map(own, source))

    file = tmp_path / "messages.jsonl"
    assert mq("message", "export", str(file), "-t", "files-source").status == 0
    imported = mq("message", "import", str(file), "--to-topic", "files-back")
    assert imported.status == 0, imported.err
    back = wait_for(mq, "files-back", 10)
    assert sorted(map(own, back)) == expected
    for queue_id in (0, 1):
        order = [line["properties"]["number"] for line in back if line["queueId"] == queue_id]
        assert order == ["0", "1", "2", "3", "4"]

    there = ("--to-topic", middle, "--to-namesrv", ours.name_server_address)
    copied = mq("message", "copy", "-t", "files-source", *there)
    assert copied.status == 0, copied.err
    at_ours = Mq(tmp_path / "ours", {"NAMESRV_ADDR": ours.name_server_address})
    assert sorted(map(own, exported(at_ours, middle))) == expected
    there = ("--to-topic", "files-round", "--to-namesrv", java_cluster.namesrv)
    copied = at_ours("message", "copy", "-t", middle, *there)
    assert copied.status == 0, copied.err
    assert sorted(map(own, wait_for(mq, "files-round", 10))) == expected


def test_messages_are_selected_by_time_tag_and_key(java_cluster: JavaCluster, mq: Mq) -> None:
    topic = "files-chosen"
    make_topic(java_cluster, topic, 1)
    put(java_cluster, [Message(topic, b"%d" % n, f"t{n % 3}", [f"k{n}"]) for n in range(60)], 0)
    lines = exported(mq, topic)
    times = [line["storeTimestamp"] for line in lines]
    for moment in (times[0], times[20], times[59]):
        earlier = exported(mq, topic, "--end", str(moment))
        later = exported(mq, topic, "--begin", str(moment))
        assert [line["body"] for line in earlier + later] == [str(n) for n in range(60)]
        assert all(line["storeTimestamp"] < moment for line in earlier)
        assert all(line["storeTimestamp"] >= moment for line in later)
    tagged = exported(mq, topic, "--tag", "t1")
    assert [line["body"] for line in tagged] == [str(n) for n in range(1, 60, 3)]
    assert [line["body"] for line in exported(mq, topic, "--key", "k42")] == ["42"]
    last = mq("tail", topic, "--last", "2", "--limit", "2", "--format", r"%b\n")
    assert (last.status, last.out) == (0, "58\n59\n")


def offsets(cluster: JavaCluster, group: str, topic: str) -> dict[int, int]:
    table = ask(cluster, lambda admin: admin.all_consumer_offsets(cluster.broker))
    return dict(table.get(f"{topic}@{group}", {}))


def make_group(cluster: JavaCluster, group: str) -> None:
    config = SubscriptionGroupConfig(group_name=group)
    ask(cluster, lambda admin: admin.update_subscription_group(cluster.broker, config))


@pytest.mark.parametrize("measure", ["offset", "timestamp"])
def test_offsets_of_a_java_broker_are_exported_and_restored(
    java_cluster: JavaCluster, mq: Mq, tmp_path: Path, measure: str
) -> None:
    group = topic = f"files-offsets-{measure}"
    make_topic(java_cluster, topic)
    make_group(java_cluster, group)
    for queue_id in (0, 1):
        put(java_cluster, [Message(topic, b"%d" % number) for number in range(30)], queue_id)

    def commit(first: int, second: int) -> None:
        for queue_id, offset in enumerate((first, second)):
            with BlockingSession(java_cluster.namesrv) as session:
                where = (java_cluster.broker, group, topic, queue_id, offset)
                run(Admin(session).update_consumer_offset(*where))

    commit(7, 30)
    file = tmp_path / "offsets.jsonl"
    assert mq("offset", "export", str(file), "-g", group, "--by", measure).status == 0
    commit(25, 1)
    changed = mq("offset", "diff", str(file), "-g", group, "-o", "json").json["data"]
    assert [(row["first"], row["second"]) for row in changed] == [(7, 25), (30, 1)]
    imported = mq("offset", "import", str(file), "-o", "json")
    assert imported.status == 0, imported.err
    found = offsets(java_cluster, group, topic)
    if measure == "offset":
        assert found == {0: 7, 1: 30}
    else:  # the first message of that millisecond, if several have it
        assert found[1] == 30 and 0 <= found[0] <= 7
        stored = [line["storeTimestamp"] for line in exported(mq, topic, "-i", "0")]
        assert found[0] == stored.index(stored[7])


def test_offsets_of_a_running_java_consumer_are_not_changed(
    java_cluster: JavaCluster, mq: Mq, tmp_path: Path
) -> None:
    group = topic = "files-running"
    make_topic(java_cluster, topic)
    put(java_cluster, [Message(topic, b"%d" % number) for number in range(4)], 0)
    file = tmp_path / "offsets.csv"
    with peers.JavaProgram(
        "4.9.8", "Consume.java", java_cluster.namesrv, group, topic, tmp=tmp_path
    ) as consumer:
        consumer.wait_for_line("GOT ", count=4)
        file.write_text(
            "group,topic,brokerName,queueId,offset\n"
            f"{group},{topic},{java_cluster.broker_name},0,2\n"
        )
        deadline = time.monotonic() + 60
        # The consumer commits every five seconds: the offset may just have been 2, which needs no
        # change.
        while (refused := mq("offset", "import", str(file), "-o", "json")).status == 0:
            assert [row["result"] for row in refused.json["data"]] == ["same"]
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert refused.status == 75, refused.err
        assert [row["result"] for row in refused.json["data"]] == ["running"]
    until_routed(java_cluster, retry_topic(group))
    deadline = time.monotonic() + 60
    while (done := mq("offset", "import", str(file))).status == 75:  # until it has unregistered
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert done.status == 0, done.err
    assert offsets(java_cluster, group, topic)[0] == 2


def test_dead_letters_of_a_java_broker_are_resent_once(java_cluster: JavaCluster, mq: Mq) -> None:
    group, topic = "files-dlq", "files-dlq-topic"
    make_topic(java_cluster, topic, 1)
    make_group(java_cluster, group)
    put(java_cluster, [Message(topic, b"%d" % number, "t", ["k"]) for number in range(3)], 0)
    queue = MessageQueue(topic, java_cluster.broker_name, 0)

    async def give_up() -> None:
        async with Session(java_cluster.namesrv) as session:
            async for message in PullConsumer(session).read(queue):
                await send_back(
                    session, group, queue, message, delay_level=-1, max_reconsume_times=3
                )

    asyncio.run(give_up())
    until_routed(java_cluster, dead_letter_topic(group))
    wait_for(mq, dead_letter_topic(group), 3)
    listed = {row["group"]: row for row in mq("dlq", "list", "-o", "json").json["data"]}
    assert (listed[group]["messages"], listed[group]["topics"]) == (3, f"{topic} (3)")
    resend = ("dlq", "resend", "-g", group, "--all", "-o", "json")
    first = mq(*resend)
    assert first.status == 0, first.err
    assert first.json["totals"] == {"sent": 3, "before": 0, "failed": 0}
    assert mq(*resend).json["totals"] == {"sent": 0, "before": 3, "failed": 0}
    found = wait_for(mq, topic, 6)
    assert sorted(line["body"] for line in found) == ["0", "0", "1", "1", "2", "2"]
    shown = mq("dlq", "show", "-g", group, "-o", "json").json["data"]
    assert all(row["resentAs"] and row["originTopic"] == topic for row in shown)


def test_a_topic_of_a_java_broker_is_followed(java_cluster: JavaCluster) -> None:
    topic = "files-followed"
    make_topic(java_cluster, topic, 1)
    put(java_cluster, [Message(topic, b"before")], 0)
    arguments = (topic, "--last", "1", "--format", r"%o %b\n", "-n", java_cluster.namesrv)
    with following(*arguments) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0 before\n"
        put(java_cluster, [Message(topic, b"new")], 0)
        assert process.stdout.readline() == "1 new\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 0
    table = ask(java_cluster, lambda admin: admin.all_consumer_offsets(java_cluster.broker))
    assert not [key for key in table if key.startswith(f"{topic}@")]


def test_messages_of_a_java_broker_are_selected_by_sql92(tmp_path: Path) -> None:
    require_java()
    settings = {"enablePropertyFilter": "true"}
    with (
        peers.JavaNameServer("4.9.7", tmp_path) as namesrv,
        peers.JavaBroker("4.9.7", tmp_path, namesrv.address, settings) as broker,
    ):
        cluster = JavaCluster("4.9.7", namesrv.address, broker.address, broker.name, tmp_path)
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": namesrv.address})
        make_topic(cluster, "files-sql", 1)
        messages = [
            Message("files-sql", b"%d" % number, properties={"amount": str(number)})
            for number in range(60)
        ]
        put(cluster, messages, 0)
        found = exported(mq, "files-sql", "--sql", "amount > 54 AND amount <> 57")
        assert [line["body"] for line in found] == ["55", "56", "58", "59"]
        wrong = mq("message", "export", "-", "-t", "files-sql", "--sql", "amount >")
        assert (wrong.status, wrong.out) == (64, "")  # all of which Java would send
