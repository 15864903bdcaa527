"""Units are installed in systemd's directories, run this mq, and keep changes of administrators."""

import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from mq.cli.machine import installed_units
from tests.cli.support import Mq

ROOT = Path(__file__).resolve().parents[3]
OWN = str(Path(sysconfig.get_path("scripts"), "mq"))


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "mq"
    path.write_text("#!/bin/sh\n")
    return str(path)


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "prefix"


def test_every_file_goes_where_systemd_looks_for_its_kind(mq: Mq, prefix: Path) -> None:
    assert mq("systemd", "install", "--prefix", str(prefix)).status in (0, 1)
    there = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
    shipped = (ROOT / "systemd").iterdir()
    units = {path.name for path in shipped if path.suffix in (".service", ".timer")}
    assert there == {
        *(f"lib/systemd/system/{name}" for name in units),
        "lib/sysusers.d/mq.conf",
        "lib/tmpfiles.d/mq.conf",
    }
    modes = {stat.S_IMODE(path.stat().st_mode) for path in prefix.rglob("*") if path.is_file()}
    assert modes == {0o644}


def test_a_dry_run_names_the_files_to_remove_and_none_where_nothing_is_installed(
    mq: Mq, prefix: Path
) -> None:
    listing = ("systemd", "install", "--prefix", str(prefix), "--dry-run", "--no-header")
    before = mq(*listing, "--columns", "path")
    assert not [line for line in before.out.splitlines() if line.startswith("/")]
    mq("systemd", "install", "--prefix", str(prefix))
    named = mq(*listing, "--columns", "path").out.split()
    assert set(map(Path, named)) == {path for path in prefix.rglob("*") if path.is_file()}


def test_the_units_run_the_mq_that_installed_them(mq: Mq, prefix: Path) -> None:
    mq("systemd", "install", "--prefix", str(prefix))
    text = (prefix / "lib/systemd/system/mq-broker@.service").read_text()
    assert f"\nExecStart={OWN} broker -c /etc/mq/%i.conf\n" in text
    assert not [path for path in prefix.rglob("*.service") if "/opt/mq/" in path.read_text()]


