"""The driver program: `spark-submit … FILE`, with a file that describes the job.

The file is JSON with mode 600, because it may hold secrets:

    {"job": "count", "arguments": {"topic": "Orders"},
     "cluster": {"nameServer": "host:9876", "accessKey": …, "secretKey": …, "securityToken": …,
                 "tls": {"tls.client.trustCertPath": …}},
     "answer": "/path/of/the/answer" or null}

The answer is JSON, too: {"outcome": {…}}, or {"error": {"type": …, "message": …}}. Without a path
for it (the driver runs on another machine) it is a line of standard output. The exit status is 0 if
the job is done, else 1: spark-submit does not preserve others on every kind of cluster.
"""

import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mq.pipeline.jobs import load
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.declaration import Job, JobError
from mq.pipeline.jobs.job_result import JobResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_LINE = "mq-answer: "  # prefix of an answer on standard output

log = logging.getLogger(__name__)

# Spark reports errors of Python tasks and of the data source as text: traces with our error last.
_OURS = re.compile(
    r"^(?:.*?: )?mq\.(?:client|pipeline|protocol)\.[\w.]*?(\w+): (.+)$", re.MULTILINE
)
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


def main(arguments: list[str] | None = None) -> int:
    """Run the job of the file that is the only argument, write the answer, and return the
    status.
    """
    (path,) = sys.argv[1:] if arguments is None else arguments
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    for noisy in ("py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    given = json.loads(_found(path).read_bytes())
    try:
        outcome = run(given)
    except Exception as error:
        kind, message = explained(error)
        if not isinstance(error, JobError):
            log.error("job %s failed", given["job"], exc_info=True)
        _answer(given["answer"], {"error": {"type": kind, "message": message}})
        return 1
    _answer(given["answer"], {"outcome": outcome.to_json()})
    return 1 if outcome.failures else 0


def run(given: Mapping[str, Any]) -> JobResult:
    """Run the job of a file, in a session that ends with it."""
    job = load(given["job"])
    options = job.read(given["arguments"])
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"mq {job.name}").getOrCreate()
    try:
        return run_in(spark, job, options, given)
    finally:
        spark.stop()


def run_in(spark: "SparkSession", job: Job, options: Any, given: Mapping[str, Any]) -> JobResult:
    """Run a job in a session, with the cluster that the file describes."""
    import mq.pipeline

    mq.pipeline.register(spark)
    folder = os.path.dirname(given["answer"]) if given["answer"] else None
    with cluster_access(given["cluster"], folder) as cluster:
        return job.run(spark, options, cluster)


@contextmanager
def cluster_access(given: Mapping[str, Any], folder: str | None) -> Iterator[ClusterAccess]:
    """Provide the access that the file describes; its key is in a file while the block runs.

    That file is in `folder`, which belongs to the submitter, who removes it if this process is
    killed.
    """
    if not given.get("accessKey"):
        yield ClusterAccess(given["nameServer"], None, given.get("tls"))
        return
    names = ("accessKey", "secretKey", "securityToken")
    key = {name: given[name] for name in names if given.get(name)}
    descriptor, path = tempfile.mkstemp(dir=folder, prefix="key-", suffix=".yml")  # mode 600
    try:
        with open(descriptor, "w") as file:
            json.dump(key, file)  # which is also YAML
        yield ClusterAccess(given["nameServer"], path, given.get("tls"))
    finally:
        os.unlink(path)


def explained(error: BaseException) -> tuple[str, str]:
    """Return the class name of an error, and its message in one line.

    For an error that came through Spark this is our error that caused it, if there is one.
    """
    text = str(error)
    if missing := _MISSING.search(text):
        needed = "the Python of executors needs pyarrow, numpy and orjson"
        return "MissingModule", f"{needed}: {missing[1].split('.')[0]} is missing there"
    if isinstance(error, ModuleNotFoundError):
        return "MissingModule", f"the driver's Python {sys.executable} has no {error.name}"
    if type(error).__module__.startswith("mq."):
        return type(error).__name__, _first_line(text)
    if ours := _OURS.findall(text):
        return str(ours[-1][0]), str(ours[-1][1])
    return type(error).__name__, _first_line(text)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "it does not say why")


def _found(path: str) -> Path:
    """Return the path of the file; if --files brought it, it is in the driver's working
    directory.
    """
    given = Path(path)
    return given if given.exists() else Path(given.name)


def _answer(path: str | None, answer: Mapping[str, Any]) -> None:
    text = json.dumps(answer)
    if path is None:
        print(f"{ANSWER_LINE}{text}", flush=True)
        return
    whole = Path(f"{path}.new")
    whole.write_text(text)
    whole.replace(path)


if __name__ == "__main__":
    sys.exit(main())
