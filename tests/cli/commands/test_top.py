"""`mq top`: rates from two samples, at a terminal and in a pipe."""

import json
import os
import pty
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from mq.cli.top.sampling import BrokerSample, ClusterSample, Counters, GroupSample, TopicSample
from mq.cli.top.subjects import Subject
from mq.cli.top.views import History
from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from tests.cli.connected import connected
from tests.cli.pairs import dead_broker, make_topic, put, running_pair
from tests.cli.support import Finished, Mq
from tests.cli.terminal import at_terminal

QUICK = ("--interval", "0.2", "--count", "1")
ADDRESS, OTHER = "10.0.0.1:10911", "10.0.0.2:10911"
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


def named(finished: Finished, field: str, name: str) -> dict[str, object]:
    (found,) = (item for item in finished.json["data"] if item[field] == name)
    return dict(found)


def broker(seconds: float, puts: int, size: int = 0, more: Mapping[str, str] = {}) -> BrokerSample:
    runtime = {"msgPutTotalTodayNow": str(puts), "putMessageSizeTotal": str(size), **more}
    return BrokerSample("broker-a", 0, ADDRESS, "C", seconds, 0.0015, runtime)


def history(*looks: ClusterSample) -> History:
    found = History()
    for look in looks:
        found.add(look)
    return found


def facts(found: History, subject: Subject) -> list[dict[str, object]]:
    result = found.result(subject)
    names = [column.name for column in result.columns]
    return [dict(zip(names, row, strict=True)) for row in result.rows]


def test_rates_of_a_broker_are_the_growth_of_its_counters() -> None:
    looks = [
        ClusterSample(t, {ADDRESS: broker(t, puts, size)})
        for t, puts, size in ((1, 10, 0), (3, 50, 600))
    ]
    (row,) = facts(history(*looks), Subject.BROKERS)
    assert (row["inTps"], row["inBytesPerSecond"], row["responseMillis"]) == (20.0, 300.0, 1.5)


def test_what_a_slave_lacks_of_its_masters_log_is_shown() -> None:
    def replica(number: int, name: str, end: str) -> BrokerSample:
        address = f"10.0.0.{number}:10911"
        told = {"commitLogMaxOffset": end} if end else {}
        return BrokerSample(name, number, address, "C", 1.0, 0.001, told)

    brokers = [replica(0, "a", "5000"), replica(1, "a", "4200"), replica(2, "a", "5100")]
    brokers += [replica(3, "a", ""), replica(4, "without-a-master", "7")]
    rows = facts(history(ClusterSample(1, {one.address: one for one in brokers})), Subject.BROKERS)
    assert [row["replicationLagBytes"] for row in rows] == [None, 800, 0, None, None]


def test_a_slave_that_acts_as_the_master_says_so() -> None:
    def state(acting: str) -> object:
        told = {"actingMaster": acting}
        (row,) = facts(
            history(ClusterSample(1, {ADDRESS: broker(1, 0, more=told)})), Subject.BROKERS
        )
        return row["state"]

    assert (state("true"), state("false")) == ("acting", "up")


def test_how_many_cores_a_broker_keeps_busy_is_the_growth_of_its_cpu_time() -> None:
    def look(at: float, milliseconds: int) -> ClusterSample:
        told = {"processCpuMillis": str(milliseconds), "processPrivateBytes": "25000000"}
        return ClusterSample(at, {ADDRESS: broker(at, 0, more=told)})

    (row,) = facts(history(look(1, 500), look(3, 2000)), Subject.BROKERS)
    assert (row["cores"], row["privateBytes"]) == (0.75, 25_000_000)
    (of_java,) = facts(
        history(*(ClusterSample(t, {ADDRESS: broker(t, 0)}) for t in (1, 3))), Subject.BROKERS
    )
    assert (of_java["cores"], of_java["privateBytes"]) == (None, None)


def test_nothing_is_known_after_one_look_nor_after_a_restart() -> None:
    first, restarted = (
        ClusterSample(1, {ADDRESS: broker(1, 50)}),
        ClusterSample(2, {ADDRESS: broker(2, 3)}),
    )
    assert facts(history(first), Subject.BROKERS)[0]["inTps"] is None
    assert facts(history(first, restarted), Subject.BROKERS)[0]["inTps"] is None


