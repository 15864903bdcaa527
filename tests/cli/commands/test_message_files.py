import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.operations import local_files
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from tests.cli.commands.transfers import (
    bodies,
    exported,
    how_it_goes_on,
    interrupted,
    lines,
    numbered,
    some_read,
    started,
)
from tests.cli.pairs import another_broker, dead_broker, full_disk, make_topic, put, running_pair
from tests.cli.support import Mq
from tests.interop.ports import free_port
from tests.waiting import wait_until


def test_a_line_has_all_of_a_message(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "Whole")
    message = Message("Whole", "Grüße".encode(), "TagA", ["k1", "k2"], {"colour": "red"}, flag=7)
    put(standalone, [message], 1)
    (line,) = exported(cluster, "Whole")
    assert (line["topic"], line["brokerName"], line["queueId"], line["queueOffset"]) == (
        "Whole",
        "broker-a",
        1,
        0,
    )
    assert (line["body"], line["bodyEncoding"], line["flag"]) == ("Grüße", "utf-8", 7)
    properties = line["properties"]
    assert (properties["TAGS"], properties["KEYS"], properties["colour"]) == (
        "TagA",
        "k1 k2",
        "red",
    )
    assert line["messageId"] == properties["UNIQ_KEY"]
    assert abs(line["storeTimestamp"] - time.time() * 1000) < 60_000
    assert line["storeHost"] == standalone.broker.address


@pytest.mark.parametrize(
    ("form", "body", "expected"),
    [
        ("text", b"plain", ("plain", "utf-8")),
        ("text", b"\xff\x00", ("/wA=", "base64")),
        ("base64", b"plain", ("cGxhaW4=", "base64")),
        ("json", b'{"b": [1, null]}', ({"b": [1, None]}, "json")),
        ("json", b"no json", ("no json", "utf-8")),
    ],
)
def test_bodies_have_the_form_asked_for_and_come_back(
    cluster: Mq, standalone: Standalone, tmp_path: Path, form: str, body: bytes, expected: Any
) -> None:
    topic = f"Form{abs(hash((form, body)))}"
    make_topic(standalone, topic)
    make_topic(standalone, f"{topic}Back")
    put(standalone, [Message(topic, body)])
    (line,) = exported(cluster, topic, "--body", form)
    assert (line["body"], line["bodyEncoding"]) == expected
    file = tmp_path / "messages.jsonl"
    assert cluster("message", "export", str(file), "-t", topic, "--body", form).status == 0
    imported = cluster("message", "import", str(file), "--to-topic", f"{topic}Back")
    assert imported.status == 0, imported.err
    (back,) = exported(cluster, f"{topic}Back", "--body", form)
    assert (back["body"], back["bodyEncoding"]) == expected


def test_messages_are_chosen_by_queue_tag_key_and_sql(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "Chosen", 3)
    for queue_id in range(3):
        put(
            standalone,
            [
                Message("Chosen", b"%d%s" % (queue_id, tag), tag.decode(), [f"k{queue_id}"])
                for tag in (b"a", b"b")
            ],
            queue_id,
        )
    assert sorted(bodies(cluster, "Chosen")) == ["0a", "0b", "1a", "1b", "2a", "2b"]
    assert sorted(bodies(cluster, "Chosen", "-i", "0", "-i", "2")) == ["0a", "0b", "2a", "2b"]
    assert sorted(bodies(cluster, "Chosen", "--tag", "b")) == ["0b", "1b", "2b"]
    assert sorted(bodies(cluster, "Chosen", "--key", "k1")) == ["1a", "1b"]
    assert sorted(bodies(cluster, "Chosen", "--tag", "a", "-i", "1", "-b", "broker-a")) == ["1a"]
    assert len(bodies(cluster, "Chosen", "--limit", "4")) == 4
    unique = exported(cluster, "Chosen", "-i", "0")[0]["messageId"]
    assert bodies(cluster, "Chosen", "--key", unique) == ["0a"]


def test_messages_are_chosen_by_sql92(tmp_path: Path) -> None:
    with running_pair({"enablePropertyFilter": "true"}) as pair:
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        make_topic(pair, "Sql")
        put(
            pair,
            [
                Message("Sql", b"%d" % number, properties={"amount": str(number)})
                for number in range(50)
            ],
        )
        found = bodies(mq, "Sql", "--sql", "amount > 44")
        assert sorted(found) == ["45", "46", "47", "48", "49"]