def test_they_run_it_through_the_link_that_it_was_called_by(
    mq: Mq, prefix: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So that a link to the current version can be changed to the next one."""
    link = tmp_path / "current"
    link.symlink_to(Path(OWN).parent)
    monkeypatch.setattr(sys, "argv", [str(link / "mq"), "systemd", "install"])
    mq("systemd", "install", "--prefix", str(prefix))
    text = (prefix / "lib/systemd/system/mq-namesrv.service").read_text()
    assert f"\nExecStart={link}/mq namesrv " in text


def test_it_says_what_to_run_next_and_what_systemd_does_not_look_at(
    mq: Mq, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = ("systemd", "install", "--prefix", str(prefix), "--command", "/bin/sh")
    assert f"systemd does not read {prefix}: " in mq(*install).out
    monkeypatch.setattr(installed_units, "SEARCHED", (prefix,))
    told = mq(*install).out.partition("Next:\n")[2].splitlines()
    assert told[0].split(" && ") == [
        "  systemd-sysusers",
        "systemd-tmpfiles --create",
        "systemctl daemon-reload",
    ]
    assert [line.split()[1:4] for line in told[1:]] == [
        ["enable", "--now", "mq-namesrv"],
        ["enable", "--now", "mq-broker@a"],
    ]


def test_a_dry_run_writes_nothing(mq: Mq, prefix: Path) -> None:
    done = mq("systemd", "install", "--prefix", str(prefix), "--dry-run")
    assert f"write at {prefix}/lib/systemd/system/mq-namesrv.service\n" in done.out
    assert not prefix.exists()


def test_a_program_that_the_units_cannot_see_is_told(
    mq: Mq, prefix: Path, program: str, tmp_path: Path
) -> None:
    done = mq("systemd", "install", "--prefix", str(prefix), "--command", program)
    hidden = tmp_path.is_relative_to("/tmp")
    assert done.status == (1 if hidden else 0)
    assert ("PrivateTmp=yes hides it" in done.err) == hidden
    seen = mq("systemd", "install", "--prefix", str(prefix), "--command", "/bin/sh")
    assert (seen.status, seen.err) == (0, "")


def test_a_second_time_nothing_is_written(mq: Mq, prefix: Path, program: str) -> None:
    install = ("systemd", "install", "--prefix", str(prefix), "--command", program)
    mq(*install)
    again = mq(*install, "-o", "json").json
    assert {row["what"] for row in again["data"]} == {"unchanged"}
    assert again["totals"] == {"execStart": program}


def test_what_another_release_has_written_is_replaced(mq: Mq, prefix: Path, program: str) -> None:
    install = ("systemd", "install", "--prefix", str(prefix))
    mq(*install, "--command", "/bin/sh")
    again = mq(*install, "--command", program, "-o", "json").json
    what = {Path(row["path"]).name: row["what"] for row in again["data"]}
    assert (what["mq-namesrv.service"], what["mq-spark@.timer"]) == ("replaced", "unchanged")
    assert not list(prefix.rglob("*.1"))


def test_a_changed_file_is_never_overwritten_unless_that_is_asked_for(
    mq: Mq, prefix: Path, program: str
) -> None:
    install = ("systemd", "install", "--prefix", str(prefix), "--command")
    mq(*install, "/bin/sh")
    changed = prefix / "lib/systemd/system/mq-namesrv.service"
    other = prefix / "lib/systemd/system/mq-broker@.service"
    changed.write_text(changed.read_text() + "Nice=5\n")
    before = other.read_text()
    refused = mq(*install, program)
    assert refused.status == 73
    assert f"nothing was written; edited files: {changed}\n" in refused.err
    assert "hint: keep changes in drop-ins" in refused.err
    assert other.read_text() == before and changed.read_text().endswith("Nice=5\n")
    assert mq(*install, program, "--dry-run").status == 73
    forced = mq(*install, program, "--force", "-o", "json").json
    what = {Path(row["path"]).name: row["what"] for row in forced["data"]}
    assert what["mq-namesrv.service"] == "replaced, the old one is kept as .1"
    assert changed.with_name("mq-namesrv.service.1").read_text().endswith("Nice=5\n")
    assert "Nice=5" not in changed.read_text()


def test_what_a_unit_cannot_name_is_refused(mq: Mq, prefix: Path, tmp_path: Path) -> None:
    blank = tmp_path / "a folder"
    blank.mkdir()
    (blank / "mq").write_text("")
    install = ("systemd", "install", "--prefix", str(prefix))
    assert mq(*install, "--command", str(blank / "mq")).status == 64
    assert mq(*install, "--command", str(tmp_path / "none")).status == 64
    assert mq("systemd", "install", "--prefix", "relative").status == 64
    assert not prefix.exists()


def test_a_percent_sign_is_itself_in_a_unit(mq: Mq, prefix: Path, tmp_path: Path) -> None:
    odd = tmp_path / "100%h"
    odd.mkdir()
    (odd / "mq").write_text("")
    mq("systemd", "install", "--prefix", str(prefix), "--command", str(odd / "mq"))
    text = (prefix / "lib/systemd/system/mq-namesrv.service").read_text()
    assert f"ExecStart={tmp_path}/100%%h/mq namesrv" in text


def test_a_prefix_that_cannot_be_written_is_told(mq: Mq, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = mq("systemd", "install", "--prefix", str(tmp_path / "file"))
    assert done.status == 73
    assert "cannot make" in done.err and "Traceback" not in done.err


def test_systemd_understands_what_is_installed(mq: Mq, prefix: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt install systemd")
    mq("systemd", "install", "--prefix", str(prefix))
    folder = prefix / "lib/systemd/system"
    for name in ("mq-namesrv.service", "mq-broker@a.service", "mq-spark@count.timer"):
        checked = subprocess.run(
            ["systemd-analyze", "--no-pager", "verify", f"./{name}"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert checked.returncode == 0, checked.stderr
        assert [line for line in checked.stderr.splitlines() if "mq-" in line] == []
