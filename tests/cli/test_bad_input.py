"""External failures: one clear line, the right status, no partial file."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.cli import catalog
from mq.cli.main import load
from mq.cli.runtime.effects import effect_of
from mq.cli.runtime.status import Status
from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from tests.cli.bad_input import LINES, OFFLINE, inputs_in, words_of
from tests.cli.pairs import DEAD, dead_broker, full_disk, make_topic, put, running_pair
from tests.cli.support import Finished, Mq

# Commands that a dead name server does not end: doctor reports it among its findings,
# startMonitoring waits for it, and an offset id contains the broker's address.
NOT_ENDED = {"doctor", "startMonitoring", "queryMsgById"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return inputs_in(tmp_path)


def told(finished: Finished, name: str) -> str:
    """Return the one line with the error; a hint may follow it."""
    line, *hints = finished.err.splitlines() or [""]
    assert line.startswith(f"mq {name}: "), finished.err
    assert len(hints) <= 1 and all(hint.startswith("hint: ") for hint in hints), finished.err
    assert "bug in mq" not in line
    return line


def test_there_is_a_line_for_every_command() -> None:
    commands = {
        name
        for group, names in catalog.GROUPS.items()
        for name in names
        if load(group, name).needs_call
    }
    assert commands == LINES.keys() | OFFLINE


@pytest.mark.parametrize("name", [name for name in LINES if name not in NOT_ENDED])
def test_a_dead_name_server_is_named(name: str, mq: Mq, folder: Path) -> None:
    before = sorted(folder.iterdir())
    finished = mq(*words_of(name, folder), "-n", DEAD)
    assert DEAD in told(finished, name)
    assert finished.status == Status.UNAVAILABLE
    assert finished.out == ""
    assert [path for path in sorted(folder.iterdir()) if path.is_file()] == before


@pytest.mark.parametrize("name", [name for name, line in LINES.items() if "BROKER" in line])
def test_an_unknown_broker_is_named(
    name: str, cluster: Mq, standalone: Standalone, folder: Path
) -> None:
    make_topic(standalone, "BadTopic")
    finished = cluster(*words_of(name, folder))
    assert DEAD in told(finished, name)
    assert finished.status in (Status.UNAVAILABLE, Status.NOT_FOUND)


@pytest.mark.parametrize("name", LINES)
def test_what_is_no_option_of_a_command_is_refused(name: str, mq: Mq, folder: Path) -> None:
    group, command = catalog.BY_NAME[catalog.key_of(name)]
    extras = [["--no-such-option"], ["--timeout", "soon"], ["-n", "x"]]
    if effect_of(load(group, command).function).writes:  # others ignore surplus words, as Java does
        extras.append(["surplus"] * 6)
    for extra in extras:
        finished = mq(*words_of(name, folder), *extra)
        told(finished, name)
        assert (finished.status, finished.out) == (Status.USAGE, "")


@pytest.fixture(scope="module")
def half_dead(standalone: Standalone) -> Iterator[Standalone]:
    """A cluster of two brokers, one of them dead."""
    make_topic(standalone, "HalfTopic")
    with dead_broker(standalone.name_server_address, "HalfTopic", name="broker-half"):
        yield standalone


@pytest.mark.parametrize(
    "line",
    [
        "brokerStatus -c DefaultCluster",
        "getBrokerConfig -c DefaultCluster",
        "updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 72",
        "updateTopic -c DefaultCluster -t HalfMade",
        "updateSubGroup -c DefaultCluster -g HalfMade",
        "deleteSubGroup -c DefaultCluster -g HalfNone",
        "cleanExpiredCQ -c DefaultCluster",
        "cleanUnusedTopic -c DefaultCluster",
        "deleteExpiredCommitLog -c DefaultCluster",
        "clusterList",
        "top --interval 0.1 --count 1",
        "exportMetadata -c DefaultCluster -t -f FOLDER/metadata",
    ],
)
def test_half_a_cluster_is_done_and_the_other_half_reported(
    line: str, half_dead: Standalone, cluster: Mq, folder: Path
) -> None:
    finished = cluster(*line.replace("FOLDER", str(folder)).split())
    assert DEAD in finished.err
    assert "Traceback" not in finished.err
    assert finished.status == Status.PARTLY


def test_where_every_broker_fails_each_is_reported(half_dead: Standalone, cluster: Mq) -> None:
    finished = cluster(*"updateBrokerConfig -c DefaultCluster -k fileReservedTime -v soon".split())
    assert finished.status == Status.UNAVAILABLE
    lines = [line for line in finished.err.splitlines() if not line.startswith("hint: ")]
    assert len(lines) == 2
    assert DEAD in finished.err and half_dead.broker.address in finished.err


KEYS = """
globalWhiteRemoteAddresses: []
accounts:
  - {accessKey: key-keeper, secretKey: keeper-secret, admin: true}
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A broker that knows one account."""
    home = tmp_path_factory.mktemp("guarded")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(KEYS)
    with running_pair({"aclEnable": "true", "rocketmqHome": str(home)}) as pair:
        yield pair


@pytest.mark.parametrize("name", [name for name, line in LINES.items() if "-b BROKER" in line])
def test_a_wrong_key_is_refused(name: str, guarded: Standalone, mq: Mq, folder: Path) -> None:
    key = folder / "key.yml"
    key.write_text("accessKey: key-keeper\nsecretKey: not-the-secret\n")
    words = words_of(name, folder, guarded.broker.address)
    finished = mq(*words, "-n", guarded.name_server_address, "--acl-file", str(key))
    assert finished.status not in (Status.DONE, Status.INTERNAL)
    assert "not-the-secret" not in finished.out + finished.err
    told(finished, name)


@pytest.mark.parametrize(
    "name", [name for name, line in LINES.items() if "-f FOLDER/" in line or " FOLDER/in" in line]
)
def test_a_file_that_is_not_there_is_named(name: str, cluster: Mq, tmp_path: Path) -> None:
    if name.startswith("export"):
        pytest.skip("writes it")
    finished = cluster(*words_of(name, tmp_path / "missing"))
    assert str(tmp_path / "missing") in told(finished, name)
    assert finished.status in (Status.NOT_FOUND, Status.IO_ERROR)


@pytest.mark.parametrize("name", ["message import", "offset import", "updateTopicList", "apply"])
def test_a_file_of_something_else_is_no_trace(name: str, cluster: Mq, folder: Path) -> None:
    for path in folder.iterdir():
        path.write_bytes(b"\x00\xff{not json\n[")
    finished = cluster(*words_of(name, folder))
    told(finished, name)
    assert finished.status in (Status.BAD_DATA, Status.USAGE, Status.CONFIG)


WRITERS = [name for name, line in LINES.items() if "FOLDER/" in line and "port" in name]


@pytest.mark.parametrize("name", [name for name in WRITERS if not name.endswith("import")])
def test_a_full_disk_leaves_no_half_of_a_file(
    name: str, standalone: Standalone, folder: Path
) -> None:
    make_topic(standalone, "BadTopic")
    put(standalone, [Message("BadTopic", b"body")])
    address = standalone.broker.address
    with BlockingSession(standalone.name_server_address) as session:
        run(Admin(session).update_consumer_offset(address, "BadGroup", "BadTopic", 0, 0))
    before = {path for path in folder.rglob("*") if path.is_file()}
    words = words_of(name, folder, address)
    finished = full_disk(standalone, 0, *words)
    if finished.status == Status.DONE:
        pytest.fail(f"{name} wrote nothing or did not notice: {finished.out}")
    assert finished.err.startswith(f"mq {name}: "), finished.err
    assert "Traceback" not in finished.err
    left = {path for path in folder.rglob("*") if path.is_file()} - before
    assert all(path.stat().st_size == 0 for path in left)


@pytest.mark.parametrize(
    "name",
    ["topicList", "clusterList", "updateTopic", "message export", "offset export", "doctor"],
)
def test_ctrl_c_while_nobody_answers(name: str, folder: Path) -> None:
    before = {path for path in folder.rglob("*") if path.is_file()}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        words = [*words_of(name, folder, address), "-n", address, "--timeout", "60"]
        with subprocess.Popen(
            [sys.executable, "-m", "mq", *words],
            env={**os.environ, "MQ_CONFIG_DIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A test run in the background ignores Ctrl-C, and its children with it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        ) as process:
            silent.settimeout(30)
            link, _ = silent.accept()
            with link:
                link.recv(65536)  # it asks, so it waits for the answer now
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=30)
    assert process.returncode == Status.INTERRUPTED
    assert (out, err) == ("", f"mq {name}: interrupted\n")
    assert {path for path in folder.rglob("*") if path.is_file()} == before