def test_messages_are_chosen_by_time(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "Timed", 1)
    put(standalone, numbered("Timed", 40))
    times = [line["storeTimestamp"] for line in exported(cluster, "Timed")]
    middle = times[len(times) // 2]
    later = bodies(cluster, "Timed", "--begin", str(middle))
    earlier = bodies(cluster, "Timed", "--end", str(middle))
    assert earlier + later == [str(number) for number in range(40)]
    assert later[0] == str(next(i for i, stored in enumerate(times) if stored >= middle))
    assert bodies(cluster, "Timed", "--begin", "1h") == earlier + later
    assert bodies(cluster, "Timed", "--end", "1h") == []
    assert len(bodies(cluster, "Timed", "--begin", "2020-01-01T00:00Z")) == 40


def test_each_queue_is_in_order(cluster: Mq, standalone: Standalone, tmp_path: Path) -> None:
    make_topic(standalone, "Ordered", 3)
    make_topic(standalone, "OrderedBack", 2)
    for queue_id in range(3):
        put(standalone, numbered("Ordered", 150), queue_id)
    file = tmp_path / "messages.jsonl"
    done = cluster("message", "export", str(file), "-t", "Ordered", "-o", "json")
    assert done.json["totals"] == {"messages": 450}
    assert [(row["nextOffset"], row["messages"]) for row in done.json["data"]] == [(150, 150)] * 3
    for queue_id in range(3):
        of_queue = [line for line in lines(file.read_text()) if line["queueId"] == queue_id]
        assert [line["queueOffset"] for line in of_queue] == list(range(150))
    sent = cluster("message", "import", str(file), "--to-topic", "OrderedBack", "-o", "json")
    assert sent.json["totals"] == {"messages": 450}, sent.err
    back = exported(cluster, "OrderedBack")
    ids = {line["messageId"]: line for line in lines(file.read_text())}
    order: dict[tuple[int, int], list[int]] = {}
    for line in back:
        source = ids[line["messageId"]]
        order.setdefault((line["queueId"], source["queueId"]), []).append(source["queueOffset"])
    assert set(order) == {(0, 0), (1, 1), (0, 2)}
    assert all(offsets == list(range(150)) for offsets in order.values())


def test_an_export_that_was_cut_goes_on(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "CutExport", 2)
    for queue_id in (0, 1):
        put(standalone, numbered("CutExport", 300), queue_id)
    file, part = tmp_path / "messages.jsonl", tmp_path / "messages.jsonl.part"
    command = ["message", "export", str(file), "-t", "CutExport"]
    where = ["-n", standalone.name_server_address]
    cut = interrupted(some_read(standalone), *command, *where, "--rate", "200")
    assert cut.returncode == 130
    assert f"messages are in {part}, the progress is in {file}.state\n" in cut.stderr
    assert how_it_goes_on(cut) == [*command, *where, "--rate", "200", "--resume"]
    assert not file.exists()
    good = len(lines(part.read_text()))
    assert good < 600
    with part.open("a") as more:
        more.write('{"half')  # written after the state
    resumed = cluster(*command, *where, "--resume", "-o", "json")
    assert resumed.status == 0, resumed.err
    assert resumed.json["totals"]["messages"] == 600 - good
    places = [(line["queueId"], line["queueOffset"]) for line in lines(file.read_text())]
    assert sorted(places) == [(queue, offset) for queue in (0, 1) for offset in range(300)]
    assert list(tmp_path.glob("*messages*")) == [file]


def test_a_broker_that_stops_in_the_middle_of_an_export_costs_nothing(tmp_path: Path) -> None:
    ports = (free_port(), free_port())
    file = tmp_path / "messages.jsonl"
    with running_pair(store=tmp_path / "store", ports=ports) as pair:
        make_topic(pair, "Stops", 2)
        for queue_id in (0, 1):
            put(pair, numbered("Stops", 300), queue_id)
        where = ("-n", pair.name_server_address)
        command = ("message", "export", str(file), "-t", "Stops", *where)
        some = some_read(pair)
        process = started(*command, "--rate", "150")
        wait_until(some)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert f"mq message export: broker-a:0: 127.0.0.1:{ports[1]}: " in err
    assert 0 < len(lines(file.read_text())) < 600
    with running_pair(store=tmp_path / "store", ports=ports):
        resumed = Mq(tmp_path / "config")(*command, "--resume")
        assert resumed.status == 0, resumed.err
    places = [(line["queueId"], line["queueOffset"]) for line in lines(file.read_text())]
    assert sorted(places) == [(queue, offset) for queue in (0, 1) for offset in range(300)]


def test_a_state_of_another_export_is_refused(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "OtherState")
    file = tmp_path / "messages.jsonl"
    state = tmp_path / "messages.jsonl.state"
    state.write_text('{"asked": {"topic": "Else"}, "bytes": 0, "queues": {}}')
    finished = cluster("message", "export", str(file), "-t", "OtherState", "--resume")
    assert finished.status == 65
    assert f"{state} is of another export" in finished.err
    state.write_text("nonsense")
    finished = cluster("message", "export", str(file), "-t", "OtherState", "--resume")
    assert finished.status == 65
    assert "is not the state of an export" in finished.err


def test_the_rate_is_kept(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "Slowly")
    put(standalone, numbered("Slowly", 64))
    began = time.monotonic()
    assert len(bodies(cluster, "Slowly", "--rate", "64")) == 64
    assert time.monotonic() - began > 0.4  # one pull passes at once, the other waits for it


def test_a_dead_broker_is_reported_and_its_queues_can_be_added_later(tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    with running_pair() as pair:
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        make_topic(pair, "Half", 2)
        put(pair, numbered("Half", 5), 0)
        with dead_broker(pair.name_server_address, "Half"):
            finished = mq("message", "export", str(file), "-t", "Half")
            assert finished.status == 1
            assert "mq message export: broker-dead:0: 127.0.0.1:1: " in finished.err
            assert len(lines(file.read_text())) == 5
            copied = mq("message", "copy", "-t", "Half", "--to-topic", "Half2")
            assert copied.status == 66
        put(pair, numbered("Half", 2), 1)
        with another_broker(pair, "broker-dead", tmp_path / "store") as revived:
            make_topic(pair, "Half", 2, at=revived)
            resumed = mq("message", "export", str(file), "-t", "Half", "--resume")
        assert resumed.status == 0, resumed.err
        assert len(lines(file.read_text())) == 5


def test_a_full_disk_leaves_nothing_half_written(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "FullDisk")
    put(standalone, numbered("FullDisk", 3))
    file = tmp_path / "messages.jsonl"
    finished = full_disk(standalone, 20, "message", "export", str(file), "-t", "FullDisk")
    assert finished.status == 73
    assert finished.err.splitlines()[0] == (
        f"mq message export: cannot write {file}: File too large"
    )
    assert list(tmp_path.glob("*messages*")) == []


def test_after_a_full_disk_an_export_goes_on_if_it_was_to(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "FullResume", 1)
    put(standalone, numbered("FullResume", 100))
    file = tmp_path / "messages.jsonl"
    where = ("-n", standalone.name_server_address)
    command = ("message", "export", str(file), "-t", "FullResume", "--resume")
    full = full_disk(standalone, 10_000, *command)
    assert full.status == 73
    assert full.err.splitlines()[1] == "hint: free disk space, and continue with --resume"
    assert not file.exists()
    resumed = cluster(*command, *where)
    assert resumed.status == 0, resumed.err
    assert [line["body"] for line in lines(file.read_text())] == [str(n) for n in range(100)]


def test_after_a_full_disk_amid_a_long_line_it_is_written_once(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "FullAmid", 1)
    put(standalone, [Message("FullAmid", bytes(3_000_000)) for _ in range(3)])  # each a chunk
    file, whole = tmp_path / "messages.jsonl", tmp_path / "whole.jsonl"
    command = ("message", "export", str(file), "-t", "FullAmid", "--resume")
    assert full_disk(standalone, 6_000_000, *command).status == 73  # lines are of 4 MB
    part, state = tmp_path / "messages.jsonl.part", tmp_path / "messages.jsonl.state"
    good = json.loads(state.read_bytes())
    assert part.stat().st_size == good["bytes"]
    assert part.read_bytes().count(b"\n") == good["messages"] < 3
    assert cluster(*command).status == 0
    assert cluster("message", "export", str(whole), "-t", "FullAmid").status == 0
    assert file.read_bytes() == whole.read_bytes()


def test_what_could_not_begin_leaves_nothing(mq: Mq, tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    finished = mq("message", "export", str(file), "-t", "Any", "-n", "127.0.0.1:1")
    assert finished.status == 69
    assert list(tmp_path.glob("*messages*")) == []


def test_a_second_export_at_the_same_time_is_told_to_try_again(cluster: Mq, tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    with local_files.locked(file):
        assert cluster("message", "export", str(file), "-t", "Any").status == 79


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("export", "-", "-t", "NoSuchTopic"), 66, "no name server knows it"),
        (("export", "-", "-t", "a b"), 64, "'a b'"),
        (("export", "-", "-t", "Fit", "-i", "99"), 66, "topic Fit has no such queue"),
        (("export", "-", "-t", "Fit", "-b", "nobody"), 66, "topic Fit has no such queue"),
        (("export", "-", "-t", "Fit", "-i", "-1"), 64, "a queue id of -1"),
        (("export", "-", "-t", "Fit", "--resume"), 64, "--resume needs a file"),
        (("export", "-", "-t", "Fit", "--rate", "0"), 64, "--rate 0: "),
        (("export", "-", "-t", "Fit", "--limit", "0"), 64, "--limit 0: "),
        (("export", "-", "-t", "Fit", "--tag", "a", "--sql", "b > 1"), 64, "cannot go together"),
        (("export", "-", "-t", "Fit", "--sql", "a >"), 64, "--sql: "),
        (("export", "-", "-t", "Fit", "--begin", "soon"), 64, "--begin: 'soon' is not a time"),
        (("export", "-", "-t", "Fit", "--begin", "2", "--end", "1"), 64, "--begin is not before"),
        (("export", "{}/none/x", "-t", "Fit"), 73, "cannot write"),
        (("export", "-", "-t", "Fit", "-n", "127.0.0.1:1"), 69, "cannot reach 127.0.0.1:1"),
        (("import", "-", "--resume"), 64, "--resume needs a file: standard input"),
        (("import", "{}/none"), 66, "no file"),
        (("import", "{}"), 66, "Is a directory"),
        (("import", "{}/lines", "--map", "0"), 64, "--map 0: "),
        (("import", "{}/lines", "--map", "0=77"), 64, "there is no queue 77"),
        (("import", "{}/lines", "--to-topic", "NoSuchTopic"), 66, "no topic NoSuchTopic"),
        (("copy", "-t", "Fit"), 64, "cannot be copied to itself"),
        (("copy", "-t", "Fit", "--to-topic", "NoSuchTopic"), 66, "no topic NoSuchTopic"),
        (("copy", "-t", "Fit", "--to-namesrv", "nowhere"), 64, "nowhere"),
        (("copy", "-t", "Fit", "--to-namesrv", "127.0.0.1:1"), 69, "cannot reach 127.0.0.1:1"),
    ],
)
def test_options_and_files_that_do_not_fit_are_refused(
    cluster: Mq,
    standalone: Standalone,
    tmp_path: Path,
    arguments: tuple[str, ...],
    status: int,
    message: str,
) -> None:
    make_topic(standalone, "Fit")
    (tmp_path / "lines").write_text('{"topic":"Fit","body":"x"}\n')
    finished = cluster("message", *(word.replace("{}", str(tmp_path)) for word in arguments))
    assert (finished.status, finished.out) == (status, ""), finished.err
    assert message in finished.err


def test_reading_leaves_no_group_behind(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "NoTrace")
    put(standalone, numbered("NoTrace", 3))
    with BlockingSession(standalone.name_server_address) as session:
        admin, address = Admin(session), standalone.broker.address
        before = run(admin.subscription_groups(address)).subscription_group_table.keys()
        assert len(bodies(cluster, "NoTrace")) == 3
        assert run(admin.subscription_groups(address)).subscription_group_table.keys() == before
        assert not [key for key in run(admin.all_consumer_offsets(address)) if "NoTrace" in key]


def test_standard_output_with_no_room_is_an_error(standalone: Standalone) -> None:
    make_topic(standalone, "NoRoom")
    put(standalone, numbered("NoRoom", 3))
    command = [sys.executable, "-m", "mq", "message", "export", "-", "-t", "NoRoom"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*command, "-n", standalone.name_server_address],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env={**os.environ, "HOME": "/nonexistent"},
        )
    assert ended.returncode == 74
    assert ended.stderr == "mq message export: cannot write the output: No space left on device\n"


def test_a_pipe_is_exported_to_and_stays_one(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "ToPipe")
    put(standalone, numbered("ToPipe", 3))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        done = cluster("message", "export", str(pipe), "-t", "ToPipe")
        lines, _ = reader.communicate(timeout=30)
    assert (done.status, len(lines.splitlines())) == (0, 3), done.err
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
    refused = cluster("message", "export", str(pipe), "-t", "ToPipe", "--resume")
    assert refused.status == 64
    assert f"--resume needs a file: {pipe} cannot be resumed" in refused.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_export_to_a_pipe_that_nobody_reads(
    standalone: Standalone, number: signal.Signals
) -> None:
    topic = f"NobodyReads{number}"
    make_topic(standalone, topic, 2)
    put(standalone, [Message(topic, b"x" * 50_000)] * 40)
    command = [sys.executable, "-m", "mq", "message", "export", topic, "-"]
    with subprocess.Popen(
        [*command, "-n", standalone.name_server_address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        try:
            deadline = time.monotonic() + 30
            while waiting_in(process.stdout.fileno()) < 64 * 1024:  # its capacity
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.send_signal(number)
            assert process.wait(30) == 128 + number
        finally:
            process.kill()


def waiting_in(pipe: int) -> int:
    """Return the number of unread bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
