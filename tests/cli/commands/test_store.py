import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.tools import repair
from mq.daemons.broker.store.tools.offline import OfflineLog, OpenFiles, ReadOnlyFile
from tests.cli.support import Mq
from tests.daemons.broker.store.damaged import MESSAGES, destroy_a_size, records_of, written
from tests.daemons.broker.store.stores import LOG_FILE, record

HOLD_A_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return written(tmp_path / "store")


@pytest.fixture
def mq(tmp_path: Path) -> Mq:
    return Mq(tmp_path / "config")


def test_inspect_tells_of_each_part(mq: Mq, root: Path) -> None:
    done = mq("store", "inspect", str(root), "-o", "json")
    assert done.status == 0, done.err
    parts = {row["part"]: row for row in done.json["data"]}
    assert parts["commitlog"]["files"] == 3
    assert parts["commitlog"]["note"] == "no broker runs on it"
    assert parts["consumequeue"]["note"] == "2 queues of 1 topic"
    assert parts["index"]["files"] == 1
    end = records_of(root, 2)[-1]
    assert parts["commitlog"]["maxOffset"] == end.physical + end.size
    assert f"on disk up to {end.physical + end.size}" in parts["checkpoint"]["note"]


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_command_leaves_no_file_of_the_store_open(command: str, mq: Mq, root: Path) -> None:
    assert mq("store", command, str(root)).status == 0  # in a shell other commands follow
    opened = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert [path for path in opened if path.is_relative_to(root)] == []


@pytest.mark.parametrize("command", ["inspect", "verify", "dump"])
def test_a_store_may_have_more_files_than_a_process_may_open(command: str, root: Path) -> None:
    (topic,) = (root / "consumequeue").iterdir()
    for queue_id in range(2, 66):
        shutil.copytree(topic / "0", topic / str(queue_id))
    limited = ["prlimit", "--nofile=48:48", sys.executable, "-m", "mq"]
    done = subprocess.run(
        [*limited, "store", command, str(root), "-o", "json"], capture_output=True, check=False
    )
    assert done.returncode == (65 if command == "verify" else 0), done.stderr
    if command == "inspect":
        parts = {row["part"]: row for row in json.loads(done.stdout)["data"]}
        assert parts["consumequeue"]["note"] == "66 queues of 1 topic"


def test_a_file_that_a_broker_removes_meanwhile_is_read_to_its_end(root: Path) -> None:
    expected = [record for number in range(3) for record in records_of(root, number)]
    with OfflineLog([layout.commit_log_path(root)]) as log:
        records = log.walk()
        first = next(records)
        for file in log.files:
            file.path.unlink()
        assert [first, *records] == expected


