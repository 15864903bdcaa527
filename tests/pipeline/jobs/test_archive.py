"""An archive has each message once, whenever a run is killed."""

import json
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mq.pipeline.cluster import Bounds
from mq.pipeline.errors import OptionError
from mq.pipeline.jobs import archive, archive_plan
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.archive import Range
from mq.pipeline.jobs.archive_log import ArchiveLog
from mq.pipeline.jobs.declaration import JobError
from mq.pipeline.jobs.job_result import JobResult
from mq.pipeline.jobs.storage import Folder
from mq.pipeline.offsets import Queue
from mq.testing import RunningBroker
from tests.pipeline.clusters import Driver, SparkCluster
from tests.pipeline.conftest import PATIENCE
from tests.pipeline.jobs.archives import archived, messages, run, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(3 * PATIENCE)


class Killed(BaseException):
    """Replaces the end of the process: no code of the project catches it."""


def test_each_run_adds_the_new_messages(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    mq_session_broker.create_topic(mq_topic, 2)
    assert run(spark, mq_session_broker, folder, mq_topic).tables[0].rows == []
    send(mq_session_broker, mq_topic, 0, range(25))
    send(mq_session_broker, mq_topic, 1, range(5))
    outcome = run(spark, mq_session_broker, folder, mq_topic, batch="20", parts="3")
    assert outcome.tables[0].rows == [
        (mq_topic, "broker-a", 0, 0, 25, 25),
        (mq_topic, "broker-a", 1, 0, 5, 5),
    ]
    assert archived(spark, folder) == messages(25, 5)
    mq_session_broker.create_topic(mq_topic, 3)
    send(mq_session_broker, mq_topic, 0, range(25, 30))
    send(mq_session_broker, mq_topic, 2, range(2))
    outcome = run(spark, mq_session_broker, folder, mq_topic)
    assert [row[2:] for row in outcome.tables[0].rows] == [(0, 25, 30, 5), (2, 0, 2, 2)]
    assert (outcome.failures, outcome.notes) == ([], [])
    assert archived(spark, folder) == messages(30, 5, 2)
    assert run(spark, mq_session_broker, folder, mq_topic).tables[0].rows == []
    home = sorted(each.name for each in (folder / "_archive").iterdir())
    assert home == ["00000001.json", "00000002.json", "00000003.json"]
    last = json.loads((folder / "_archive" / home[-1]).read_bytes())
    assert last["ends"] == {mq_topic: {"broker-a": {"0": 30, "1": 5, "2": 2}}}
    assert (last["messages"], last["lost"]) == (7, [])


def test_the_schema_and_folders_of_an_archive_do_not_change(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    """A contract: readers of an archive rely on these columns."""
    sent = mq_session_broker.send(
        mq_topic, b"\x00\xff", tags="A", keys=("k1", "k2"), properties={"of": "mine"}
    )
    run(spark, mq_session_broker, tmp_path, mq_topic)
    frame = archive.read(spark, str(tmp_path))
    assert {field.name: field.dataType.simpleString() for field in frame.schema} == {
        "brokerName": "string",
        "queueId": "int",
        "queueOffset": "bigint",
        "msgId": "string",
        "tags": "string",
        "keys": "string",
        "properties": "map<string,string>",
        "flag": "int",
        "body": "binary",
        "bornTimestamp": "timestamp",
        "storeTimestamp": "timestamp",
        "bornHost": "string",
        "reconsumeTimes": "int",
        "bodyError": "string",
        "day": "date",
        "topic": "string",
    }
    (row,) = frame.collect()
    assert (row.topic, bytes(row.body), row.tags, row["keys"]) == (
        *(mq_topic, b"\x00\xff", "A", "k1 k2"),
    )
    assert row.properties["of"] == "mine" and row.msgId == sent.message_id
    (stored,) = mq_session_broker.messages(mq_topic)
    day = datetime.fromtimestamp(stored.store_timestamp / 1000, UTC).date()
    assert row.day == day
    (file,) = tmp_path.rglob("*.parquet")
    assert file.relative_to(tmp_path).as_posix().startswith(f"day={day}/topic={mq_topic}/00000001-")


def test_the_day_is_in_utc_whatever_the_time_zone_of_the_session(spark: "SparkSession") -> None:
    moments = [datetime(2026, 1, 31, 23, 59, 59, 999000, UTC), datetime(2026, 2, 1, tzinfo=UTC)]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = spark.createDataFrame([(each,) for each in moments], "storeTimestamp timestamp")
        days = [row.day for row in archive.with_day(frame).orderBy("day").collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert days == [date(2026, 1, 31), date(2026, 2, 1)]


def kill_in(
    monkeypatch: pytest.MonkeyPatch, method: str, calls: int, work: Callable[[], Any]
) -> None:
    """Run `work`, and stop it at the given call of a method of Folder."""
    left = calls
    original = getattr(Folder, method)

    def counting(self: Folder, *arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return original(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, method, counting)
        with pytest.raises(Killed):
            work()


def test_a_run_that_is_killed_between_two_steps_is_continued(
    spark: "SparkSession",
    mq_session_broker: RunningBroker,
    mq_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mq_session_broker.create_topic(mq_topic, 3)
    for queue_id in range(3):
        send(mq_session_broker, mq_topic, queue_id, range(4))

    def work() -> JobResult:
        return run(spark, mq_session_broker, tmp_path, mq_topic)

    kill_in(monkeypatch, "write_new", 0, work)  # all files are staged, without a manifest
    assert len(list(tmp_path.rglob("*.parquet"))) == 3
    assert Folder(spark, str(tmp_path)).files() == []
    kill_in(monkeypatch, "move", 1, work)  # the manifest exists, and one file is in its place
    assert len(Folder(spark, str(tmp_path)).files()) == 1
    with pytest.raises(JobError, match="is being written, or a run was killed"):
        archive.read(spark, str(tmp_path))
    send(mq_session_broker, mq_topic, 0, range(4, 6))
    outcome = work()
    assert outcome.notes == ["an earlier run was killed: 2 files of it moved to their places"]
    assert [row[2:] for row in outcome.tables[0].rows] == [(0, 4, 6, 2)]
    assert archived(spark, tmp_path) == messages(6, 4, 4)
    assert sorted(each.name for each in (tmp_path / "_archive").iterdir()) == [
        "00000001.json",
        "00000002.json",
    ]


def test_one_of_two_simultaneous_runs_fails_and_nothing_is_duplicated(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    mq_session_broker.create_topic(mq_topic, 1)
    send(mq_session_broker, mq_topic, 0, range(4))
    slow = ArchiveLog(Folder(spark, str(tmp_path)))
    run(spark, mq_session_broker, tmp_path, mq_topic)
    ranges = {Queue(mq_topic, "broker-a", 0): Range(0, 4)}
    with pytest.raises(JobError, match="another run has archived batch 1"):
        archive.add(spark, slow, ClusterAccess(mq_session_broker.name_server), ranges)
    assert archived(spark, tmp_path) == messages(4)
    assert [each.name for each in (tmp_path / "_archive").iterdir()] == ["00000001.json"]


@pytest.mark.long
def test_a_killed_driver_leaves_neither_gap_nor_duplicate(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    mq_session_broker.create_topic(mq_topic, 2)
    for queue_id in range(2):
        send(mq_session_broker, mq_topic, queue_id, range(1000))
    folder = tmp_path / "archive"
    home = folder / "_archive"
    task = in_batches(mq_session_broker, mq_topic, folder, 20)
    with Driver(tmp_path, "local[2]", "job", **task) as driver:
        # Two of 100 batches exist, and the next one is being written.
        driver.wait_until(
            lambda: (home / "00000002.json").exists() and list(home.glob("staging-*")), PATIENCE
        )
        driver.kill()
    assert len(archived(spark, folder)) < 2000
    run(spark, mq_session_broker, folder, mq_topic)
    assert archived(spark, folder) == messages(1000, 1000)
    assert not list(home.glob("staging-*"))


@pytest.mark.long
def test_an_archive_is_complete_although_executors_are_killed(
    spark: "SparkSession",
    spark_cluster: SparkCluster,
    mq_session_broker: RunningBroker,
    mq_topic: str,
    tmp_path: Path,
) -> None:
    mq_session_broker.create_topic(mq_topic, 2)
    for queue_id in range(2):
        send(mq_session_broker, mq_topic, queue_id, range(50))
    folder = tmp_path / "archive"
    task = in_batches(mq_session_broker, mq_topic, folder, 60)
    with Driver(tmp_path, spark_cluster.master, "job", **task) as driver:
        driver.wait_for_line("tasks ", PATIENCE)
        spark_cluster.kill_an_executor()
        assert [row[2:5] for row in driver.result(PATIENCE)] == [[0, 0, 50], [1, 0, 50]]
    assert archived(spark, folder) == messages(50, 50)


def in_batches(broker: RunningBroker, topic: str, folder: Path, size: int) -> dict[str, Any]:
    """The job for its own driver."""
    arguments = {"topic": topic, "folder": str(folder), "batch": str(size)}
    return {"job": "archive", "arguments": arguments, "name_server": broker.name_server}


AT = Bounds(10, 100)
Q = Queue("T", "b", 0)


@pytest.mark.parametrize(
    ("archived_to", "begin", "lost", "failure"),
    [
        (None, 10, [], None),
        (50, 50, [], None),
        (100, 100, [], None),
        (4, 10, [(Q, 4, 10)], "the broker had deleted the messages from offset 4 to 10 before"),
        (101, None, [], "ends at 100, but the archive has it up to 101: the topic was recreated"),
    ],
)
def test_a_run_starts_at_the_end_of_the_archive(
    archived_to: int | None, begin: int | None, lost: list[Any], failure: str | None
) -> None:
    archived = {} if archived_to is None else {Q: archived_to}
    planned = archive_plan.plan(archived, {Q: AT}, {Q: 10}, {Q: 100})
    assert planned.begins == ({} if begin is None else {Q: begin})
    assert planned.ends == ({} if begin is None else {Q: 100})
    assert list(planned.lost) == lost
    assert len(planned.failures) == (0 if failure is None else 1)
    assert failure is None or failure in planned.failures[0]


def test_messages_deleted_before_a_run_are_reported_once(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    """The gap is made in the archive: its manifest has fewer messages than the broker keeps."""
    mq_session_broker.create_topic(mq_topic, 1)
    send(mq_session_broker, mq_topic, 0, range(6))
    queue = Queue(mq_topic, "broker-a", 0)
    log = ArchiveLog(Folder(spark, str(tmp_path)))
    cluster = ClusterAccess(mq_session_broker.name_server)
    manifest = archive.add(spark, log, cluster, {}, ((queue, 0, 2),))
    assert (manifest.messages, manifest.ends) == (0, {queue: 2})
    outcome = run(spark, mq_session_broker, tmp_path, mq_topic)
    assert outcome.failures == []
    assert archived(spark, tmp_path) == messages(6)[2:]


def test_times_limit_the_archived_messages(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    mq_session_broker.create_topic(mq_topic, 1)
    send(mq_session_broker, mq_topic, 0, range(3))
    run(spark, mq_session_broker, tmp_path, mq_topic, end="1")
    assert not (tmp_path / "_archive").exists()
    later = str(int(time.time() * 1000) + 3_600_000)
    assert run(spark, mq_session_broker, tmp_path, mq_topic, begin=later).tables[0].rows == []
    run(spark, mq_session_broker, tmp_path, mq_topic, begin="1", end=later)
    assert archived(spark, tmp_path) == messages(3)


def test_a_mistake_is_reported_in_one_line(
    spark: "SparkSession", mq_session_broker: RunningBroker, tmp_path: Path
) -> None:
    (tmp_path / "other.parquet").write_text("")
    with pytest.raises(JobError, match="is not an archive, and has files of something else"):
        run(spark, mq_session_broker, tmp_path, "T")
    with pytest.raises(JobError, match="is not an archive: make one"):
        archive.read(spark, str(tmp_path / "none"))
    with pytest.raises(OptionError, match="topic NoSuchTopic: no name server knows it"):
        run(spark, mq_session_broker, tmp_path / "new", "NoSuchTopic")
    broken = tmp_path / "broken" / "_archive"
    broken.mkdir(parents=True)
    (broken / "00000001.json").write_text('{"version": 2}')
    with pytest.raises(JobError, match="version 2 of archives is not known"):
        run(spark, mq_session_broker, broken.parent, "T")
