"""`mq spark list`, `explain` and `submit`, with a stand-in for Spark.

tests/pipeline/jobs/test_submitted.py has the real one.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mq.cli.spark import options
from mq.cli.spark.job import STATUSES
from mq.client import errors as client_errors
from mq.pipeline import errors as pipeline_errors
from mq.pipeline.jobs import JOBS, declaration, load
from tests.cli.commands.spark_stand_in import StandIn, java
from tests.cli.support import Finished, Mq

OUTCOME = {
    "tables": [
        {"name": "queues", "rows": [["Orders", "broker-a", 0, 3, 30, 1_000, 2_000]]},
    ],
    "failures": [],
    "notes": [],
    "page": "",
}


def answering(value: object) -> str:
    return f"answer({value!r})"


@pytest.fixture
def at(tmp_path: Path) -> dict[str, str]:
    """Variables for a run with a Java and a cache of its own."""
    return {
        "JAVA_HOME": str(java(tmp_path)),
        "MQ_CACHE_DIR": str(tmp_path / "cache"),
        "PATH": os.environ["PATH"],
    }


def submit(mq: Mq, spark: StandIn, *words: str, **variables: str) -> Finished:
    job = ("count", "--topic", "Orders", "--spark-home", str(spark.home))
    return mq.having(variables)("spark", "submit", *job, *words)


def test_jobs_are_listed_without_spark(mq: Mq) -> None:
    code = (
        "import sys\nfrom mq.cli.runtime.env import Environment\nfrom mq.cli.main import run\n"
        "assert run(['spark', 'list', '-o', 'json'], Environment.of_process()) == 0\n"
        "print({'pyspark', 'pyarrow', 'numpy', 'asyncio'} & set(sys.modules), file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert shown.stderr == "set()\n"
    rows = json.loads(shown.stdout)["data"]
    assert [row["job"] for row in rows] == list(JOBS)
    assert rows[JOBS.index("count")] == {
        "job": "count",
        "summary": "Count messages and bytes per topic and queue.",
    }


@pytest.mark.parametrize("name", JOBS)
def test_every_job_is_explained(name: str, mq: Mq) -> None:
    job = load(name)
    finished = mq("spark", "explain", name)
    assert finished.status == 0
    for expected in (job.summary, job.example, *(f"--{option.name}" for option in job.options)):
        assert expected in finished.out
    (data,) = mq("spark", "explain", name, "-o", "json").json["data"]
    assert [option["option"][2:] for option in data["options"]] == [o.name for o in job.options]
    assert mq("spark", "explain", name, terminal=True).out.count(f"--{job.options[0].name}") >= 1


@pytest.mark.parametrize("command", ["explain", "submit"])
def test_an_unknown_job_has_near_ones(command: str, mq: Mq) -> None:
    finished = mq("spark", command, "cuont")
    assert (finished.status, finished.err) == (
        64,
        f"mq spark {command}: there is no job 'cuont'\nhint: did you mean count?\n",
    )


@pytest.mark.parametrize("name", JOBS)
def test_no_job_s_option_hides_one_of_the_command(name: str) -> None:
    from mq.cli.main import load as load_command

    own = load_command("spark", "spark submit")
    taken = {flag for option in own.command.get_params(own.context) for flag in option.opts}
    assert not taken & {f"--{option.name}" for option in load(name).options}


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("count --topik A", "no such option: --topik", "did you mean --topic"),
        ("count", "either --topic or --topic-pattern", "see: mq spark explain count"),
        ("count --topic A --begin noon", "--begin: 'noon' is not a time", "such as 15m"),
        ("count --topic A --begin 999999999w", "is not in the years 1 to 9999", "such as 15m"),
        ("count --topic A --master mesos://x", "--master mesos://x", "spark://HOST:7077"),
        ("count --topic A --conf x=1", "--conf 'x=1'", "spark.sql.shuffle.partitions=8"),
        ("count --topic A --deploy-mode cluster", "needs a cluster", "--master yarn"),
        (
            "count --topic A --deploy-mode cluster --master spark://a:7077",
            "standalone clusters do not run drivers in Python",
            "leave out --deploy-mode",
        ),
        ("count --topic A --environment e.tar.gz", "--environment is for executors", "--python"),
        ("count --topic A --report x.html", "job count has no report", "-o markdown"),
        ("count --topic A --columns nosuch", "no column 'nosuch'", "columns: "),
    ],
)
def test_a_mistake_is_told_before_spark_starts(
    words: str, message: str, hint: str, mq: Mq, tmp_path: Path
) -> None:
    finished = mq("spark", "submit", *words.split(), SPARK_HOME=str(tmp_path / "none"))
    assert finished.status == 64
    first, second = finished.err.splitlines()
    assert message in first
    assert second.startswith("hint: ")
    assert hint in second


def test_print_shows_the_command_and_runs_nothing(mq: Mq, tmp_path: Path) -> None:
    spark = StandIn(tmp_path, answering({}))
    key = {"MQ_ACCESS_KEY": "who", "MQ_SECRET_KEY": "s3cret"}
    words = ("--print", "--conf", "spark.x=a b", "--executor-memory", "4g", "--num-executors", "3")
    finished = submit(mq, spark, "--master", "yarn", *words, **key)
    assert finished.status == 0
    assert "s3cret" not in finished.out + finished.err
    shown = shlex.split(finished.out)
    command = shown[shown.index(str(spark.home / "bin" / "spark-submit")) :]
    assert command[1:5] == ["--master", "yarn", "--name", "mq"]
    assert "--conf 'spark.x=a b'" in finished.out
    assert command[command.index("--executor-memory") + 1] == "4g"
    assert command[command.index("--num-executors") + 1] == "3"
    assert f"SPARK_HOME={spark.home}" in shown
    assert not (tmp_path / "seen.json").exists()
    local = submit(mq, spark, "--print").out
    assert "--master 'local[*]'" in local
    assert f"PYSPARK_PYTHON={sys.executable} " in local


def test_an_age_is_the_time_that_it_means_where_the_job_is_submitted() -> None:
    now = datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp()
    exact = "2026-01-31T08:00:00+01:00"
    given = {"job_option_topic": "Orders", "job_option_begin": "15m", "job_option_end": exact}
    arguments = options.texts(load("count"), given, now)
    assert arguments == {
        "topic": "Orders",
        "begin": "2026-07-01T11:45:00.000+00:00",
        "end": exact,
    }


def test_in_a_cluster_the_driver_gets_its_file_from_spark(mq: Mq, tmp_path: Path) -> None:
    spark = StandIn(tmp_path, "")
    words = ("--print", "--master", "k8s://https://k8s:443", "--deploy-mode", "cluster")
    shown = shlex.split(submit(mq, spark, *words, "--environment", "/e.tar.gz").out)
    assert shown[shown.index("--files") + 1] == "mq-job.json"
    assert shown[shown.index("--archives") + 1] == "/e.tar.gz#environment"
    assert "PYSPARK_PYTHON=./environment/bin/python" in shown
    assert shown[-1] == "mq-job.json"


def test_a_dry_run_names_the_command(mq: Mq, tmp_path: Path) -> None:
    spark = StandIn(tmp_path, "")
    finished = submit(mq, spark, "--dry-run", "-o", "json")
    assert "spark-submit --master 'local[*]'" in json.dumps(finished.json["data"])
    assert not (tmp_path / "seen.json").exists()


def test_tables_go_to_standard_output_and_the_log_to_standard_error(
    mq: Mq, tmp_path: Path, at: dict[str, str]
) -> None:
    behaviour = (
        "print('on stdout', flush=True); print('WARN of Spark', file=sys.stderr, flush=True)"
    )
    spark = StandIn(tmp_path, f"{behaviour}\n{answering({'outcome': OUTCOME})}")
    finished = submit(mq, spark, "-o", "csv", **at)
    assert finished.status == 0
    assert finished.err == "on stdout\nWARN of Spark\n"
    assert finished.out == (
        "topic,brokerName,queueId,messages,bytes,first,last\n"
        "Orders,broker-a,0,3,30,1970-01-01T00:00:01.000Z,1970-01-01T00:00:02.000Z\n"
    )
    document = submit(mq, spark, "-o", "json", **at).json
    assert document["totals"] == {"table": "queues"}
    assert document["data"][0]["bytes"] == 30


def test_secrets_go_by_a_private_file_that_is_removed(
    mq: Mq, tmp_path: Path, at: dict[str, str]
) -> None:
    spark = StandIn(tmp_path, answering({"outcome": OUTCOME}))
    key = {"MQ_ACCESS_KEY": "who", "MQ_SECRET_KEY": "s3cret", "MQ_SECURITY_TOKEN": "t0ken"}
    tls = tmp_path / "tls.properties"
    tls.write_text("tls.server.mode=enforcing\ntls.client.keyPassword=s3cret\n")
    words = ("-n", "a:1;b:2", "--tls-config", str(tls))
    assert submit(mq, spark, *words, **at, **key).status == 0
    seen = spark.seen
    assert (seen["mode"], seen["folderMode"]) == (0o600, 0o700)
    assert seen["given"]["cluster"] == {
        "nameServer": "a:1;b:2",
        "accessKey": "who",
        "secretKey": "s3cret",
        "securityToken": "t0ken",
        "tls": {"tls.client.keyPassword": "s3cret"},
    }
    elsewhere = json.dumps([seen["arguments"], seen["variables"]])
    assert "s3cret" not in elsewhere
    assert "t0ken" not in elsewhere
    assert not Path(seen["arguments"][-1]).parent.exists()


def test_the_context_says_which_cluster(mq: Mq, tmp_path: Path, at: dict[str, str]) -> None:
    spark = StandIn(tmp_path, answering({"outcome": OUTCOME}))
    key = tmp_path / "key.yml"
    key.write_text("accessKey: of-context\nsecretKey: s3cret\n")
    key.chmod(0o600)
    assert mq("context", "add", "prod", "-n", "prod:9876", "--acl-file", str(key)).status == 0
    assert submit(mq, spark, "--context", "prod", **at).status == 0
    assert spark.seen["given"]["cluster"] == {
        "nameServer": "prod:9876",
        "accessKey": "of-context",
        "secretKey": "s3cret",
    }


def test_a_job_that_is_partly_done_ends_with_1(mq: Mq, tmp_path: Path, at: dict[str, str]) -> None:
    partly = {**OUTCOME, "failures": ["broker-b: away"]}
    spark = StandIn(tmp_path, f"{answering({'outcome': partly})}\nsys.exit(1)")
    finished = submit(mq, spark, **at)
    assert finished.status == 1
    assert finished.err == "mq spark submit: broker-b: away\n"
    assert "broker-a" in finished.out


def test_the_page_of_a_report_is_written_where_it_is_wanted(
    mq: Mq, tmp_path: Path, at: dict[str, str]
) -> None:
    job = load("lag-report")
    made = {
        "tables": [{"name": shape.name, "rows": []} for shape in job.tables],
        "failures": [],
        "notes": [],
        "page": "<html>lag</html>",
    }
    spark = StandIn(tmp_path, answering({"outcome": made}))
    words = ("spark", "submit", "lag-report", "--folder", "/data", "--spark-home", str(spark.home))
    page = tmp_path / "lag.html"
    run = mq.having(at)
    finished = run(*words, "--report", str(page), "-o", "json", "--columns", "group,lag")
    assert finished.status == 0
    assert page.read_text() == "<html>lag</html>"
    finished = run(*words, "--report", "-")
    assert (finished.status, finished.out) == (0, "<html>lag</html>")
    finished = run(*words, "--report", str(tmp_path / "none" / "lag.html"))
    assert finished.status == 73
    assert "--report: no directory" in finished.err


def test_every_kind_of_error_with_a_status_of_its_own_is_one_that_there_is() -> None:
    """They come from the driver, with the names of their classes."""
    kinds = {
        name
        for module in (client_errors, pipeline_errors, declaration)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert set(STATUSES) - kinds == {"MissingModule"}  # which the driver makes up
    ours = {name for name, kind in vars(declaration).items() if _is_job_error(kind)}
    assert ours <= set(STATUSES)


def _is_job_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, declaration.JobError)


@pytest.mark.parametrize(
    ("kind", "message", "status"),
    [
        ("Unknown", "option topic: topic T: no name server knows it", 66),
        ("ClusterAway", "option nameServer: a:1: refused", 69),
        ("KeyRefused", "option aclFile: NO_PERMISSION", 77),
        ("OptionError", "option nameServer: it is needed: the address of a name server", 64),
        ("OptionError", "option subExpression: no", 64),
        ("JobError", "the folder has no name; for example: /data/offsets", 64),
        ("JobError", "s3a://b/x: with s3a: two runs at the same time cannot be told apart", 64),
        ("BrokersAway", "no broker answers: broker-a: a:2: refused", 69),
        ("FolderFailed", "file:/data/x: java.io.IOException: No space left on device", 74),
        ("FolderRefused", "/data/x: Permission denied", 77),
        ("BadArchive", "/data/x/1.json is not the manifest of an archive: KeyError()", 65),
        ("DataLoss", "gone", 65),
        ("MissingModule", "orjson is missing there", 78),
        ("Py4JJavaError", "java.io.IOException: disk full", 69),
    ],
)
def test_an_error_of_the_driver_is_one_line_with_its_status(
    kind: str, message: str, status: int, mq: Mq, tmp_path: Path, at: dict[str, str]
) -> None:
    error = {"error": {"type": kind, "message": message}}
    spark = StandIn(tmp_path, f"{answering(error)}\nsys.exit(1)")
    finished = submit(mq, spark, **at)
    assert (finished.status, finished.out) == (status, "")
    assert finished.err.startswith(f"mq spark submit: {message}\nhint: ")


def test_a_spark_that_ends_early_is_told(mq: Mq, tmp_path: Path, at: dict[str, str]) -> None:
    log = "print('ERROR All masters are unresponsive! Giving up.')\nsys.exit(1)"
    finished = submit(mq, StandIn(tmp_path, log), **at)
    assert finished.status == 69
    assert "the cluster's master does not answer\nhint: check the address" in finished.err
    finished = submit(mq, StandIn(tmp_path / "other", "sys.exit(3)"), **at)
    assert "Spark ended with status 3 before the job\n" in finished.err


@pytest.mark.parametrize(
    ("variables", "status", "message"),
    [
        ({"JAVA_HOME": "NONE"}, 78, "which has no bin/java"),
        ({"PATH": "NONE"}, 69, "no Java found; Spark needs release 17 or later"),
        ({"JAVA_HOME": "OLD"}, 78, "is Java 8; Spark needs release 17 or later"),
    ],
)
def test_a_missing_or_old_java_is_told_in_one_line(
    variables: dict[str, str], status: int, message: str, mq: Mq, tmp_path: Path
) -> None:
    spark = StandIn(tmp_path, answering({"outcome": OUTCOME}))
    places = {"NONE": str(tmp_path / "none"), "OLD": str(java(tmp_path, "1.8.0_402"))}
    given = {name: places[value] for name, value in variables.items()}
    finished = submit(mq, spark, MQ_CACHE_DIR=str(tmp_path / "cache"), **given)
    assert (finished.status, finished.out) == (status, "")
    first, second = finished.err.splitlines()
    assert message in first
    assert second.startswith("hint: install it (apt-get install openjdk-17")


def test_a_missing_spark_is_told_in_one_line(
    mq: Mq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("spark", "submit", "count", "--topic", "T")
    finished = mq(*words, SPARK_HOME=str(tmp_path))
    assert finished.status == 78
    assert "which has no bin/spark-submit\nhint: correct SPARK_HOME" in finished.err
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as where it is not installed
    finished = mq(*words, PATH=str(tmp_path))
    assert finished.status == 69
    assert "no Spark found: " in finished.err
    assert "hint: pip install 'mq[spark]', or export SPARK_HOME=" in finished.err


def test_the_zip_has_all_that_executors_import_and_is_made_once(
    mq: Mq, tmp_path: Path, at: dict[str, str]
) -> None:
    spark = StandIn(tmp_path, answering({"outcome": OUTCOME}))
    assert submit(mq, spark, **at).status == 0
    arguments = spark.seen["arguments"]
    path = Path(arguments[arguments.index("--py-files") + 1])
    before = path.stat().st_ino
    assert submit(mq, spark, **at).status == 0
    assert spark.seen["arguments"][arguments.index("--py-files") + 1] == str(path)
    assert path.stat().st_ino == before
    names = zipfile.ZipFile(path).namelist()
    assert "mq/pipeline/jobs/driver.py" in names
    assert not [name for name in names if name.startswith(("mq/cli/", "mq/daemons/"))]
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r}); import mq.pipeline.source as s; print(s)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert str(path) in shown.stdout, shown.stderr


WAITING = """\
import signal
signals = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # none is lost before it is waited for
print("ready", flush=True)
number = signal.sigwait(signals)
print("got", number.name, flush=True)
sys.exit(128 + number)
"""


@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_signals_are_passed_on_and_nothing_is_left(
    number: signal.Signals, ends: int, tmp_path: Path, at: dict[str, str]
) -> None:
    spark = StandIn(tmp_path, WAITING)
    command = [sys.executable, "-m", "mq", "spark", "submit", "count", "--topic", "T"]
    with subprocess.Popen(
        [*command, "--spark-home", str(spark.home)],
        env={**os.environ, **at, "MQ_CONFIG_DIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(30) == ends
    assert f"got {number.name}" in rest
    assert not Path(spark.seen["arguments"][-1]).parent.exists()