def test_a_replica_counts_what_it_is_sent_but_not_in_the_sum() -> None:
    def look(seconds: float, puts: int) -> ClusterSample:
        replica = broker(seconds, puts)
        replica.broker_id, replica.address = 1, OTHER
        return ClusterSample(seconds, {ADDRESS: broker(seconds, puts), OTHER: replica})

    result = history(look(1, 0), look(2, 100)).result(Subject.BROKERS)
    assert result.totals["inTps"] == 100.0


def test_what_java_says_of_its_puts_is_shown() -> None:
    told = {
        "putLatency99": "12.50",
        "putMessageDistributeTime": "[<=0ms]:7 [0~10ms]:2 [10s~]:1 ",
        "commitLogDiskRatio": "0.31",
        "consumeQueueDiskRatio": "NaN",
    }
    looks = history(ClusterSample(1, {ADDRESS: broker(1, 0, more=told)}))
    (row,) = looks.result(Subject.BROKERS).data
    assert (row["putLatency99"], row["diskRatio"]) == (12.5, 0.31)
    assert row["putDistribution"] == {"<=0ms": 7, "0~10ms": 2, "10s~": 1}


def group(seconds: float, end: int, place: int) -> GroupSample:
    key = ("T", 0)
    return GroupSample(
        {"a": Counters(seconds, {key: end})}, {"a": Counters(seconds, {key: place})}, members=1
    )


@pytest.mark.parametrize(
    ("place", "direction", "growth"), [(10, "growing", 9.0), (100, "steady", 0.0)]
)
def test_a_lag_has_a_direction(place: int, direction: str, growth: float) -> None:
    first = ClusterSample(1, {}, groups={"G": group(1, 10, 0)})
    second = ClusterSample(11, {}, groups={"G": group(11, 110, place)})
    (row,) = facts(history(first, second), Subject.GROUPS)
    assert (row["lag"], row["direction"]) == (110 - place, direction)
    assert (row["inTps"], row["lagPerSecond"]) == (10.0, growth)


def test_consuming_is_measured_over_ten_seconds() -> None:
    """Consumers report every five seconds: a rate between two samples would be zero or too high."""
    places = (0, 0, 0, 50, 50, 50, 100, 100)
    looks = [
        ClusterSample(2.0 * n, {}, groups={"G": group(2.0 * n, 100, place)})
        for n, place in enumerate(places)
    ]
    (row,) = facts(history(*looks), Subject.GROUPS)
    assert row["outTps"] == 10.0  # from 4 s to 14 s


def test_the_queues_of_a_broker_that_is_gone_do_not_count() -> None:
    both = TopicSample({"a": Counters(1, {0: 10}), "b": Counters(1, {0: 1000})}, 1010)
    one = TopicSample({"a": Counters(2, {0: 15, 1: 99})}, 15)
    found = history(
        ClusterSample(1, {}, topics={"T": both}), ClusterSample(2, {}, topics={"T": one})
    )
    (row,) = facts(found, Subject.TOPICS)
    assert row["inTps"] == 5.0


def test_topics_and_groups_of_a_running_cluster(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "TopTopic")
    put(standalone, [Message("TopTopic", b"body") for _ in range(7)])
    address = standalone.broker.address
    with BlockingSession(standalone.name_server_address) as session:
        cluster("updateSubGroup", "-b", address, "-g", "TopGroup")
        run(Admin(session).update_consumer_offset(address, "TopGroup", "TopTopic", 0, 1))
    with connected(standalone, group="TopGroup", topic="TopTopic"):
        groups = cluster("top", *QUICK, "--show", "groups", "-o", "json")
        brokers = cluster("top", *QUICK, "-o", "json")
    topics = cluster("top", *QUICK, "--show", "topics", "--filter", "toptop", "-o", "json")
    assert (groups.status, brokers.status, topics.status) == (0, 0, 0)
    group = named(groups, "group", "TopGroup")
    assert (group["lag"], group["members"], group["direction"]) == (6, 1, "steady")
    (topic,) = topics.json["data"]
    assert (topic["topic"], topic["stored"], topic["groups"], topic["lag"]) == ("TopTopic", 7, 1, 6)
    one = named(brokers, "brokerAddr", address)
    assert one["state"] == "up"
    assert isinstance(one["consumers"], int) and one["consumers"] >= 1


def test_json_is_a_document_a_line_and_csv_has_one_head(cluster: Mq) -> None:
    found = cluster("top", "--interval", "0.2", "--count", "3", "-o", "json")
    assert len([json.loads(line) for line in found.out.splitlines()]) == 3
    found = cluster("top", "--interval", "0.2", "--count", "2", "-o", "csv", "--columns", "state")
    assert found.out.splitlines() == ["state", "up", "up"]


