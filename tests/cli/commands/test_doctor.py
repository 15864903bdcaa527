import asyncio
from pathlib import Path
from typing import Any

import pytest

from mq.client import Consumer, Session
from mq.client.consumer.send_back import send_back
from mq.client.operations.doctor.examination import Examination, Limits
from mq.client.operations.doctor.finding import Finding, Severity, worst
from mq.client.operations.doctor.sets import _check_epochs, _check_masters
from mq.client.pull.pull_consumer import PullConsumer
from mq.protocol.bodies import ClusterInfo, MessageQueue
from mq.protocol.bodies.controller import EpochEntry, EpochEntryCache
from mq.protocol.bodies.route import BrokerData
from mq.protocol.message import StoredMessage
from mq.protocol.names import dead_letter_topic, retry_topic
from mq.testing import RunningBroker
from tests.cli.pairs import another_broker, dead_broker, running_pair
from tests.cli.support import Finished, Mq
from tests.client.scripted import routed
from tests.interop.ports import free_port

TOPIC = "Orders"


@pytest.fixture
def mq(mq_broker: RunningBroker, tmp_path: Path) -> Mq:
    return Mq(tmp_path / "config", {"NAMESRV_ADDR": mq_broker.name_server})


def found(done: Finished, check: str) -> list[dict[str, Any]]:
    return [row for row in done.json["data"] if row["check"] == check]


def test_a_cluster_that_is_well_has_no_problems(mq: Mq, mq_broker: RunningBroker) -> None:
    mq_broker.create_topic(TOPIC)
    done = mq("doctor", "--disk-warning", "99", "--disk-critical", "100", "-o", "json")
    assert (done.status, done.err) == (0, "")
    assert {row["severity"] for row in done.json["data"]} == {"ok"}
    checks = {row["check"] for row in done.json["data"]}
    assert checks == {"name-server", "clock", "disk", "topic", "group"}
    totals = done.json["totals"]
    assert (totals["warning"], totals["critical"], totals["unknown"]) == (0, 0, 0)
    done = mq(
        "doctor", "--problems", "--disk-warning", "99", "--disk-critical", "100", "-o", "json"
    )
    assert done.json["data"] == []


def test_a_name_server_that_is_dead_is_critical(mq: Mq, mq_broker: RunningBroker) -> None:
    dead = f"127.0.0.1:{free_port()}"
    done = mq("doctor", "-n", f"{mq_broker.name_server};{dead}", "-o", "json")
    assert done.status == 1
    [other, alive] = found(done, "name-server")
    assert (other["severity"], other["subject"]) == ("critical", dead)
    assert "cannot be reached" in other["detail"]
    assert (alive["severity"], alive["detail"]) == ("ok", "knows 1 broker")


def test_no_name_server_at_all_is_critical(mq: Mq) -> None:
    dead = f"127.0.0.1:{free_port()}"
    done = mq("doctor", "-n", dead, "--nagios", "-o", "plain")
    assert done.status == 2
    assert done.out.startswith(f"MQ CRITICAL - {dead}: cannot be reached")
    assert done.out.endswith("| ok=0 warning=0 critical=1 unknown=0\n")


def test_name_servers_that_disagree_are_told(
    mq: Mq, mq_broker: RunningBroker, tmp_path: Path
) -> None:
    with RunningBroker(tmp_path / "other", {"brokerName": "broker-b"}) as other:
        both = f"{mq_broker.name_server};{other.name_server}"
        done = mq("doctor", "-n", both, "-o", "json")
        assert done.status == 1
        told = {row["subject"]: row["detail"] for row in found(done, "name-server")}
        assert told[mq_broker.name_server].endswith(f"others know: {other.address}")
        assert told[other.name_server].endswith(f"others know: {mq_broker.address}")


def test_a_disk_that_is_too_full_and_a_clock_that_is_wrong_are_told(mq: Mq) -> None:
    done = mq("doctor", "--disk-warning", "0.01", "--disk-critical", "100", "-o", "json")
    [disk] = found(done, "disk")
    assert (done.status, disk["severity"]) == (1, "warning")
    assert disk["hint"] == "delete what is not needed, or shorten fileReservedTime"
    done = mq("doctor", "--disk-warning", "0.01", "--disk-critical", "0.02", "--nagios")
    assert done.status == 2
    done = mq("doctor", "--disk-warning", "50", "--disk-critical", "40")
    assert (done.status, "is below" in done.err) == (64, True)


def test_queues_that_are_written_and_not_read_are_critical(
    mq: Mq, mq_broker: RunningBroker
) -> None:
    assert mq("updateTopic", "-b", mq_broker.address, "-t", TOPIC, "-r", "2", "-w", "4").status == 0
    done = mq("doctor", "-o", "json")
    [queues] = found(done, "queues")
    assert (queues["severity"], queues["subject"]) == ("critical", TOPIC)
    assert queues["hint"] == f"read all: mq updateTopic -t {TOPIC} -r 4"


