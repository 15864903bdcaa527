from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.machine import clock
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.channel import Channel
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.names import retry_topic
from tests.cli.connected import connected
from tests.cli.scripted import answer, daemon
from tests.cli.support import Mq

TOPIC = "Resettable"


@pytest.fixture(scope="module")
def admin(standalone: Standalone) -> Iterator[Admin]:
    with BlockingSession(standalone.name_server_address) as session:
        yield Admin(session)


@pytest.fixture
def group(cluster: Mq, standalone: Standalone, admin: Admin, request: pytest.FixtureRequest) -> str:
    """A group at offset 1 of two queues with three messages each."""
    name: str = "G-" + request.node.name[:40].strip("_-[]")
    cluster("updateTopic", "-c", "DefaultCluster", "-t", TOPIC, "-r", "2", "-w", "2")
    cluster("updateTopic", "-c", "DefaultCluster", "-t", retry_topic(name))
    cluster("updateSubGroup", "-c", "DefaultCluster", "-g", name)
    address = standalone.broker.address
    for queue in range(2):
        while run(admin.max_offset(address, TOPIC, queue)) < 3:
            sent = cluster(
                "sendMessage", "-t", TOPIC, "-p", "x", "-b", "broker-a", "-i", str(queue)
            )
            assert sent.status == 0
        run(admin.update_consumer_offset(address, name, TOPIC, queue, 1))
    return name


def offsets(admin: Admin, standalone: Standalone, group: str) -> list[int | None]:
    address = standalone.broker.address
    return [run(admin.query_consumer_offset(address, group, TOPIC, queue)) for queue in range(2)]


def test_a_group_without_consumers_goes_to_a_time(
    cluster: Mq, standalone: Standalone, admin: Admin, group: str
) -> None:
    words = ("resetOffsetByTime", "-g", group, "-t", TOPIC)
    to_end = cluster(*words, "-s", "now", "--output", "json").json["data"]
    assert [row["offset"] for row in to_end] == [3, 3]
    assert [row["consumerOffset"] for row in to_end] == [1, 1]
    assert offsets(admin, standalone, group) == [3, 3]
    to_begin = cluster(*words, "-s", "2020-01-01#00:00:00:000")
    assert to_begin.out.startswith("rollback consumer offset by specified consumerGroup[")
    assert offsets(admin, standalone, group) == [0, 0]


@pytest.mark.parametrize(("seconds", "is_said"), [(5, True), (60, False)])
@pytest.mark.parametrize(
    "command",
    [
        "resetOffsetByTime GROUP Resettable now",
        "resetOffsetByTime GROUP Resettable now -b BROKER -q 1",
        "skipAccumulatedMessage GROUP Resettable",
        "offset import FILE",
        "consumerConnection GROUP",
    ],
)
def test_that_a_broker_without_members_may_not_have_heard_of_them_yet_is_said(
    command: str,
    seconds: int,
    is_said: bool,
    cluster: Mq,
    standalone: Standalone,
    group: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standalone.broker.stats.counters, "started", clock.time() - seconds)
    file = tmp_path / "offsets.csv"
    file.write_text(f"group,topic,brokerName,queueId,offset\n{group},{TOPIC},broker-a,0,2\n")
    address = standalone.broker.address
    words = command.replace("BROKER", address).replace("FILE", str(file)).replace("GROUP", group)
    done = cluster(*words.split())
    assert done.status == 0, done.err
    lines = [line for line in done.err.splitlines() if f"{address}: it started " in line]
    assert len(lines) == is_said, done.err
    assert all(line.endswith("it may not know all of them yet") for line in lines)


