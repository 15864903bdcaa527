"""The pytest plugin, as used by a project that has mq installed."""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from mq.client.transport.blocking import BlockingSession
from mq.daemons.config import ConfigError
from mq.testing import RunningBroker, free_ports
from tests.processes import running

TESTS = """
import asyncio

import pytest

from mq.client import Consumer


def test_a_message_comes_through(mq_broker):
    mq_broker.send("Orders", b"one", tags="new", keys=("7",), properties={"color": "red"})
    [message] = mq_broker.wait_for_messages("Orders", 1)
    assert (message.body, message.tags, message.keys) == (b"one", "new", ("7",))
    assert message.properties["color"] == "red"


def test_each_test_has_an_empty_store(mq_broker):
    assert mq_broker.messages("Orders") == []


def test_a_broker_for_the_run_keeps_topics_apart(mq_session_broker, mq_topic):
    mq_session_broker.send(mq_topic, b"one")
    assert [message.body for message in mq_session_broker.messages(mq_topic)] == [b"one"]


def test_again_on_the_same_broker(mq_session_broker, mq_topic):
    assert mq_session_broker.messages(mq_topic) == []


def test_what_a_group_has_consumed_can_be_waited_for(mq_broker):
    mq_broker.create_topic("Orders", queues=2)
    for number in range(20):
        mq_broker.send("Orders", b"%d" % number)
    assert mq_broker.lag("readers", "Orders") == 20

    async def consume():
        done = asyncio.Event()
        left = 20

        async def listen(message):
            nonlocal left
            left -= 1
            if not left:
                done.set()

        async with Consumer(mq_broker.name_server, "readers", {"Orders": "*"}, listener=listen):
            await asyncio.wait_for(done.wait(), 30)

    asyncio.run(consume())
    mq_broker.wait_until_consumed("readers", "Orders")
    with pytest.raises(TimeoutError, match="topic Orders has 20 messages after 0 s, not 21"):
        mq_broker.wait_for_messages("Orders", 21, timeout=0)


def test_messages_outlive_a_restart(mq_broker):
    mq_broker.send("Orders", b"one")
    address = mq_broker.name_server, mq_broker.address
    mq_broker.restart()
    assert (mq_broker.name_server, mq_broker.address) == address
    mq_broker.send("Orders", b"two")
    assert [message.body for message in mq_broker.messages("Orders")] == [b"one", b"two"]


def test_settings_of_the_ini_file_are_the_brokers(mq_broker):
    mq_broker.send("Orders", b"one")
    assert {message.queue_id for message in mq_broker.messages("Orders")} == {0}
    assert len(mq_broker.messages("Orders")) == 1
"""


def pytest_in(folder: Path, settings: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_orders.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{settings}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    # Its own folders for tests: in the usual ones it would remove those of this run.
    environment = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )


def test_a_project_gets_brokers_from_fixtures(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "mq_broker_settings =\n    defaultTopicQueueNums=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


def test_an_invalid_setting_is_named(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "mq_broker_settings = fast", "-k", "comes_through")
    assert done.returncode != 0
    assert "mq_broker_settings: 'fast' is not name=value" in done.stdout + done.stderr


def test_a_broker_that_cannot_start_reports_why_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="defaultTopicQueueNums"):
        RunningBroker(tmp_path, {"defaultTopicQueueNums": "many"}).start()
    with RunningBroker(tmp_path) as broker, BlockingSession(broker.name_server) as session:
        assert broker.name_server in session.name_servers


def test_a_restart_needs_no_ephemeral_port(tmp_path: Path) -> None:
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with RunningBroker(tmp_path) as broker:
        addresses = (broker.name_server, broker.address)
        assert all(int(address.rpartition(":")[2]) < ephemeral for address in addresses)
        broker.restart()
        assert (broker.name_server, broker.address) == addresses


PORTS = """
import sys
from mq.testing import free_ports
print(*{port for _ in range(40) for port in free_ports()}, flush=True)
sys.stdin.read()
"""


def test_concurrent_processes_get_different_ports() -> None:
    with ExitStack() as until:
        found: list[set[str]] = []
        for _ in range(4):  # of two test runs with two workers each, for example
            command = [sys.executable, "-c", PORTS]
            process = until.enter_context(running(command, stdin=subprocess.PIPE))
            assert process.stdout is not None
            found.append(set(process.stdout.readline().split()))
    assert len(set().union(*found)) == sum(map(len, found))
    assert min(map(len, found)) > 10  # and not the same each time


def test_ports_are_not_reused_before_all_others() -> None:
    given = [free_ports() for _ in range(20)]  # for threads whose daemons do not listen yet
    assert len(set(given)) == 20


def test_a_broker_whose_port_was_taken_reports_it_once(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker:
        port = int(broker.address.rpartition(":")[2])
        broker.stop()
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(OSError, match=f"{port}: another process does already"),
        ):
            broker.start()
        broker.stop()


def test_a_broker_starts_in_a_fraction_of_a_second(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "first"):  # imports cost time once per test run
        pass
    began = time.process_time()  # CPU time, because a machine may be busy
    with RunningBroker(tmp_path / "second"):
        took = time.process_time() - began
    assert took < 1  # 0.1 s