@pytest.mark.parametrize("change", [b"another", b"new", None])
def test_a_file_that_is_another_by_now_is_not_taken_for_it(
    change: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "0"
    path.write_bytes(b"one")
    opened = OpenFiles()
    file = ReadOnlyFile(path, 0, opened)
    opened.close()
    assert file.read(0, 3) == b"one"
    opened.close()
    path.rename(tmp_path / "old")
    if change is not None:
        path.write_bytes(change)
    with pytest.raises(OSError, match="removed or replaced while it was read"):
        file.read(0, 3)
    opened.close()


@pytest.mark.parametrize("command", [["store", "dump"], ["dumpCompactionLog", "-f"]])
def test_a_file_that_is_made_shorter_while_it_is_read_ends_a_command_with_a_line(
    command: list[str], tmp_path: Path
) -> None:
    """Reading its memory map ended the command with SIGBUS, without a message."""
    path = layout.commit_log_path(tmp_path) / layout.file_name(0)
    path.parent.mkdir()
    log = bytearray()
    while len(log) < 8 << 20:
        log += record(len(log), b"x" * 4096)
    path.write_bytes(log)
    named = tmp_path if command[0] == "store" else path
    words = [sys.executable, "-m", "mq", *command, str(named), "-o", "json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.read(1)  # and no more: further output waits for a reader
        os.truncate(path, 4096)
        running.stdout.read()
        said = running.stderr.read().decode()
    assert running.returncode == 74, said
    assert f"{path}: made shorter while it was read" in said.splitlines()[-1]


def test_inspect_lists_queues_of_topics_by_a_pattern(mq: Mq, root: Path) -> None:
    done = mq("store", "inspect", str(root), "-t", "Ord*", "-o", "json")
    shown = [(row["queueId"], row["maxOffset"], row["entries"]) for row in done.json["data"]]
    assert shown == [(0, MESSAGES // 2, MESSAGES // 2), (1, MESSAGES // 2, MESSAGES // 2)]
    done = mq("store", "inspect", str(root), "-t", "Nothing")
    assert (done.status, done.err.splitlines()[0]) == (
        66,
        "mq store inspect: no queue of topic Nothing",
    )


def test_inspect_shows_the_message_at_an_offset(mq: Mq, root: Path) -> None:
    record = records_of(root, 1)[2]
    arguments = ("store", "inspect", str(root), "--at", str(record.physical))
    done = mq(*arguments, "--format", r"%t %q %o %k %b\n")
    number = record.queue_offset * 2 + record.queue_id
    assert done.out == f"Orders {record.queue_id} {record.queue_offset} k{number} body {number}\n"
    done = mq("store", "inspect", str(root), "--at", str(record.physical + 1))
    assert done.status == 66
    assert f"no complete message starts at {record.physical + 1}" in done.err


def test_inspect_tells_that_a_broker_runs(mq: Mq, root: Path) -> None:
    # In another process: locks are by process.
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_A_LOCK, root / layout.LOCK_FILE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        done = mq("store", "inspect", str(root))
        assert "a broker runs on it" in done.out
        done = mq("store", "repair", str(root), "--yes")
        assert (done.status, "a broker runs on" in done.err) == (75, True)
        holder.kill()


def test_verify_ends_with_0_for_a_whole_store_and_with_65_for_a_damaged_one(
    mq: Mq, root: Path
) -> None:
    done = mq("store", "verify", str(root), "-o", "json")
    assert (done.status, done.json["data"]) == (0, [])
    assert done.json["totals"] == {
        **{"records": MESSAGES, "queues": 2, "entries": MESSAGES, "indexItems": MESSAGES},
        **{"ofDeletedTopics": 0, "problems": 0, "lostBytes": 0},
        "recordBytes": done.json["totals"]["recordBytes"],
    }
    destroy_a_size(root)
    record = records_of(root, 1)[4]
    done = mq("store", "verify", str(root), "-o", "json")
    assert done.status == 65
    first = done.json["data"][0]
    assert (first["part"], first["offset"]) == ("log", record.physical + record.size)
    assert first["why"].startswith("a size of ")


def test_verify_says_that_a_store_is_sound_and_what_was_looked_at(mq: Mq, root: Path) -> None:
    for terminal in (False, True):
        done = mq("store", "verify", str(root), terminal=terminal, columns=500)
        assert (done.status, done.err) == (0, "")
        size = mq("store", "verify", str(root), "-o", "json").json["totals"]["recordBytes"]
        assert done.out.startswith(
            f"{root} is sound: the checksums of {MESSAGES} records ({size:,} bytes) in 3 files of "
            f"the log are correct; 2 queues with {MESSAGES} messages and {MESSAGES} items of "
            "the index point to existing records; "
        )
    assert "not looked into" not in done.out
    (root / "timerwheel").write_bytes(b"x")
    (root / "timerlog").mkdir()
    for terminal in (False, True):
        done = mq("store", "verify", str(root), terminal=terminal, columns=500)
        assert done.status == 0
        assert done.out.endswith("\nnot checked: timerlog, timerwheel\n")
    assert mq("store", "verify", str(root), "-o", "json").status == 0
    destroy_a_size(root)
    assert "is sound" not in mq("store", "verify", str(root)).out


def test_verify_says_of_a_sound_store_which_messages_nobody_can_read(mq: Mq, root: Path) -> None:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"TBW102":{}}}')
    shutil.rmtree(root / "consumequeue" / "Orders")
    said = mq("store", "verify", str(root)).out
    assert "is sound" in said and f"{MESSAGES} messages in the log of topics" in said
    assert said.endswith(": Orders\n")


COMMANDS = (("inspect",), ("verify",), ("dump",), ("repair", "--yes"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("above", [".", "..", "../..", "store/commitlog"])
def test_the_only_store_below_a_folder_is_found_and_named(
    command: tuple[str, ...], above: str, mq: Mq, tmp_path: Path
) -> None:
    top = tmp_path / "brokers"
    root = written(top / "broker-a" / "store")
    given = (top / "broker-a" / above).resolve()
    if given == tmp_path:
        given = top
    done = mq("store", command[0], str(given), *command[1:])
    assert (done.status, done.err) == (0, f"mq store {command[0]}: the store is {root}\n")
    assert done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_of_several_stores_below_a_folder_one_has_to_be_named(
    command: tuple[str, ...], mq: Mq, tmp_path: Path
) -> None:
    top = tmp_path / "cluster"
    one, other = written(top / "broker-a"), written(top / "broker-b")
    done = mq("store", command[0], str(top), *command[1:])
    assert (done.status, done.out) == (64, "")
    assert done.err == (
        f"mq store {command[0]}: {top} contains 2 stores\nhint: name one: {one}, {other}\n"
    )


def test_repair_wants_a_copy_or_a_yes(mq: Mq, root: Path) -> None:
    destroy_a_size(root)
    before = (root / "commitlog" / layout.file_name(LOG_FILE)).read_bytes()
    done = mq("store", "repair", str(root))
    assert done.status == 64
    assert "--copy NEW-DIR; or in place: --yes" in done.err
    done = mq("store", "repair", str(root), "--dry-run")
    assert (done.status, "filled with records" in done.out) == (0, True), done.err
    assert (root / "commitlog" / layout.file_name(LOG_FILE)).read_bytes() == before


def test_repair_of_a_copy_leaves_the_store_as_it_is(mq: Mq, root: Path, tmp_path: Path) -> None:
    destroy_a_size(root)
    copy = tmp_path / "copy"
    done = mq("store", "repair", str(root), "--copy", str(copy), "-o", "json")
    assert (done.status, done.json["totals"]) == (0, {"problemsLeft": 0}), done.err
    assert mq("store", "verify", str(copy)).status == 0
    assert mq("store", "verify", str(root)).status == 65
    done = mq("store", "repair", str(root), "--copy", str(copy))
    assert (done.status, "already exists" in done.err) == (73, True)


def test_repair_in_place_with_a_yes(mq: Mq, root: Path) -> None:
    destroy_a_size(root)
    done = mq("store", "repair", str(root), "--yes")
    assert (done.status, done.err) == (0, "")
    assert mq("store", "verify", str(root)).status == 0


TRY_A_LOCK = """
import fcntl, os, sys
try:
    fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    print("held")
"""


@pytest.mark.parametrize("where", ["in place", "copy"])
def test_no_broker_can_start_on_a_store_while_it_is_repaired(
    mq: Mq, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    destroy_a_size(root)
    (root / layout.LOCK_FILE).touch()
    seen: list[str] = []

    def looked_at(function: Any, store: Path) -> Any:
        def wrapper(*arguments: Any) -> Any:
            command = [sys.executable, "-c", TRY_A_LOCK, str(store / layout.LOCK_FILE)]
            seen.append(subprocess.run(command, capture_output=True, text=True).stdout)
            return function(*arguments)

        return wrapper

    if where == "in place":
        monkeypatch.setattr(repair, "plan", looked_at(repair.plan, root))
        options = ["--yes"]
    else:
        monkeypatch.setattr(repair, "copy_store", looked_at(repair.copy_store, root))
        target = tmp_path / "copy"
        monkeypatch.setattr(repair, "plan", looked_at(repair.plan, target))
        options = ["--copy", str(target)]
    done = mq("store", "repair", str(root), *options)
    assert done.status == 0, done.err
    assert seen and set(seen) == {"held\n"}


@pytest.mark.parametrize("where", ["in place", "copy"])
def test_what_root_repairs_stays_its_owners(mq: Mq, root: Path, tmp_path: Path, where: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    destroy_a_size(root)
    for path in (root, *root.rglob("*")):
        os.chown(path, 12345, 12346)
        path.chmod(0o700 if path.is_dir() else 0o600)
    target = root if where == "in place" else tmp_path / "copy"
    options = ["--yes"] if where == "in place" else ["--copy", str(target)]
    done = mq("store", "repair", str(root), *options)
    assert done.status == 0, done.err
    for path in (target, *target.rglob("*")):
        kept = path.stat()
        assert (kept.st_uid, kept.st_gid) == (12345, 12346), path
        assert not kept.st_mode & 0o077, path


def test_what_cannot_be_repaired_is_told(mq: Mq, root: Path) -> None:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text("{broken")
    done = mq("store", "repair", str(root), "--yes", "-o", "json")
    assert (done.status, done.json["totals"]) == (65, {"problemsLeft": 1})


def test_dump_prints_messages_in_the_order_of_the_log(mq: Mq, root: Path) -> None:
    done = mq("store", "dump", str(root), "--format", r"%b\n")
    assert done.out.splitlines() == [f"body {number}" for number in range(MESSAGES)]
    record = records_of(root, 1)[0]
    arguments = ("store", "dump", str(root), "-q", "1", "--from", str(record.physical), "-m", "3")
    done = mq(*arguments, "-o", "json")
    bodies = [item["body"] for item in done.json["data"]]
    first = record.queue_offset * 2 + record.queue_id
    first += 1 - first % 2
    assert bodies == [f"body {first + 2 * more}" for more in range(3)]
    assert mq("store", "dump", str(root), "-t", "Other*").out == ""
    assert mq("store", "dump", str(root), "-e", "1970-01-02T00:00:00Z").out == ""


def test_dump_goes_on_behind_damage_and_says_so(mq: Mq, root: Path) -> None:
    destroy_a_size(root)
    done = mq("store", "dump", str(root), "--format", r"%b\n")
    assert (done.status, len(done.out.splitlines())) == (1, MESSAGES - 1)
    assert " skipped: a size of " in done.err


def test_a_folder_that_is_no_store_is_told(mq: Mq, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    for command in (("inspect",), ("verify",), ("dump",), ("repair", "--yes")):
        done = mq("store", command[0], str(tmp_path), *command[1:])
        assert (done.status, f"{tmp_path} is not a store" in done.err) == (66, True)
    assert {path.name for path in tmp_path.iterdir()} <= {"mine", "config"}


def test_a_repair_that_cannot_keep_what_it_overwrites_changes_nothing_and_says_why(
    mq: Mq, root: Path
) -> None:
    destroy_a_size(root)
    (root / "damaged").write_text("a file where the folder should be")
    before = {path: path.read_bytes() for path in (root / "commitlog").iterdir()}
    done = mq("store", "repair", str(root), "--yes")
    assert done.status == 73, done.err
    assert "cannot be copied to" in done.err and "Nothing was deleted" in done.err
    assert {path: path.read_bytes() for path in (root / "commitlog").iterdir()} == before