def test_a_group_that_is_behind_and_offline_is_critical(mq: Mq, mq_broker: RunningBroker) -> None:
    mq_broker.send(TOPIC, b"one")
    consume(mq_broker, "slow", 1)
    for _ in range(5):
        mq_broker.send(TOPIC, b"more")
    done = mq("doctor", "--lag", "4", "-o", "json")
    [lag] = found(done, "lag")
    assert (lag["severity"], lag["subject"]) == ("critical", "slow")
    assert lag["detail"] == "its lag is 5 messages, with 0 members online"
    assert found(mq("doctor", "--lag", "5", "-o", "json"), "lag") == []


def test_groups_are_not_well_while_a_broker_does_not_say_how_they_do(
    mq: Mq, mq_broker: RunningBroker
) -> None:
    mq_broker.create_topic(TOPIC)
    unsaid = (retry_topic("unsaid"), dead_letter_topic("unsaid"))
    with dead_broker(mq_broker.name_server, *unsaid):
        done = mq("doctor", "-o", "json")
    told = [(row["severity"], row["subject"]) for row in found(done, "group")]
    assert told == 2 * [("unknown", "unsaid")]
    (letters,) = found(done, "dead-letter")
    assert (letters["severity"], letters["subject"]) == ("unknown", "unsaid")


def test_dead_letters_are_told(mq: Mq, mq_broker: RunningBroker) -> None:
    mq_broker.create_topic(TOPIC, queues=1)
    mq_broker.send(TOPIC, b"one")
    consume(mq_broker, "failing", 1)

    async def give_up() -> None:
        async with Session(mq_broker.name_server) as session:
            queue = MessageQueue(TOPIC, "broker-a", 0)
            message = await anext(aiter(PullConsumer(session).read(queue, 0)))
            await send_back(
                session, "failing", queue, message, delay_level=-1, max_reconsume_times=16
            )

    asyncio.run(give_up())
    mq_broker.wait_for_messages("%DLQ%failing", 1)
    [letters] = found(mq("doctor", "-o", "json"), "dead-letter")
    assert (letters["subject"], letters["detail"]) == (
        "failing",
        "1 message is in the dead letter queue",
    )


def test_members_that_want_different_things_are_critical(mq: Mq, mq_broker: RunningBroker) -> None:
    mq_broker.create_topic(TOPIC, queues=1)

    async def listen(message: StoredMessage) -> None:
        raise AssertionError("there are no messages")

    def member(tags: str) -> Consumer:
        return Consumer(
            mq_broker.name_server, "torn", {TOPIC: tags}, listener=listen, instance=tags
        )

    async def work() -> Finished:
        async with member("new") as new, member("old"):
            await routed(new.session, "%RETRY%torn")
            return await asyncio.to_thread(mq, "doctor", "-o", "json")

    done = asyncio.run(work())
    [torn] = found(done, "subscription")
    assert (torn["severity"], torn["subject"]) == ("critical", "torn")
    assert "Orders new" in torn["detail"] and "Orders old" in torn["detail"]
    [idle] = found(done, "members")
    assert idle["detail"] == "2 members share 1 queue: 1 member has none"


def test_members_with_one_client_id_are_critical(mq: Mq, mq_broker: RunningBroker) -> None:
    mq_broker.create_topic(TOPIC, queues=2)

    async def listen(message: StoredMessage) -> None:
        raise AssertionError("there are no messages")

    def member() -> Consumer:
        name_server = mq_broker.name_server
        return Consumer(name_server, "doubled", {TOPIC: "*"}, listener=listen, instance="same")

    async def work() -> Finished:
        async with member() as first, member():
            await routed(first.session, "%RETRY%doubled")
            return await asyncio.to_thread(mq, "doctor", "-o", "json")

    [doubled] = found(asyncio.run(work()), "client-id")
    assert (doubled["severity"], doubled["subject"]) == ("critical", "doubled")
    assert doubled["detail"].startswith("2 members have the client id ")
    assert "@same (127.0.0.1:" in doubled["detail"]
    assert "instanceName" in doubled["hint"]


def consume(broker: RunningBroker, group: str, count: int) -> None:
    async def work() -> None:
        done = asyncio.Event()
        left = count

        async def listen(message: StoredMessage) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        async with Consumer(broker.name_server, group, {TOPIC: "*"}, listener=listen) as consumer:
            await routed(consumer.session, f"%RETRY%{group}")
            await asyncio.wait_for(done.wait(), 30)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("severities", "expected"),
    [
        ([], Severity.OK),
        ([Severity.OK, Severity.UNKNOWN], Severity.UNKNOWN),
        ([Severity.UNKNOWN, Severity.WARNING], Severity.WARNING),
        ([Severity.CRITICAL, Severity.UNKNOWN, Severity.WARNING], Severity.CRITICAL),
    ],
)
def test_what_is_known_to_be_bad_counts_most(
    severities: list[Severity], expected: Severity
) -> None:
    findings = [Finding("check", severity, "subject", "detail") for severity in severities]
    assert worst(findings) is expected


