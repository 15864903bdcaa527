import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.operations import local_files
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message, StoredMessage
from tests.cli.pairs import another_broker, dead_broker, full_disk, make_topic, put, running_pair
from tests.cli.support import Finished, Mq, without_starts


def commit(pair: Standalone, group: str, topic: str, offsets: dict[int, int]) -> None:
    with BlockingSession(pair.name_server_address) as session:
        admin = Admin(session)
        for queue_id, offset in offsets.items():
            address = pair.broker.address
            run(admin.update_consumer_offset(address, group, topic, queue_id, offset))


def offsets(pair: Standalone, group: str, topic: str) -> dict[int, int]:
    return dict(pair.broker.stores.offsets.table.get(f"{topic}@{group}", {}))


def fill(pair: Standalone, topic: str, count: int = 6) -> None:
    """Two queues with `count` messages each."""
    make_topic(pair, topic)
    for queue_id in (0, 1):
        put(pair, [Message(topic, b"%d" % number) for number in range(count)], queue_id)


def fill_slowly(pair: Standalone, topic: str, count: int = 5) -> None:
    """`fill`, but each message has its own millisecond, so that times identify them."""
    make_topic(pair, topic)
    for number in range(count):
        for queue_id in (0, 1):
            put(pair, [Message(topic, b"%d" % number)], queue_id)
        began = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 <= began:
            time.sleep(0.0005)


@pytest.fixture(scope="module")
def other() -> Iterator[Standalone]:
    """A second cluster."""
    with running_pair({"brokerName": "broker-b"}) as pair:
        yield pair


@pytest.mark.parametrize("name", ["offsets.jsonl", "offsets.csv"])
def test_exported_offsets_can_be_set_again(
    cluster: Mq, standalone: Standalone, tmp_path: Path, name: str
) -> None:
    topic = f"Again{Path(name).suffix[1:]}"
    fill(standalone, topic)
    commit(standalone, "again", topic, {0: 2, 1: 5})
    file = tmp_path / name
    exported = cluster("offset", "export", str(file), "-g", "again", "-t", topic)
    assert (exported.status, exported.out, exported.err) == (0, "", "")
    commit(standalone, "again", topic, {0: 6, 1: 6})
    compared = cluster("offset", "diff", str(file), "-t", topic, "-o", "json").json["data"]
    assert [(row["first"], row["second"], row["change"]) for row in compared] == [
        (2, 6, 4),
        (5, 6, 1),
    ]
    imported = cluster("offset", "import", str(file), "-o", "json")
    assert imported.status == 0, imported.err
    assert [(row["before"], row["offset"], row["result"]) for row in imported.json["data"]] == [
        (6, 2, "set"),
        (6, 5, "set"),
    ]
    assert offsets(standalone, "again", topic) == {0: 2, 1: 5}
    same = cluster("offset", "diff", str(file), "-t", topic, "--exit-code", "-o", "json")
    assert (same.status, same.json["data"]) == (0, [])
    repeated = cluster("offset", "import", str(file), "-o", "json").json
    assert [row["result"] for row in repeated["data"]] == ["same", "same"]


def test_a_file_is_lines_of_json_or_csv(cluster: Mq, standalone: Standalone) -> None:
    fill(standalone, "Lines")
    commit(standalone, "lines", "Lines", {1: 3})
    of_it = ("offset", "export", "-", "-g", "lines")
    assert cluster(*of_it).out == (
        '{"group":"lines","topic":"Lines","brokerName":"broker-a","queueId":1,"offset":3}\n'
    )
    timed = cluster(*of_it, "--as", "csv", "--by", "timestamp").out.splitlines()
    assert timed[0] == "group,topic,brokerName,queueId,offset,timestamp"
    assert timed[1].startswith("lines,Lines,broker-a,1,3,1")