def test_a_broker_that_does_not_answer_stays_in_the_view(
    cluster: Mq, standalone: Standalone
) -> None:
    with dead_broker(standalone.name_server_address, name="broker-top"):
        found = cluster("top", *QUICK, "-o", "json")
    assert found.status == 1
    assert found.err == "mq top: broker-top (127.0.0.1:1): unreachable\n"
    assert named(found, "brokerName", "broker-top")["state"] == "unreachable"
    assert named(found, "brokerName", "broker-a")["state"] == "up"


def test_bad_options_say_what_is_wrong(cluster: Mq) -> None:
    for words in (
        ("--interval", "0"),
        ("--interval", "nan"),
        ("--count", "0"),
        ("--show", "everything"),
        ("--sort", "nothing"),
        ("--show", "topics", "--columns", "brokerName"),
    ):
        found = cluster("top", *words)
        assert (found.status, found.out) == (64, ""), words
        assert found.err.startswith("mq top: "), words


@contextmanager
def slow_once(target: str, *, seconds: float) -> Iterator[str]:
    """A port that forwards to `target`, after a delay of this many seconds."""
    host, _, port = target.rpartition(":")
    with socket.create_server(("127.0.0.1", 0)) as server, selectors.DefaultSelector() as selector:
        server.settimeout(60)  # a missing command must not block the writer

        def relay() -> None:
            time.sleep(seconds)
            (link, _) = server.accept()
            with link, socket.create_connection((host, int(port))) as there:
                selector.register(link, selectors.EVENT_READ, there)
                selector.register(there, selectors.EVENT_READ, link)
                while True:
                    for key, _ in selector.select():
                        source = link if key.data is there else there
                        if not (data := source.recv(65_536)):
                            return
                        key.data.sendall(data)

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(relay)
            yield f"127.0.0.1:{server.getsockname()[1]}"
            done.result(30)


def test_a_name_server_that_is_slow_to_answer_first_is_waited_for(
    cluster: Mq, standalone: Standalone
) -> None:
    with slow_once(standalone.name_server_address, seconds=1.5) as slow:
        found = cluster("top", *QUICK, "-n", slow, "-o", "json")
    assert (found.status, found.err) == (0, "")
    assert named(found, "brokerName", "broker-a")["state"] == "up"


def test_without_a_name_server_it_ends(mq: Mq) -> None:
    found = mq("top", "-n", "127.0.0.1:1", terminal=True)
    assert found.status == 69
    assert "127.0.0.1:1" in found.err
    assert "\x1b" not in found.out  # the screen was never taken


