"""`mq spark submit` with a real Spark installed elsewhere, and a Python without mq."""

import asyncio
import json
import os
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from mq.client.credentials import AccessKey
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.protocol.message import Message
from mq.testing import RunningBroker
from tests.daemons.broker.acl.accounts import home
from tests.pipeline.clusters import SparkCluster
from tests.pipeline.conftest import PATIENCE, require_spark
from tests.pipeline.jvm import jvm_options

pytestmark = pytest.mark.timeout(2 * PATIENCE)

ACCOUNTS = "accounts:\n  - {accessKey: administrator, secretKey: very_s3cret_key, admin: true}\n"
KEY = AccessKey("administrator", "very_s3cret_key")
NEEDED = ("pyspark", "py4j", "pyarrow", "numpy", "orjson")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for a Spark in another folder and a Python with the libraries of Spark but without
    mq.
    """
    require_spark()
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "python", symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "python" / "lib" / version / "site-packages"
    for name in NEEDED:
        spec = find_spec(name)
        assert spec is not None and spec.submodule_search_locations
        found = Path(spec.submodule_search_locations[0])
        for path in (found, found.with_name(f"{name}.libs")):
            if path.exists():
                (packages / path.name).symlink_to(path)
    (folder / "spark").symlink_to(packages / "pyspark")
    python = str(folder / "python" / "bin" / "python")
    has_mq = subprocess.run([python, "-c", "import mq"], cwd=folder, capture_output=True)
    assert b"No module named 'mq'" in has_mq.stderr
    return {
        "SPARK_HOME": str(folder / "spark"),
        "PYSPARK_PYTHON": python,
        "MQ_CONFIG_DIR": str(folder / "config"),
        "MQ_CACHE_DIR": str(folder / "cache"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker that requires a key, with three messages in topic Orders."""
    home(tmp_path, ACCOUNTS)
    settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}

    async def fill(name_server: str) -> None:
        async with (
            Session(name_server, credentials=KEY) as session,
            Producer(session) as producer,
        ):
            for body in (b"1", b"22", b"333"):
                await producer.send(Message("Orders", body))

    with RunningBroker(tmp_path / "store", settings) as broker:
        asyncio.run(fill(broker.name_server))
        yield broker


def submitting(variables: dict[str, str], *words: str) -> "subprocess.Popen[str]":
    small = ["--driver-memory", "512m", "--conf", "spark.ui.enabled=false"]
    for jvm in ("driver", "executor"):
        small += ["--conf", f"spark.{jvm}.extraJavaOptions={jvm_options()}"]
    return subprocess.Popen(
        [sys.executable, "-m", "mq", "spark", "submit", *words, *small, "-o", "json"],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def what_others_see(process: int) -> bytes:
    """Arguments and variables of a process and all its descendants."""
    shown = b""
    with suppress(OSError):  # it has ended meanwhile
        for path in (f"/proc/{process}/cmdline", f"/proc/{process}/environ"):
            shown += Path(path).read_bytes()
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                shown += what_others_see(int(child))
    return shown


def test_the_access_key_of_a_job_is_not_visible_to_others(
    guarded: RunningBroker, elsewhere: dict[str, str], tmp_path: Path
) -> None:
    key = tmp_path / "key.yml"
    key.write_text("accessKey: administrator\nsecretKey: very_s3cret_key\n")
    key.chmod(0o600)
    words = ("count", "--topic", "Orders", "--master", "local[2]", "-n", guarded.name_server)
    with submitting(elsewhere, *words, "--acl-file", str(key)) as process:
        assert process.stderr is not None and process.stdout is not None
        log = ""
        while "Running Spark version" not in log:
            line = process.stderr.readline()
            assert line, log
            log += line
        seen = what_others_see(process.pid)
        out, rest = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, log + rest
    assert b"mq_job.py" in seen
    assert b"very_s3cret_key" not in seen
    assert "very_s3cret_key" not in log + rest + out
    rows = json.loads(out)["data"]
    assert sum(row["messages"] for row in rows) == 3
    assert sum(row["bytes"] for row in rows) == 6


@pytest.mark.long
def test_a_job_runs_on_a_cluster_whose_executors_have_no_mq(
    spark_cluster: SparkCluster,
    mq_session_broker: RunningBroker,
    mq_topic: str,
    elsewhere: dict[str, str],
) -> None:
    for number in range(8):
        mq_session_broker.send(mq_topic, b"%d" % number)
    words = ("count", "--topic", mq_topic, "--master", spark_cluster.master)
    more = ("-n", mq_session_broker.name_server, "--executor-memory", "512m")
    with submitting(elsewhere, *words, *more, "--num-executors", "2") as process:
        out, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, log
    document = json.loads(out)
    assert document["totals"] == {"table": "queues"}
    assert sum(row["messages"] for row in document["data"]) == 8


@pytest.mark.long
def test_executors_use_an_environment_submitted_with_the_job(
    spark_cluster: SparkCluster,
    mq_session_broker: RunningBroker,
    mq_topic: str,
    elsewhere: dict[str, str],
    tmp_path: Path,
) -> None:
    mq_session_broker.send(mq_topic, b"one")
    python = Path(elsewhere["PYSPARK_PYTHON"]).parents[1]
    packed = tmp_path / "packed.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        for path in python.iterdir():
            archive.add(path, path.name)
    words = ("count", "--topic", mq_topic, "--master", spark_cluster.master)
    more = ("-n", mq_session_broker.name_server, "--executor-memory", "512m")
    without = {name: value for name, value in elsewhere.items() if name != "PYSPARK_PYTHON"}
    with submitting(without, *words, *more, "--environment", str(packed)) as process:
        out, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, log
    assert json.loads(out)["data"][0]["messages"] == 1


@pytest.mark.long
def test_a_missing_topic_gives_one_line_and_exit_status_66(
    mq_session_broker: RunningBroker, elsewhere: dict[str, str]
) -> None:
    words = ("count", "--topic", "NoSuchTopic", "--master", "local[1]")
    with submitting(elsewhere, *words, "-n", mq_session_broker.name_server) as process:
        out, log = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (66, "")
    message, hint = log.splitlines()[-2:]
    assert message.startswith("mq spark submit: option topic: topic NoSuchTopic: no name server")
    assert hint == "hint: for details see the log above"