def test_offsets_go_through_pipes(cluster: Mq, standalone: Standalone) -> None:
    fill(standalone, "Piped")
    commit(standalone, "piped", "Piped", {0: 2, 1: 3})
    exported = cluster("offset", "export", "-g", "piped")
    assert exported.status == 0
    assert exported.out == cluster("offset", "export", "-", "-g", "piped").out
    assert exported.out == cluster("offset", "export", "-f", "-", "-g", "piped").out
    commit(standalone, "piped", "Piped", {0: 0, 1: 3})
    for form in (["-"], ["-f", "-"]):
        compared = cluster("offset", "diff", *form, "-g", "piped", "-o", "json", typed=exported.out)
        assert [row["change"] for row in compared.json["data"]] == [-2]
    assert cluster("offset", "import", "-", typed=exported.out).status == 0
    assert offsets(standalone, "piped", "Piped") == {0: 2, 1: 3}
    both = cluster("offset", "diff", "-", "-", typed=exported.out)
    assert (both.status, both.out) == (64, "")
    assert "only one of the files can be standard input" in both.err


def test_what_is_wrong_in_a_pipe_is_told_of_standard_input(cluster: Mq) -> None:
    finished = cluster("offset", "import", "-", typed="no offsets\n")
    assert finished.status == 65
    assert "standard input" in finished.err


def test_patterns_choose_groups_and_topics(cluster: Mq, standalone: Standalone) -> None:
    for topic in ("Pick1", "Pick2"):
        fill(standalone, topic, 1)
        for group in ("pick-a", "pick-b", "unpicked"):
            commit(standalone, group, topic, {0: 1})
    rows = cluster("offset", "export", "-", "-g", "pick-*", "-t", "*2", "--as", "csv").out
    assert rows.splitlines()[1:] == ["pick-a,Pick2,broker-a,0,1", "pick-b,Pick2,broker-a,0,1"]


def test_offsets_of_the_system_stay_where_they_are(cluster: Mq, standalone: Standalone) -> None:
    offsets = standalone.broker.stores.offsets  # clients may not write there
    offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 1)
    assert "SYS" not in cluster("offset", "export", "-").out


def test_by_timestamp_another_cluster_gets_the_same_messages(
    cluster: Mq, standalone: Standalone, other: Standalone, tmp_path: Path
) -> None:
    """The other cluster has had messages before, so that its offsets are others."""
    fill(other, "Moved", 3)
    fill(standalone, "Moved", 4)
    for queue_id in (0, 1):  # later messages of both clusters
        for pair in (standalone, other):
            put(pair, [Message("Moved", b"both")], queue_id)
    commit(standalone, "moved", "Moved", {0: 4, 1: 4})
    file = tmp_path / "offsets.jsonl"
    at_other = ("-n", other.name_server_address)
    assert cluster("offset", "export", str(file), "-g", "moved", "--by", "timestamp").status == 0
    renamed = ("--broker", "broker-a=broker-b")
    done = cluster("offset", "import", str(file), *renamed, *at_other)
    assert done.status == 0, done.err
    assert offsets(other, "moved", "Moved") == {0: 3, 1: 3}
    # Under another name the assignment of messages to queues is unknown: --earliest applies to all.
    commit(standalone, "moved", "Moved", {0: 0, 1: 5})
    assert cluster("offset", "export", str(file), "-g", "moved", "--by", "timestamp").status == 0
    commit(other, "moved", "Moved", {0: 1, 1: 1})
    unknown = cluster("offset", "import", str(file), *at_other)
    assert unknown.status == 66
    assert "group moved, Moved:broker-a:0: there is no such queue in this cluster" in unknown.err
    assert offsets(other, "moved", "Moved") == {0: 1, 1: 1}
    low = cluster("offset", "import", str(file), "--earliest", *at_other)
    assert low.status == 0, low.err
    assert offsets(other, "moved", "Moved") == {0: 3, 1: 3}


def by_time(mq: Mq, file: Path, group: str) -> None:
    finished = mq("offset", "export", str(file), "-g", group, "--by", "timestamp")
    assert finished.status == 0, finished.err