@pytest.mark.parametrize("age", ["1h", "1h30m", "2020-01-01", "2020-01-01T00:00Z", "1577836800000"])
def test_a_time_may_be_an_age_a_date_or_milliseconds(
    age: str, cluster: Mq, standalone: Standalone, admin: Admin, group: str
) -> None:
    assert cluster("group", "seek", group, TOPIC, age).status == 0
    assert offsets(admin, standalone, group) == [0, 0]
    assert cluster("group", "seek", group, TOPIC, "now").status == 0
    assert offsets(admin, standalone, group) == [3, 3]


def test_without_force_a_group_only_goes_back(
    cluster: Mq, standalone: Standalone, admin: Admin, group: str
) -> None:
    kept = cluster("skipAccumulatedMessage", "-g", group, "-t", TOPIC, "-f", "false")
    assert kept.status == 0
    assert offsets(admin, standalone, group) == [1, 1]
    assert cluster("skipAccumulatedMessage", "-g", group, "-t", TOPIC).status == 0
    assert offsets(admin, standalone, group) == [3, 3]


def test_the_old_way_takes_milliseconds_too(
    cluster: Mq, standalone: Standalone, admin: Admin, group: str
) -> None:
    done = cluster("resetOffsetByTimeOld", "-g", group, "-t", TOPIC, "-s", "1000")
    assert done.status == 0
    assert "timestamp(long)[1000]" in done.out
    assert offsets(admin, standalone, group) == [0, 0]


def test_one_queue_goes_to_an_offset_also_to_0(
    cluster: Mq, standalone: Standalone, admin: Admin, group: str
) -> None:
    words = ("resetOffsetByTime", "-g", group, "-t", TOPIC, "-s", "now", "-q", "1")
    done = cluster(*words, "-b", standalone.broker.address, "-o", "0")
    assert done.out.endswith("reset consumer offset to 0\n")
    assert offsets(admin, standalone, group) == [1, 0]
    half = cluster(*words)
    assert half.status == 64
    assert "belong together" in half.err


def test_connected_consumers_are_told_but_not_about_one_queue(
    cluster: Mq, standalone: Standalone, group: str
) -> None:
    words = ("resetOffsetByTime", "-g", group, "-t", TOPIC, "-s", "now")
    with connected(standalone, group=group, topic=TOPIC) as member:
        told = cluster(*words)
        assert told.out.splitlines()[0].startswith("rollback consumer offset by specified group[")
        assert member.pushed().code == 220  # RESET_CONSUMER_CLIENT_OFFSET
        one = cluster(*words, "-b", standalone.broker.address, "-q", "1")
    assert one.status == 69
    assert "cannot tell them about one queue" in one.err


def test_c_without_a_value_is_for_consumers_in_cpp(
    cluster: Mq, standalone: Standalone, group: str
) -> None:
    words = ("resetOffsetByTime", "-g", group, "-t", TOPIC, "-s", "now")
    with connected(standalone, group=group, topic=TOPIC) as member:
        for end in (("-c",), ("-c", "-f", "true"), ("--cplus",)):
            assert cluster(*words, *end).status == 0
            told = bytes(member.pushed().body)
            assert told.startswith(b'{"offsetTable":[{')  # a list: they read no map of objects
        assert cluster(*words, "-c", "DefaultCluster").status == 0
        assert bytes(member.pushed().body).startswith(b'{"offsetTable":{{')


@pytest.mark.parametrize("time", ["yesterday", "2020-01-32", "2020-13-01#00:00:00:000", ""])
def test_a_time_that_is_none_is_refused(time: str, cluster: Mq) -> None:
    for command in ("resetOffsetByTime", "resetOffsetByTimeOld"):
        finished = cluster(command, "-g", "G", "-t", "T", "-s", time)
        assert (finished.status, finished.out) == (64, "")
        assert "-s/--timestamp" in finished.err