@contextmanager
def second_broker(name_server: str, folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """A broker in a process of its own, to be killed."""
    settings = os.path.join(folder, "broker.conf")
    with open(settings, "w") as file:
        file.write(f"brokerName=broker-z\nlistenPort=0\nstorePathRootDir={folder}/store\n")
    command = [sys.executable, "-m", "mq", "broker", "-n", name_server, "-c", settings]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with BlockingSession(name_server) as session:
                while "broker-z" not in run(Admin(session).cluster_info()).broker_addr_table:
                    assert process.poll() is None
            yield process
        finally:
            process.kill()


def read_until(terminal: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        shown += os.read(terminal, 4096)
    return shown


def test_keys_choose_what_is_shown_and_a_dying_broker_is_seen(tmp_path: object) -> None:
    with (
        running_pair() as pair,
        second_broker(pair.name_server_address, str(tmp_path)) as victim,
    ):
        make_topic(pair, "SeenTopic")

        def act(process: subprocess.Popen[bytes], terminal: int) -> None:
            victim.kill()
            read_until(terminal, b"unreachable")
            os.write(terminal, b"t")
            read_until(terminal, b"SeenTopic")
            os.write(terminal, b"/nope\r")
            read_until(terminal, b"with 'nope'")
            os.write(terminal, b"s ")
            read_until(terminal, b"paused")
            os.write(terminal, b"\x1b")
            read_until(terminal, b"SeenTopic")
            os.write(terminal, b"q")

        variables = {"NAMESRV_ADDR": pair.name_server_address}
        status, shown = at_terminal(["top", "--interval", "0.2"], variables, b"broker-z", act)
    assert status == 1  # a broker does not answer
    assert shown.count(LEAVE) == 1


@pytest.mark.parametrize("keys", [b"\rq", b"\r\x1bq", b"\r\x1b[A", b"\r\x1bOP"])
def test_keys_that_come_in_one_piece_all_count(keys: bytes, cluster: Mq) -> None:
    def act(process: subprocess.Popen[bytes], terminal: int) -> None:
        os.write(terminal, b"/x")
        read_until(terminal, b"filter: x")
        os.write(terminal, keys)
        if not keys.endswith(b"q"):  # an arrow or function key, which has no effect
            read_until(terminal, b"with 'x'")
            os.write(terminal, b"q")

    status, shown = at_terminal(["top", "--interval", "0.2"], cluster.variables, b"q quit", act)
    assert status == 0
    assert shown.count(LEAVE) == 1


@pytest.mark.parametrize("asking", [b"?", b"h"])
def test_a_page_of_keys_is_shown_until_any_key_closes_it(asking: bytes, cluster: Mq) -> None:
    def act(process: subprocess.Popen[bytes], terminal: int) -> None:
        for closing in (b"x", b"q", b"\x1b", b"\x1b[A", b"?", b" "):
            os.write(terminal, asking)
            page = read_until(terminal, b"Any key closes this page.")
            assert b"broker-a" not in page.partition(b"Keys of mq top")[2], closing
            os.write(terminal, closing)
            # It does nothing else: the view continues, neither paused nor with another page.
            assert b"paused" not in read_until(terminal, b"q quit"), closing
        os.write(terminal, b"q")

    status, shown = at_terminal(["top", "--interval", "0.2"], cluster.variables, b"q quit", act)
    assert status == 0
    assert shown.count(LEAVE) == 1


@pytest.mark.parametrize("lines", [1, 2, 3, 4, 5])
def test_a_terminal_of_a_few_lines_shows_what_fits(lines: int, cluster: Mq) -> None:
    seen: list[bytes] = []

    def act(process: subprocess.Popen[bytes], terminal: int) -> None:
        for _ in range(2):  # it draws again after the next sample
            seen.append(read_until(terminal, b"\x1b[H"))
        os.write(terminal, b"q")

    status, shown = at_terminal(
        ["top", "--interval", "0.2"], cluster.variables, b"q quit", act, lines=lines
    )
    assert (status, len(seen)) == (0, 2), shown


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_the_terminal_is_as_it_was_however_it_ends(
    number: int, status: int, cluster: Mq, standalone: Standalone
) -> None:
    import termios

    before: list[object] = []
    during: list[object] = []
    after: list[object] = []

    def act(process: subprocess.Popen[bytes], terminal: int) -> None:
        during.append(termios.tcgetattr(terminal)[3])
        before.append(during[0] | termios.ICANON | termios.ECHO)  # type: ignore[operator]
        process.send_signal(number)
        read_until(terminal, LEAVE)
        process.wait(30)
        after.append(termios.tcgetattr(terminal)[3])

    ended, shown = at_terminal(["top"], cluster.variables, b"broker-a", act)
    assert ended == status
    assert during != before  # keys came one by one
    assert after == before
    assert shown.count(ENTER) == 1


@contextmanager
def shell_at_terminal(
    shell: str, script: str, variables: Mapping[str, str]
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A shell that runs a script at a terminal of its own, and the master end of the terminal."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        [shell, "-c", script],
        env={**os.environ, "TERM": "xterm", **variables},
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    ) as process:
        os.close(its)
        try:
            yield process, ours
        finally:
            process.kill()


def test_it_ends_when_its_terminal_goes_and_nothing_tells_it(cluster: Mq) -> None:
    # As under nohup: SIGHUP is ignored. Nothing is drawn without input for a minute.
    command = [sys.executable, "-m", "mq", "top", "--interval", "60"]
    ignoring = f"trap '' HUP; exec {shlex.join(command)}"
    with shell_at_terminal("sh", ignoring, cluster.variables) as (shell, ours):
        read_until(ours, b"broker-a")
        os.close(ours)
        assert shell.wait(30) == 74


def test_in_the_background_it_stops_before_it_touches_the_screen(cluster: Mq) -> None:
    command = shlex.join([sys.executable, "-m", "mq", "top"])
    # In a group of its own, as a shell starts what stands before &.
    script = f"set -m; {command} & wait $!; echo stopped with $?; kill -9 $!"
    with shell_at_terminal("bash", script, cluster.variables) as (_, ours):
        shown = read_until(ours, b"stopped with 1")  # 128 and the number of SIGTTOU
        assert ENTER not in shown
        os.close(ours)
