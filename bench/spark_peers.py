"""The environment of the Spark measurements: Spark in an environment of its own, Kafka, and its
broker.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.brokers import Daemon
from tests.interop.jvm import require_java, write_properties
from tests.interop.ports import free_port

KAFKA = "4.3.1"
# Kafka's connector is released with Spark; the newest one on Maven Central with all dependencies.
SPARK = "4.2.0"

# ApiVersions, the first request of any client: length, key 18, version, id, no client id.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)

_HERE = Path(__file__).parent
_ROOT = _HERE.parent
_CACHE = _ROOT / ".cache" / "spark"


def python() -> Path:
    """Return the interpreter of an environment with this Spark and this checkout as mq."""
    folder = _CACHE / f"venv-{SPARK}"
    with _locked(folder):
        if not (folder / "installed").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            pip.append("--disable-pip-version-check")
            subprocess.run([*pip, "--editable", f"{_ROOT}[spark]", f"pyspark=={SPARK}"], check=True)
            (folder / "installed").touch()
    return folder / "bin" / "python"


def jars(name: str) -> Path:
    """Return the folder of the jars of a pom in this folder, downloaded once by Maven."""
    require_java()
    folder = _CACHE / name
    with _locked(folder):
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            command = ["mvn", "-q", "-B", "-f", str(_HERE / "poms" / f"{name}.xml")]
            command += ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
            subprocess.run(command, check=True)
            partial.rename(folder)
    return folder


def kafka(folder: Path) -> Daemon:
    """Start a Kafka broker that is its own controller; a new topic has eight partitions."""
    home, port = folder / "kafka", free_port()
    home.mkdir(parents=True)
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
        "log.dirs": home / "logs",
        "num.partitions": 8,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    file = home / "server.properties"
    write_properties(file, settings)
    path = f"{jars(f'kafka-{KAFKA}')}/*"
    identity = "4L6g3nShT-eMCtK--X86sw"  # arbitrary: 16 bytes in URL-safe base 64
    form = ["kafka.tools.StorageTool", "format", "-t", identity, "-c", str(file)]
    with open(home / "output", "ab") as output:
        subprocess.run(["java", "-cp", path, *form], check=True, stdout=output, stderr=output)
    command = ["java", "-Xms1g", "-Xmx1g", "-cp", path, "kafka.Kafka", str(file)]
    return KafkaDaemon(f"Kafka {KAFKA}", command, home, port)


class KafkaDaemon(Daemon):
    """Answers other requests than RocketMQ's brokers."""

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(_API_VERSIONS)
                return bool(connection.recv(4))
        except OSError:
            return False


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment() -> dict[str, str]:
    """Return the environment of a process that runs Spark: its workers must use the same one."""
    own = {**os.environ, "PYSPARK_PYTHON": str(python())}
    own.pop("SPARK_HOME", None)
    return own
