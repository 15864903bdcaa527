"""A run reports missing and recreated parts of a topic that the archive has."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession
from mq.client.transport.blocking import run as drive
from mq.pipeline.jobs import archive
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.archive_log import ArchiveLog
from mq.pipeline.jobs.declaration import JobError
from mq.pipeline.jobs.storage import Folder
from mq.pipeline.offsets import Queue
from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE
from tests.pipeline.jobs.archives import archived, messages, run, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(3 * PATIENCE)


def make_anew(broker: RunningBroker, topic: str) -> None:
    with BlockingSession(broker.name_server) as session:
        drive(Admin(session).delete_topic_in_broker(broker.address, topic))
    broker.create_topic(topic, 1)


def test_a_recreated_topic_that_outgrew_the_archive_is_reported(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    mq_session_broker.create_topic(mq_topic, 1)
    send(mq_session_broker, mq_topic, 0, range(5))
    assert run(spark, mq_session_broker, tmp_path, mq_topic).failures == []
    assert run(spark, mq_session_broker, tmp_path, mq_topic).failures == []
    make_anew(mq_session_broker, mq_topic)
    send(mq_session_broker, mq_topic, 0, range(8))
    for _ in range(2):
        outcome = run(spark, mq_session_broker, tmp_path, mq_topic)
        assert outcome.tables[0].rows == []
        (failure,) = outcome.failures
        assert "was recreated; archive it to another folder" in failure
    assert archived(spark, tmp_path) == messages(5)


def test_archived_queues_that_the_cluster_lacks_are_reported(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    mq_session_broker.create_topic(mq_topic, 1)
    send(mq_session_broker, mq_topic, 0, range(3))
    log = ArchiveLog(Folder(spark, str(tmp_path)))
    cluster = ClusterAccess(mq_session_broker.name_server)
    away = Queue(mq_topic, "broker-x", 0), Queue(f"{mq_topic}-2", "broker-a", 0)
    archive.add(spark, log, cluster, {}, tuple((queue, 0, 7) for queue in away))
    (failure,) = run(spark, mq_session_broker, tmp_path, mq_topic).failures
    assert f"{away[0]} is in the archive, and not in the cluster: its broker is down" in failure
    assert archived(spark, tmp_path) == messages(3)
    job = archive.Options(topic_pattern=f"{mq_topic}.*", folder=str(tmp_path))
    told = archive.run(spark, job, cluster).failures
    assert [str(queue) in failure for queue, failure in zip(away, told, strict=True)] == [True] * 2
    given = {"allow-absent": "true"}
    assert run(spark, mq_session_broker, tmp_path, mq_topic, **given).failures == []


def test_a_run_fails_if_an_expected_broker_is_down(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    mq_session_broker.create_topic(mq_topic, 1)
    given = {"expected-brokers": "broker-a,broker-x"}
    with pytest.raises(JobError, match=r"broker broker-x of topic .* does not answer"):
        run(spark, mq_session_broker, tmp_path, mq_topic, **given)


def views(spark: "SparkSession", name: str, target: Path) -> str:
    """A folder on a Hadoop file system whose renames are not known to be atomic."""
    target.mkdir()
    settings = spark._jsc.hadoopConfiguration()
    settings.set(f"fs.viewfs.mounttable.{name}.link./data", f"file://{target}")
    return f"viewfs://{name}/data"


def test_if_runs_cannot_exclude_each_other_only_one_with_alone_archives(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    mq_session_broker.create_topic(mq_topic, 1)
    send(mq_session_broker, mq_topic, 0, range(4))
    folder = views(spark, mq_topic.lower(), tmp_path / "viewed")
    options = {"topic": mq_topic, "folder": folder}
    cluster = ClusterAccess(mq_session_broker.name_server)
    with pytest.raises(JobError, match=r"viewfs: two runs .* cannot be told apart, .* --alone"):
        archive.run(spark, archive.Options(topic=(mq_topic,), folder=folder), cluster)
    assert list((tmp_path / "viewed").iterdir()) == []
    alone = archive.Options(topic=(mq_topic,), folder=options["folder"], alone=True)
    assert archive.run(spark, alone, cluster).failures == []
    assert archived(spark, tmp_path / "viewed") == messages(4)
    assert not Folder(spark, folder).write_new("_archive/00000001.json", b"", alone=True)
    with pytest.raises(JobError, match="--alone"):
        Folder(spark, folder).write_new("_archive/00000009.json", b"")
