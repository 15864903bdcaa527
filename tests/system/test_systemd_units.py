"""The units in systemd/: accepted by systemd, sandboxed, with existing commands."""

import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mq.client.operations import local_files
from tests.cli.pairs import running_pair
from tests.cli.support import Mq

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "systemd").glob("*.service"))
DAEMONS = [unit for unit in UNITS if "\nType=notify\n" in unit.read_text()]
EXPORT = ROOT / "systemd" / "mq-offset-export@.service"
SPARK = ROOT / "systemd" / "mq-spark@.service"
MOST_EXPOSURE = 1.5  # of 10; the rest is the network, which a broker needs
MQ = "/opt/mq/bin/mq"


def analyze(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt install systemd")
    command = ["systemd-analyze", "--no-pager", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with an existing command in place of mq, which is not in /opt in tests."""
    for unit in [*UNITS, *(ROOT / "systemd").glob("*.timer")]:
        text = unit.read_text().replace(MQ, sys.executable)
        (tmp_path / unit.name).write_text(text)
    return tmp_path


def test_there_is_a_unit_for_each_daemon() -> None:
    assert [unit.name for unit in DAEMONS] == [
        "mq-broker@.service",
        "mq-console.service",
        "mq-controller.service",
        "mq-filtersrv@.service",
        "mq-namesrv.service",
        "mq-snode.service",
        "mq-tube-broker.service",
        "mq-tube-master.service",
    ]
    assert {*UNITS} == {*DAEMONS, EXPORT, SPARK}


@pytest.mark.parametrize(
    "name",
    [
        "mq-namesrv.service",
        "mq-console.service",
        "mq-controller.service",
        "mq-snode.service",
        "mq-tube-broker.service",
        "mq-tube-master.service",
        "mq-broker@a.service",
        "mq-filtersrv@a.service",
        "mq-offset-export@a.service",
        "mq-offset-export@a.timer",
        "mq-spark@archive.service",
        "mq-spark@archive.timer",
    ],
)
def test_systemd_understands_every_line(units: Path, name: str) -> None:
    checked = analyze("verify", f"./{name}", folder=units)
    about_us = [line for line in checked.stderr.splitlines() if "mq-" in line]
    assert checked.returncode == 0, checked.stderr
    assert about_us == []


@pytest.mark.parametrize("name", [unit.name for unit in UNITS])
def test_a_daemon_is_restricted_to_its_work(units: Path, name: str) -> None:
    checked = analyze("security", "--offline=true", f"./{name}", folder=units)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", checked.stdout)
    assert found is not None, checked.stdout + checked.stderr
    assert float(found[1]) <= MOST_EXPOSURE, checked.stdout


@pytest.mark.parametrize("unit", DAEMONS, ids=[unit.name for unit in DAEMONS])
def test_the_command_of_a_unit_exists(unit: Path, tmp_path: Path) -> None:
    pattern = rf"^ExecStart={MQ} (\w+(?: \w+)?) (-[cf]) (\S+)$"
    found = re.search(pattern, unit.read_text(), re.MULTILINE)
    assert found is not None
    words = found[1].split()
    port = "listenPort" if found[2] == "-c" else "port"
    config = tmp_path / "daemon.conf"
    config.write_text(f"{port}=0\n" if found[2] == "-c" else f"[{words[1]}]\n{port}=0\n")
    command = [sys.executable, "-m", "mq", *words, found[2], str(config), "-p"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert printed.returncode == 0, printed.stderr
    assert f"{port}=0\n" in printed.stdout


def test_the_command_of_the_export_writes_offsets_and_nothing_else(tmp_path: Path) -> None:
    found = re.search(rf"^ExecStart={MQ} (.+)$", EXPORT.read_text(), re.MULTILINE)
    assert found is not None
    line = found[1].replace("%S/mq/offsets-%i", str(tmp_path)).replace("$EXPORT_OPTIONS", "")
    with running_pair() as pair:
        command = [sys.executable, "-m", "mq", *shlex.split(line)]
        environment = {"NAMESRV_ADDR": pair.name_server_address, "HOME": str(tmp_path)}
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environment, cwd=ROOT
        )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert (tmp_path / "offsets.jsonl").exists()


def test_only_an_export_excluded_by_another_one_counts_as_done(tmp_path: Path) -> None:
    """Neither one that timed out, nor one with only a part: a failed backup is reported."""
    unit = EXPORT.read_text()
    (done,) = re.findall(r"^SuccessExitStatus=(.+)$", unit, re.MULTILINE)
    mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": "127.0.0.1:1"})
    with local_files.locked(tmp_path / "offsets.jsonl"):
        assert mq("offset", "export", str(tmp_path / "offsets.jsonl")).status == int(done)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        command = ("offset", "export", str(tmp_path / "offsets.jsonl"), "-n", where)
        assert mq(*command, "--timeout", "0.2").status not in (0, int(done))


def test_a_broker_may_write_the_accounts_that_updateaclconfig_changes() -> None:
    """Below /etc/mq, which is otherwise read-only to it: the settings stay root's."""
    unit = (ROOT / "systemd" / "mq-broker@.service").read_text()
    assert "\nProtectSystem=strict\n" in unit
    assert re.findall(r"^ReadWritePaths=(.+)$", unit, re.MULTILINE) == ["-/etc/mq/conf"]
    folders = {
        line.split()[1]: line.split()[2:5]
        for line in (ROOT / "systemd" / "mq.tmpfiles").read_text().splitlines()
        if line.startswith("d ")
    }
    assert folders["/etc/mq"] == ["0750", "root", "mq"]
    assert folders["/etc/mq/conf"] == ["0770", "root", "mq"]


def test_the_command_of_the_spark_unit_takes_a_job_and_its_options() -> None:
    found = re.search(rf"^ExecStart={MQ} (.+)$", SPARK.read_text(), re.MULTILINE)
    assert found is not None
    line = found[1].replace("%i", "count").replace("$JOB_OPTIONS", "--topic Orders --print")
    command = [sys.executable, "-m", "mq", *shlex.split(line)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "spark-submit --master" in ended.stdout


def test_user_and_folders_are_those_of_the_units(tmp_path: Path) -> None:
    for tool, name in (("systemd-sysusers", "mq.sysusers"), ("systemd-tmpfiles", "mq.tmpfiles")):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: apt install systemd")
        text = (ROOT / "systemd" / name).read_text()
        target = tmp_path / f"{name}.conf"
        target.write_text(text)
    dry = [
        "systemd-sysusers",
        "--dry-run",
        f"--root={tmp_path}",
        str(tmp_path / "mq.sysusers.conf"),
    ]
    made = subprocess.run(dry, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    assert "user 'mq'" in made.stdout + made.stderr
    for unit in UNITS:
        user = "mq-filter" if "filtersrv" in unit.name else "mq"  # which runs foreign classes
        assert f"\nUser={user}\n" in unit.read_text()
        assert f"\nu {user} " in (ROOT / "systemd" / "mq.sysusers").read_text()
    assert "d /etc/mq " in (ROOT / "systemd" / "mq.tmpfiles").read_text()


@pytest.mark.parametrize("name", ["mq-broker@.service", "mq-filtersrv@.service"])
def test_the_restrictions_of_a_unit_do_not_break_sandboxes(name: str) -> None:
    """The unit's system calls that a sandbox requests, refused as the unit refuses them."""
    text = (ROOT / "systemd" / name).read_text()
    assert "\nSystemCallFilter=seccomp\n" in text  # it is in no set of systemd
    assert "\nSystemCallFilter=~@privileged @resources\n" in text
    program = (
        "import asyncio, errno, pyseccomp\n"
        "calls = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)\n"
        "for name in ('setrlimit', 'unshare', 'chroot', 'setgroups', 'setresuid', 'setresgid'):\n"
        "    calls.add_rule(pyseccomp.ERRNO(errno.EPERM), name)\n"
        "calls.load()\n"
        "from mq.daemons.filtersrv.sandbox.process import Limits, Sandbox\n"
        "async def main():\n"
        "    sandbox = Sandbox(Limits(1 << 28, 30.0, 30.0, 0.0), 'x')\n"
        "    await sandbox.start()\n"
        "    await sandbox.close()\n"
        "    print('confined')\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout == "confined\n", ended.stderr
