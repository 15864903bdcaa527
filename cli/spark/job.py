"""The exchange with a Spark driver: the job's description file, and the driver's answer."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mq.cli.runtime.call import Call
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.cli.spark.command import JOB_FILE
from mq.cli.spark.running import SubmitOutcome
from mq.pipeline.jobs.declaration import Job
from mq.pipeline.jobs.job_result import JobResult

# The exit status for errors of a driver, by class name; any other is UNAVAILABLE.
STATUSES = {
    "JobError": Status.USAGE,
    "JobOptionError": Status.USAGE,
    "SchemaError": Status.USAGE,
    "ClientError": Status.USAGE,
    "RouteNotFound": Status.NOT_FOUND,
    "TopicNotExist": Status.NOT_FOUND,
    "SubscriptionGroupNotExist": Status.NOT_FOUND,
    "NoPermission": Status.NO_PERMISSION,
    "RequestTimeout": Status.TRY_AGAIN,
    "SystemBusy": Status.TRY_AGAIN,
    "FlowControl": Status.TRY_AGAIN,
    "DataLoss": Status.BAD_DATA,
    "BadAnswer": Status.PROTOCOL,
    "MissingModule": Status.CONFIG,
    "OptionError": Status.USAGE,
    "Unknown": Status.NOT_FOUND,
    "KeyRefused": Status.NO_PERMISSION,
    "ClusterAway": Status.UNAVAILABLE,
    "BrokersAway": Status.UNAVAILABLE,
    "FolderFailed": Status.IO_ERROR,
    "FolderRefused": Status.NO_PERMISSION,
    "BadArchive": Status.BAD_DATA,
}
# Errors before the driver starts, by a line of Spark's log.
_CAUSES = (
    (
        re.compile(r"UnsupportedClassVersionError"),
        "Spark does not run on this Java",
        "set JAVA_HOME to a Java of release 17 or later",
    ),
    (
        re.compile(r"All masters are unresponsive|Failed to connect to master"),
        "the cluster's master does not answer",
        "check the address in --master, and that the master is running",
    ),
    (
        re.compile(r"PYTHON_VERSION_MISMATCH"),
        "executors have another Python release than the driver",
        "name a Python that both have: --python PATH, or pack one: --environment FILE",
    ),
    (
        re.compile(r"No module named '(pyspark|mq)"),
        "the driver's Python does not find the modules of Spark or mq",
        "check that SPARK_HOME is a complete installation of Spark 4.0 or later",
    ),
    (
        re.compile(r"HADOOP_CONF_DIR or YARN_CONF_DIR must be set"),
        "the location of YARN is not configured",
        "export HADOOP_CONF_DIR=DIRECTORY",
    ),
    (re.compile(r"OutOfMemoryError"), "Spark ran out of memory", "use --driver-memory 4g"),
)


def description(call: Call, job: Job, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the description for the driver; it contains the access key of the cluster."""
    cluster: dict[str, Any] = {"nameServer": ";".join(call.name_servers)}
    key = call.credentials()
    if key is not None:
        cluster |= {"accessKey": key.access_key, "secretKey": key.secret_key}
        if key.security_token is not None:
            cluster["securityToken"] = key.security_token
    if call.tls_config is not None:
        call.tls()  # reports errors before Spark is started
        cluster["tls"] = _tls(call.tls_config)
    return {"job": job.name, "arguments": dict(arguments), "cluster": cluster, "answer": None}


def _tls(path: str) -> dict[str, str]:
    """Return the client's part of a tls.properties file, with absolute paths."""
    from mq.cli.runtime.secrets import tls_properties

    properties = tls_properties(path)
    if properties.get("tls.test.mode.enable", "").strip().lower() == "true":
        return {}  # as in Java, which then ignores the others
    return {
        name: os.path.abspath(value) if name.endswith("Path") and value else value
        for name, value in properties.items()
        if name.startswith("tls.client.")
    }


@contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a private temporary directory, which is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="mq-spark-"))  # mode 700
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write(folder: Path, description: Mapping[str, Any]) -> Path:
    """Write the private file for the driver."""
    path = folder / JOB_FILE
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        json.dump(description, file)
    return path


def outcome(answer: Path, ended: SubmitOutcome, job: Job) -> JobResult:
    """Return the driver's answer. Raises CommandError for an error, or without an answer."""
    try:
        given = json.loads(answer.read_bytes())
    except FileNotFoundError:
        raise without_answer(ended) from None
    if "error" in given:
        raise failed(given["error"]["type"], given["error"]["message"])
    return JobResult.from_json(given["outcome"], job.tables)


def failed(kind: str, message: str) -> CommandError:
    """Return the driver's error as a CommandError."""
    status = STATUSES.get(kind, Status.UNAVAILABLE)
    hint = "for details see the log above"
    if kind == "MissingModule":
        hint = "install it there, name another Python (--python), or pack one: --environment"
    return CommandError(message, hint=hint, status=status)


def without_answer(ended: SubmitOutcome) -> CommandError:
    """Return the error of a Spark that ended before the job."""
    text = "\n".join(ended.lines)
    for pattern, message, hint in _CAUSES:
        if pattern.search(text):
            return CommandError(message, hint=hint, status=Status.UNAVAILABLE)
    how = f"with status {ended.status}" if ended.status >= 0 else f"by signal {-ended.status}"
    return CommandError(
        f"Spark ended {how} before the job",
        hint="for the cause see the log above",
        status=Status.UNAVAILABLE,
    )
