"""`mq cluster init`: files of a cluster that run unchanged."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store_config import BrokerRole
from mq.daemons.config import read_file
from mq.daemons.controller.config import ControllerSettings
from mq.daemons.namesrv.config import NamesrvSettings
from tests.cli.support import Mq
from tests.daemons.controller.etcd_server import EtcdServer
from tests.interop.ports import free_port


@pytest.fixture
def mq(tmp_path: Path) -> Mq:
    return Mq(tmp_path / "config")


def test_two_masters_with_a_slave_each_are_five_files(mq: Mq, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "try"
    words = ("--masters", "2", "--slaves", "2", "--sync", "-o", "json")
    done = mq("cluster", "init", str(folder), *words)
    assert done.status == 0
    names = [Path(row["path"]).name for row in done.json["data"]]
    assert names == [
        *("namesrv.conf", "broker-a.conf", "broker-b.conf", "broker-a-s.conf", "broker-b-s.conf")
    ]
    NamesrvSettings.load(folder / "namesrv.conf")
    brokers = [BrokerSettings.load(folder / name) for name in names[1:]]
    told = [
        (one.broker.broker_name, one.broker.broker_id, one.store.broker_role) for one in brokers
    ]
    assert told == [
        ("broker-a", 0, BrokerRole.SYNC_MASTER),
        ("broker-b", 0, BrokerRole.SYNC_MASTER),
        ("broker-a", 1, BrokerRole.SLAVE),
        ("broker-b", 1, BrokerRole.SLAVE),
    ]
    assert len({one.server.listen_port for one in brokers}) == 4
    assert len({one.store.store_path_root_dir for one in brokers}) == 4
    again = mq("cluster", "init", str(folder / "again"))
    assert f"mq standalone --cluster {folder}/again" in again.out


def test_a_slave_is_on_another_machine_than_its_master(mq: Mq, tmp_path: Path) -> None:
    words = ("--masters", "2", "--slaves", "4", "--hosts", "h1, h2,h3")
    done = mq("cluster", "init", str(tmp_path / "c"), *words)
    settings = {path.stem: read_file(path) for path in (tmp_path / "c").glob("broker-*.conf")}
    hosts = {name: found["brokerIP1"] for name, found in settings.items()}
    assert hosts == {
        **{"broker-a": "h1", "broker-b": "h2", "broker-a-s": "h2", "broker-b-s": "h3"},
        **{"broker-a-s2": "h3", "broker-b-s2": "h1"},
    }
    assert settings["broker-a"]["namesrvAddr"] == "h1:9876;h2:9876"
    assert settings["broker-b"]["listenPort"] == "10911"
    assert settings["broker-a-s"]["listenPort"] == "10921"  # beside broker-b
    assert (
        "ssh h1 systemctl enable --now mq-namesrv mq-broker@broker-a mq-broker@broker-b-s2"
        in done.out
    )


def test_controllers_are_beside_etcd_and_say_who_is_master(mq: Mq, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    words = ("--masters", "1", "--slaves", "2", "--sync", "--controller", "--hosts", "h1,h2,h3,h4")
    done = mq("cluster", "init", str(folder), *words)
    assert done.status == 0, done.err
    controllers = [ControllerSettings.load(path) for path in sorted(folder.glob("controller-*"))]
    assert [one.controller.controller_address for one in controllers] == [
        *("h1:9878", "h2:9878", "h3:9878")
    ]
    for one in controllers:
        assert one.etcd.endpoints == ["http://h1:2379", "http://h2:2379", "http://h3:2379"]
    brokers = [read_file(path) for path in folder.glob("broker-*.conf")]
    assert len(brokers) == 3
    for settings in brokers:
        assert settings["enableControllerMode"] == settings["allAckInSyncStateSet"] == "true"
        assert settings["controllerAddr"] == "h1:9878;h2:9878;h3:9878"
        assert not {"brokerRole", "brokerId"} & settings.keys()
    assert f"scp {folder}/controller-h3.conf h3:/etc/mq/controller.conf" in done.out
    assert "ssh h3 systemctl enable --now mq-controller mq-broker@broker-a-s2" in done.out


def test_what_is_there_is_not_written_over(mq: Mq, tmp_path: Path) -> None:
    assert mq("cluster", "init", str(tmp_path)).status == 0
    before = (tmp_path / "broker-b.conf").read_bytes()
    again = mq("cluster", "init", str(tmp_path), "--masters", "3")
    assert (again.status, (tmp_path / "broker-b.conf").read_bytes()) == (73, before)
    assert not (tmp_path / "broker-c.conf").exists()
    shown = mq("cluster", "init", str(tmp_path / "other"), "--dry-run")
    assert shown.status == 0
    assert not (tmp_path / "other").exists()


def test_hosts_with_addresses_of_ipv6_listen_there_and_are_told_in_brackets(
    mq: Mq, tmp_path: Path
) -> None:
    words = ("--masters", "1", "--slaves", "1", "--controller", "--hosts", "[2001:db8::1],fd00::2")
    done = mq("cluster", "init", str(tmp_path / "c"), *words)
    assert done.status == 0, done.err
    files = {path.stem: read_file(path) for path in (tmp_path / "c").glob("*.conf")}
    broker = files["broker-a"]
    assert (broker["brokerIP1"], broker["bindAddress"]) == ("2001:db8::1", "::")
    assert broker["namesrvAddr"] == "[2001:db8::1]:9876;[fd00::2]:9876"
    assert files["namesrv"]["bindAddress"] == "::"
    controller = files["controller-fd00::2"]
    assert controller["bindAddress"] == "::"
    assert controller["controllerAddress"] == "[fd00::2]:9878"
    assert controller["etcdEndpoints"] == "http://[2001:db8::1]:2379;http://[fd00::2]:2379"
    assert "[fd00::2]:/etc/mq/" in done.out and "ssh fd00::2 systemctl" in done.out
    assert "mq clusterList -n [2001:db8::1]:9876" in done.out


@pytest.mark.parametrize("hosts", ["h1,h2", "h1,h2,h3"])
def test_no_slave_of_many_is_on_the_machine_of_its_master(
    mq: Mq, tmp_path: Path, hosts: str
) -> None:
    words = ("--masters", "2", "--slaves", "10", "--hosts", hosts)
    assert mq("cluster", "init", str(tmp_path / "c"), *words).status == 0
    found = [read_file(path) for path in (tmp_path / "c").glob("broker-*.conf")]
    masters = {one["brokerName"]: one["brokerIP1"] for one in found if one["brokerId"] == "0"}
    slaves = [(one["brokerName"], one["brokerIP1"]) for one in found if one["brokerId"] != "0"]
    assert len(slaves) == 10
    assert not [name for name, host in slaves if masters[name] == host]
    assert len({(one["brokerIP1"], one["listenPort"]) for one in found}) == 12


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--masters", "0"), "--masters 0: expected 1 to 26"),
        (("--slaves", "-1"), "--slaves -1: expected 0 to 18"),
        (("--sync",), "--sync with 0 slaves: each of 2 masters needs one"),
        (("--hosts", "a,b,a"), "--hosts a,b,a: contains the same machine twice"),
        (("--controller", "--slaves", "1"), "--controller with 1 slaves: each of 2 masters needs"),
        (
            ("--hosts", "a", "--slaves", "1"),
            "--hosts a: a slave must be on another machine than its",
        ),
        (("--hosts", "a,,b"), "--hosts a,,b: expected names or addresses, separated by commas"),
        (("--hosts", "a b"), "--hosts a b: expected names or addresses"),
        (("--hosts", "10.0.0.1:9876"), "separated by commas, without ports"),
        (("--hosts", "[::1,a"), "--hosts [::1,a: expected names or addresses"),
    ],
)
def test_what_cannot_be_is_a_usage_error(
    mq: Mq, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    done = mq("cluster", "init", str(tmp_path / "c"), *words)
    assert (done.status, (tmp_path / "c").exists()) == (64, False)
    assert text in done.err


@contextmanager
def running(folder: Path, name_server_port: int, replaced: Mapping[str, str]) -> Iterator[str]:
    """Return the written files with free ports, and the line with the number of ready daemons."""
    ports = {"9876": str(name_server_port), **replaced}
    for path in folder.glob("*.conf"):
        text = path.read_text()
        for old, new in ports.items():
            text = text.replace(old, new)
        path.write_text(text)
    command = [sys.executable, "-m", "mq", "standalone", "--cluster", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        reading: threading.Thread | None = None
        try:
            assert process.stdout is not None
            served = next((line for line in process.stdout if " daemons serve" in line), "")
            reading = threading.Thread(target=deque, args=[process.stdout, 0])  # it writes on
            reading.start()
            yield served
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            if reading is not None:
                reading.join()


def test_what_was_written_runs(mq: Mq, tmp_path: Path) -> None:
    folder, port = tmp_path / "try", free_port()
    assert mq("cluster", "init", str(folder)).status == 0
    with running(folder, port, {"10911": "0", "10921": "0"}) as served:
        assert "3 of 3 daemons serve" in served
        listed = mq("clusterList", "-n", f"127.0.0.1:{port}", "-o", "json").json["data"]
        assert [row["brokerName"] for row in listed] == ["broker-a", "broker-b"]


def test_what_was_written_with_controllers_runs_and_elects(mq: Mq, tmp_path: Path) -> None:
    folder, port, controller = tmp_path / "try", free_port(), free_port()
    words = ("--masters", "1", "--slaves", "1", "--sync", "--controller")
    assert mq("cluster", "init", str(folder), *words).status == 0
    with EtcdServer(tmp_path) as etcd:
        ports = {"http://127.0.0.1:2379": etcd.url, "9878": str(controller)}
        ports |= {"10911": str(free_port()), "10921": str(free_port())}
        with running(folder, port, ports) as served:
            assert "4 of 4 daemons serve" in served
            where = ("-a", f"127.0.0.1:{controller}", "-b", "broker-a", "-o", "json")
            deadline = time.monotonic() + 30
            while True:
                asked = mq("getSyncStateSet", *where)
                if asked.status == 0:
                    shown = asked.json["data"]["broker-a"]
                    if len(shown["inSyncReplicas"]) == 2:
                        break
                assert time.monotonic() < deadline, asked.err
            assert shown["masterEpoch"] == 1