def test_a_dry_run_shows_what_would_be_done(
    cluster: Mq, standalone: Standalone, admin: Admin, group: str
) -> None:
    words = ("-g", group, "-t", TOPIC, "--dry-run")
    offline = cluster("skipAccumulatedMessage", *words)
    assert offline.out.count("UPDATE_CONSUMER_OFFSET (15)") == 2
    assert offline.out.count("commitOffset = 3") == 2
    with connected(standalone, group=group, topic=TOPIC):
        online = cluster("resetOffsetByTime", *words, "-s", "now")
    assert online.out.count("INVOKE_BROKER_TO_RESET_OFFSET (222)") == 1
    assert offsets(admin, standalone, group) == [1, 1]


def test_a_group_that_has_not_consumed_yet_is_sent_the_old_way(
    cluster: Mq, standalone: Standalone, admin: Admin, group: str
) -> None:
    words = ("-g", f"{group}-new", "-t", TOPIC, "-s", "now")
    refused = cluster("resetOffsetByTime", *words)
    assert (refused.status, refused.out) == (66, "")
    assert "has not consumed all queues of topic" in refused.err
    assert "mq resetOffsetByTimeOld" in refused.err
    assert cluster("resetOffsetByTimeOld", *words).status == 0
    assert offsets(admin, standalone, f"{group}-new") == [3, 3]


def test_an_unknown_topic_is_not_found(cluster: Mq) -> None:
    finished = cluster("skipAccumulatedMessage", "-g", "G", "-t", "NoSuchTopic")
    assert (finished.status, finished.out) == (66, "")


def test_cloned_offsets_are_those_of_the_topic(
    cluster: Mq, standalone: Standalone, admin: Admin, group: str
) -> None:
    words = ("cloneGroupOffset", "-s", group, "-d", "Clone", "-t", TOPIC)
    cloned = cluster(*words)
    assert cloned.out == (
        f"clone group offset success. srcGroup[{group}], destGroup=[Clone], topic[{TOPIC}]"
    )
    assert offsets(admin, standalone, "Clone") == [1, 1]
    rows = cluster(*words, "--output", "json").json["data"]
    assert rows == [{"brokerName": "broker-a", "queueId": id, "offset": 1} for id in range(2)]
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "NeverConsumed")
    nothing = cluster("cloneGroupOffset", "-s", group, "-d", "Clone", "-t", "NeverConsumed")
    assert nothing.status == 66
    assert cluster("cloneGroupOffset", "-s", group, "-d", "a b", "-t", TOPIC).status == 64


def test_a_queue_that_has_left_the_routes_is_missed_by_a_clone(mq: Mq) -> None:
    """The broker is in the group's offsets; it stops between the two requests."""
    stats = b'{"consumeTps":0,"offsetTable":{%s}}' % b",".join(
        b'{"brokerName":"%s","queueId":0,"topic":"T"}:'
        b'{"brokerOffset":9,"consumerOffset":5,"lastTimestamp":0}' % name
        for name in (b"b", b"gone")
    )

    def route(request: Command, channel: Channel) -> Command:
        host, port = channel.local_address
        found = TopicRouteData(
            queue_datas=[QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=1, perm=6)],
            broker_datas=[
                BrokerData(cluster="c", broker_name="b", broker_addrs={0: f"{host}:{port}"})
            ],
        )
        return request.reply(body=found.encode())

    handlers = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: route,
        RequestCode.GET_CONSUME_STATS: answer(stats),
        RequestCode.UPDATE_CONSUMER_OFFSET: answer(),
    }
    with daemon(handlers) as address:
        cloned = mq("cloneGroupOffset", "-s", "S", "-d", "D", "-t", "T", "-n", address)
    assert cloned.status == 1
    assert "gone:0: the topic has no route to it" in cloned.err
    assert "clone group offset success" in cloned.out


def test_the_status_of_a_group_without_consumers_is_an_error(cluster: Mq, group: str) -> None:
    finished = cluster("getConsumerStatus", "-g", group, "-t", TOPIC)
    assert (finished.status, finished.out) == (69, "")
    assert "No Any Consumer online in the consumer group" in finished.err