def test_what_a_broker_could_not_handle_and_what_went_wrong_in_its_tasks_is_told(
    tmp_path: Path,
) -> None:
    # Messages in the queue of a delay level do not show their destination.
    with running_pair(store=tmp_path / "store") as pair:
        broker = pair.broker
        loop = next(iter(broker.tasks._tasks)).get_loop()

        async def spoil() -> None:
            broker.delivery.writer.put(
                StoredMessage("SCHEDULE_TOPIC_XXXX", b"x", {"TAGS": "no level"})
            )
            broker.tasks.failed("statistics", ValueError("as the test wants it"))
            broker.stores.messages.appender.commit()
            async with asyncio.timeout(60):
                while not broker.stores.aside.counts:
                    await broker.stores.aside.save()
                    await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(spoil(), loop).result(90)
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        done = mq("doctor", "-o", "json")
        assert done.status == 1
        [aside] = found(done, "set-aside")
        assert aside["severity"] == "warning"
        assert aside["detail"] == "1 message could not be handled (set aside)"
        [task] = found(done, "task")
        assert task["detail"] == (
            "1 error in background tasks, the last: statistics: ValueError: as the test wants it"
        )


SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


def test_a_sync_master_without_a_slave_is_critical_and_with_one_it_is_well(
    mq: Mq, tmp_path: Path
) -> None:
    with running_pair({"brokerRole": "SYNC_MASTER", "brokerName": "set"}) as pair:
        server = pair.name_server_address
        done = mq("doctor", "-n", server, "-o", "json")
        [alone] = found(done, "sync-master")
        assert (alone["severity"], alone["subject"]) == ("critical", pair.broker.address)
        assert "SLAVE_NOT_AVAILABLE" in alone["detail"]
        with another_broker(pair, "set", tmp_path / "slave", properties=SLAVE) as slave:
            done = mq("doctor", "-n", server, "-o", "json")
            assert not found(done, "sync-master") and not found(done, "role")
            [replica] = found(done, "replica")
            assert (replica["severity"], replica["subject"]) == ("ok", "set (1)")
            listed = mq("clusterList", "-n", server, "-o", "json").json["data"]
            assert [(row["brokerId"], row["brokerAddr"]) for row in listed] == [
                (0, pair.broker.address),
                (1, slave.address),
            ]


def test_two_masters_of_one_name_are_critical(mq: Mq, mq_broker: RunningBroker) -> None:
    name = {"brokerName": "twice"}
    with running_pair(name) as one, running_pair(name) as other:
        both = f"{one.name_server_address};{other.name_server_address}"
        done = mq("doctor", "-n", both, "-o", "json")
        [rivals] = found(done, "two-masters")
        assert (done.status, rivals["severity"], rivals["subject"]) == (1, "critical", "twice")
        assert one.broker.address in rivals["detail"] and other.broker.address in rivals["detail"]


@pytest.mark.parametrize(
    ("ids", "check", "severity"),
    [((1,), "master", Severity.CRITICAL), ((0, 1), "acting-master", Severity.WARNING)],
)
def test_a_slave_that_acts_as_the_master_is_named(
    ids: tuple[int, ...], check: str, severity: Severity
) -> None:
    data = BrokerData(cluster="C", broker_name="set", broker_addrs={n: f"h{n}:1" for n in ids})
    info = ClusterInfo(broker_addr_table={"set": data})
    examination = Examination(Session("127.0.0.1:1"), Limits(), 0.0, {"127.0.0.1:1": info})
    _check_masters(examination, {"h1:1"})
    [finding] = examination.findings
    assert (finding.check, finding.severity) == (check, severity)
    assert "h1:1" in finding.subject + finding.detail


def test_a_slave_with_an_epoch_that_its_master_has_not_is_critical() -> None:
    def log(*epochs: tuple[int, int]) -> EpochEntryCache:
        entries = [EpochEntry(epoch=epoch, start_offset=start) for epoch, start in epochs]
        return EpochEntryCache(epoch_list=entries)

    members = {0: "a:1", 1: "b:1", 2: "c:1", 3: "d:1"}
    data = BrokerData(cluster="C", broker_name="set", broker_addrs=members)
    info = ClusterInfo(broker_addr_table={"set": data})
    examination = Examination(Session("127.0.0.1:1"), Limits(), 0.0, {"127.0.0.1:1": info})
    epochs = {
        "a:1": log((2, 100), (3, 200), (5, 300)),
        "b:1": log((1, 0), (2, 100), (3, 200)),  # the master has deleted the first files
        "c:1": log((2, 100), (3, 200), (4, 250)),
    }
    _check_epochs(examination, epochs)
    [apart] = examination.findings
    assert (apart.check, apart.subject) == ("epochs", "set (2)")
    assert "has epoch 4 from 250 on" in apart.detail