def results(finished: Finished) -> dict[tuple[str, int], str]:
    rows = finished.json["data"]
    return {(row["brokerName"], row["queueId"]): row["result"] for row in rows}


def test_a_queue_that_the_file_does_not_know_moves_none_that_it_knows(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    fill_slowly(standalone, "Known")
    commit(standalone, "known", "Known", {0: 4})
    file = tmp_path / "offsets.jsonl"
    by_time(cluster, file, "known")
    unchanged = cluster("offset", "import", str(file), "-o", "json")
    assert offsets(standalone, "known", "Known") == {0: 4}
    assert results(unchanged) == {("broker-a", 0): "same", ("broker-a", 1): "left"}
    # The group has no offset there, and may miss messages: this is reported.
    assert unchanged.status == 1
    assert "group known, Known:broker-a:1: the file does not know it" in unchanged.err
    assert "--earliest" in unchanged.err
    low = cluster("offset", "import", str(file), "--earliest", "-o", "json")
    assert low.status == 0, low.err
    assert results(low) == {("broker-a", 0): "same", ("broker-a", 1): "set"}
    assert offsets(standalone, "known", "Known")[0] == 4
    again = cluster("offset", "import", str(file), "-o", "json")
    assert again.status == 0, again.err  # it has an offset there now, which stays


def test_everywhere_the_earliest_time_counts_for_known_queues_too(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    fill_slowly(standalone, "Everywhere", 3)
    commit(standalone, "everywhere", "Everywhere", {0: 0, 1: 3})
    file = tmp_path / "offsets.jsonl"
    by_time(cluster, file, "everywhere")
    assert cluster("offset", "import", str(file), "--earliest").status == 0
    assert offsets(standalone, "everywhere", "Everywhere") == {0: 0, 1: 3}
    assert cluster("offset", "import", str(file), "--earliest-everywhere").status == 0
    assert offsets(standalone, "everywhere", "Everywhere") == {0: 0, 1: 0}


@pytest.mark.parametrize("option", [(), ("--earliest",), ("--earliest-everywhere",)])
def test_records_of_a_broker_that_is_away_are_missed(
    cluster: Mq, standalone: Standalone, tmp_path: Path, option: tuple[str, ...]
) -> None:
    topic = f"Away{len(option)}{len(option and option[0])}"
    group = topic.lower()
    fill_slowly(standalone, topic)
    commit(standalone, group, topic, {0: 4, 1: 4})
    file = tmp_path / "offsets.jsonl"
    with another_broker(standalone, "broker-b", tmp_path / "b") as other:
        make_topic(standalone, topic, 1, at=other)
        with BlockingSession(standalone.name_server_address) as session:
            run(Admin(session).update_consumer_offset(other.address, group, topic, 0, 0))
        by_time(cluster, file, group)
    imported = cluster("offset", "import", str(file), *option, "-o", "json")
    assert imported.status == 1
    assert results(imported)["broker-b", 0] == "missing"
    assert f"group {group}, {topic}:broker-b:0: there is no such queue" in imported.err
    if "--earliest-everywhere" not in option:
        assert offsets(standalone, group, topic) == {0: 4, 1: 4}


def test_a_broker_that_the_replaced_file_knows_is_missed_by_export_and_diff(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    fill(standalone, "Replaced")
    commit(standalone, "replaced", "Replaced", {0: 4})
    file = tmp_path / "offsets.jsonl"
    export = ("offset", "export", str(file), "-g", "replaced", "--keep", "1")
    with another_broker(standalone, "broker-b", tmp_path / "b") as other:
        make_topic(standalone, "Replaced", 1, at=other)
        with BlockingSession(standalone.name_server_address) as session:
            run(Admin(session).update_consumer_offset(other.address, "replaced", "Replaced", 0, 0))
        assert cluster(*export).status == 0
    compared = cluster("offset", "diff", str(file))
    assert compared.status == 1
    assert "broker broker-b: not registered now" in compared.err
    partly = cluster(*export)
    assert partly.status == 1
    assert "broker broker-b: not registered now, but it was when" in partly.err
    assert "broker-b" not in file.read_text()
    assert "broker-b" in (tmp_path / "offsets.jsonl.1").read_text()


def test_an_export_can_be_told_which_brokers_there_must_be(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    fill(standalone, "Expected")
    commit(standalone, "expected", "Expected", {0: 4})
    file = tmp_path / "offsets.jsonl"
    export = ("offset", "export", str(file), "-g", "expected", "--expect", "broker-a")
    assert cluster(*export).status == 0
    for _ in range(2):
        partly = cluster(*export, "--expect", "broker-b")
        assert partly.status == 1
        assert "broker broker-b: not registered now" in partly.err


def test_a_group_that_has_consumed_all_goes_on_behind_the_last_message(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    fill(standalone, "AtEnd", 2)
    commit(standalone, "at-end", "AtEnd", {0: 2, 1: 2})
    file = tmp_path / "offsets.jsonl"
    assert cluster("offset", "export", str(file), "-g", "at-end", "--by", "timestamp").status == 0
    commit(standalone, "at-end", "AtEnd", {0: 0, 1: 0})
    assert cluster("offset", "import", str(file)).status == 0
    assert offsets(standalone, "at-end", "AtEnd") == {0: 2, 1: 2}


def test_messages_of_one_millisecond_are_not_left_out(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "Burst", 1)
    put(standalone, [Message("Burst", b"%d" % number) for number in range(200)])
    file = tmp_path / "offsets.jsonl"
    for offset in (1, 60, 199):
        commit(standalone, "burst", "Burst", {0: offset})
        exported = cluster("offset", "export", str(file), "-g", "burst", "--by", "timestamp")
        assert exported.status == 0
        assert cluster("offset", "import", str(file)).status == 0
        assert offset - 50 <= offsets(standalone, "burst", "Burst")[0] <= offset


def test_a_group_that_runs_is_left_alone_unless_forced(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    fill(standalone, "Running", 3)
    commit(standalone, "running", "Running", {0: 1, 1: 1})
    file = tmp_path / "offsets.jsonl"
    assert cluster("offset", "export", str(file), "-g", "running", "-t", "Running").status == 0

    async def consume() -> None:
        consumed = asyncio.Event()

        async def listen(message: StoredMessage) -> None:
            if sum(offsets(standalone, "running", "Running").values()) >= 2:
                consumed.set()

        async with Consumer(
            standalone.name_server_address, "running", {"Running": "*"}, listener=listen
        ):
            await asyncio.wait_for(consumed.wait(), 30)
            refused = await asyncio.to_thread(cluster, "offset", "import", str(file), "-o", "json")
            # What it had committed by then is 1 or 3, as the consumer's beat has it.
            left = [row for row in refused.json["data"] if row["result"] != "same"]
            assert all(row["result"] == "running" for row in left)
            commit(standalone, "running", "Running", {0: 0, 1: 0})
            refused = await asyncio.to_thread(cluster, "offset", "import", str(file), "-o", "json")
            assert refused.status == 75
            assert refused.json["failures"] == [
                "group running is running: stop its consumers, or --force"
            ]
            forced = await asyncio.to_thread(
                cluster, "offset", "import", str(file), "--force", "-o", "json"
            )
            assert forced.status == 0, forced.err

    asyncio.run(consume())


def test_what_cannot_be_set_is_told_queue_by_queue(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    fill(standalone, "Partly", 2)
    file = tmp_path / "offsets.csv"
    file.write_text(
        "group,topic,brokerName,queueId,offset\n"
        "partly,Partly,broker-a,0,1\n"
        "partly,Partly,broker-a,1,99\n"
        "partly,Partly,broker-a,7,1\n"
        "partly,NoSuchTopic,broker-a,0,1\n"
    )
    done = cluster("offset", "import", str(file), "-o", "json")
    assert done.status == 1
    assert [(row["queueId"], row["result"]) for row in done.json["data"]] == [
        (0, "missing"),
        (0, "set"),
        (1, "failed"),
        (7, "missing"),
    ]
    assert without_starts(done.err) == [
        "mq offset import: topic NoSuchTopic: no name server knows it",
        "mq offset import: group partly, Partly:broker-a:1: offset 99 is beyond its end, 2",
        "mq offset import: group partly, Partly:broker-a:7: there is no such queue in this cluster",
    ]
    assert offsets(standalone, "partly", "Partly") == {0: 1}
    only = cluster("offset", "import", str(file), "-t", "NoSuch*", "-o", "json")
    assert only.status == 66


def test_older_files_are_kept(cluster: Mq, standalone: Standalone, tmp_path: Path) -> None:
    fill(standalone, "Kept", 5)
    file = tmp_path / "offsets.csv"
    for offset in range(1, 5):
        commit(standalone, "kept", "Kept", {0: offset})
        done = cluster("offset", "export", str(file), "-g", "kept", "--keep", "2")
        assert done.status == 0
    found = {path.name: path.read_text()[-2] for path in tmp_path.glob("offsets*")}
    assert found == {"offsets.csv": "4", "offsets.csv.1": "3", "offsets.csv.2": "2"}


def test_a_second_export_at_the_same_time_is_told_to_try_again(cluster: Mq, tmp_path: Path) -> None:
    file = tmp_path / "offsets.jsonl"
    with local_files.locked(file):
        finished = cluster("offset", "export", str(file))
    assert finished.status == 79
    assert f"{file} is being written by another mq" in finished.err
    assert not file.exists()
    assert cluster("offset", "export", str(file)).status == 0


def test_a_dead_broker_is_reported_and_the_others_exported(tmp_path: Path) -> None:
    with running_pair() as pair, dead_broker(pair.name_server_address, "Half"):
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        fill(pair, "Whole", 2)
        commit(pair, "half", "Whole", {0: 1})
        file = tmp_path / "offsets.csv"
        finished = mq("offset", "export", str(file))
        assert finished.status == 1
        assert finished.err.startswith("mq offset export: broker broker-dead: 127.0.0.1:1: ")
        assert file.read_text().splitlines()[1:] == ["half,Whole,broker-a,0,1"]
        file.write_text(
            "group,topic,brokerName,queueId,offset\n"
            "half,Whole,broker-a,0,2\n"
            "half,Half,broker-dead,0,0\n"
        )
        imported = mq("offset", "import", str(file))
        assert imported.status == 1
        assert "group half, Half:broker-dead:0: 127.0.0.1:1: " in imported.err
        assert offsets(pair, "half", "Whole") == {0: 2}


def test_a_dead_name_server_leaves_the_file_as_it_is(mq: Mq, tmp_path: Path) -> None:
    file = tmp_path / "offsets.jsonl"
    file.write_text("old")
    finished = mq("offset", "export", str(file), "-n", "127.0.0.1:1")
    assert finished.status == 69
    assert "cannot reach 127.0.0.1:1" in finished.err
    assert file.read_text() == "old"


def test_a_cluster_that_there_is_not_is_not_found(cluster: Mq, tmp_path: Path) -> None:
    file = tmp_path / "offsets.jsonl"
    finished = cluster("offset", "export", str(file), "-c", "Nowhere")
    assert finished.status == 66
    assert "no cluster 'Nowhere' (known: DefaultCluster)" in finished.err
    assert not file.exists()


def test_a_full_disk_leaves_the_old_file_and_no_half_of_the_new(
    standalone: Standalone, tmp_path: Path
) -> None:
    fill(standalone, "Full", 1)
    commit(standalone, "full", "Full", {0: 1, 1: 1})
    file = tmp_path / "offsets.jsonl"
    file.write_text("old")
    arguments = ("offset", "export", str(file), "-g", "full", "--keep", "1")
    finished = full_disk(standalone, 20, *arguments)
    assert finished.status == 73
    assert finished.err.startswith(f"mq offset export: cannot write {file}: File too large")
    assert file.read_text() == "old"
    left = {path.name for path in tmp_path.iterdir() if path.name != "config"}
    assert left == {"offsets.jsonl"}


def test_no_room_for_standard_output_is_an_error(standalone: Standalone) -> None:
    fill(standalone, "DevFull", 1)
    commit(standalone, "dev-full", "DevFull", {0: 1})
    command = [sys.executable, "-m", "mq", "offset", "export", "-"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*command, "-n", standalone.name_server_address],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (ended.returncode, ended.stderr) == (
        74,
        "mq offset export: cannot write the output: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"group":"g"}\n', "line 1: topic is missing"),
        (
            '{"group":"g","topic":"t","brokerName":"b","queueId":0,"offset":1}\n{"gr',
            "line 2: not J",
        ),
        (
            '{"group":"g","topic":"t","brokerName":"b","queueId":-1,"offset":1}',
            "line 1: queueId is",
        ),
        ('{"group":"a b","topic":"t","brokerName":"b","queueId":0,"offset":1}', "illegal charac"),
        ('{"group":"g","topic":"../t","brokerName":"b","queueId":0,"offset":1}', "illegal charac"),
        ("group,topic\n", "line 1: the first line must name group, topic, brokerName"),
        ("group,topic,brokerName,queueId,offset\ng,t,b,0\n", "line 2: 4 fields, not 5"),
        ("group,topic,brokerName,queueId,offset\ng,t,b,0,x\n", "line 2: offset is not a number"),
        ("group,topic,brokerName,queueId,offset\n" + "g,t,b,0,1\n" * 2, "line 3: the same group"),
        ("\xff", "line 1: not text in UTF-8"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_nothing_done(
    cluster: Mq, tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "offsets"
    file.write_bytes(content.encode("latin-1"))
    for command in ("import", "diff"):
        finished = cluster("offset", command, str(file))
        assert (finished.status, finished.out) == (65, "")
        assert f"{file}, {message}" in finished.err or message in finished.err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("export", "{}", "--keep", "-1"), 64, "--keep -1: must not be negative"),
        (("export", "{}/none/x"), 73, "cannot write"),
        (("import", "{}/none"), 66, "no file"),
        (("import", "{}"), 66, "cannot read {}: Is a directory"),
        (("import", "{}/ok", "--broker", "x"), 64, "--broker x: expected OLD=NEW"),
        (("import", "{}/ok", "--by", "timestamp"), 64, "has no timestamps"),
        (("import", "{}/ok", "--earliest"), 64, "--earliest needs --by timestamp"),
        (("export", "x", "--by", "moon"), 64, "moon"),
    ],
)
def test_options_and_files_that_do_not_fit_are_refused(
    cluster: Mq, tmp_path: Path, arguments: tuple[str, ...], status: int, message: str
) -> None:
    (tmp_path / "ok").write_text("group,topic,brokerName,queueId,offset\ng,t,b,0,1\n")
    finished = cluster("offset", *(word.replace("{}", str(tmp_path)) for word in arguments))
    assert (finished.status, finished.out) == (status, "")
    assert message.replace("{}", str(tmp_path)) in finished.err


def test_a_dry_run_changes_nothing(cluster: Mq, standalone: Standalone, tmp_path: Path) -> None:
    fill(standalone, "Dry", 2)
    commit(standalone, "dry", "Dry", {0: 1})
    file = tmp_path / "offsets.csv"
    assert cluster("offset", "export", str(file), "--dry-run").status == 0
    assert not file.exists()
    assert cluster("offset", "export", str(file), "-g", "dry").status == 0
    commit(standalone, "dry", "Dry", {0: 2})
    shown = cluster("offset", "import", str(file), "--dry-run")
    assert shown.status == 0, shown.err
    assert "commitOffset = 1" in shown.out
    assert offsets(standalone, "dry", "Dry") == {0: 2}
