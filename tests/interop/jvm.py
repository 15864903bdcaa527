"""The environment of Java programs: jars from Maven, our classes, options, a home."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "java"

# JDK 17 hides packages that these releases access.
JDK_FLAGS = """
--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED
--add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/jdk.internal.misc=ALL-UNNAMED
--add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util.concurrent=ALL-UNNAMED
--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED --add-exports=java.base/sun.nio.ch=ALL-UNNAMED
--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED
""".split()

# A test's peer lives for seconds: the quick compiler and the small collector start it sooner.
SHORT_LIVED = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

_LOGBACK = b"""<configuration>
  <statusListener class="ch.qos.logback.core.status.NopStatusListener"/>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>${user.home}/peer.log</file><encoder><pattern>%d %-5level %msg%n</pattern></encoder>
  </appender>
  <root level="warn"><appender-ref ref="FILE"/></root>
</configuration>
"""


def require_java() -> None:
    """Skip the test if a JDK or Maven is missing; with CI=true fail instead."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if not missing:
        return
    reason = f"{', '.join(missing)} not found: apt-get install openjdk-17-jdk-headless maven"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def jdk() -> str:
    """The version of the JDK, the only one that can read its class archives; "" without a JDK."""
    java = Path(shutil.which("java") or "java").resolve()
    return f"{java} {java.stat().st_mtime_ns}" if java.exists() else ""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between test processes, so that work is done once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def jars(release: str) -> Path:
    """Return the folder of the jars of `release`, a pom's name such as `server-4.9.7`.

    Maven copies them into the cache on the first call. Skips as `require_java` does.
    """
    require_java()
    pom = HERE / "poms" / f"{release}.xml"
    folder = CACHE / release
    if not pom.is_file():
        raise ValueError(f"no pom for {release} in {pom.parent}")
    with locked(CACHE / f"{release}.lock"):
        if not (folder.is_dir() and any(folder.glob("*.jar"))):
            partial = CACHE / f"{release}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            subprocess.run([*command, f"-DoutputDirectory={partial}"], check=True)
            partial.rename(folder)
    return folder


def compiled(release: str, folder: Path, source: Path) -> Path:
    """Compile `source` once per content, which identifies the folder."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    target = CACHE / f"classes-{release}" / f"{source.stem}-{digest}"
    with locked(CACHE / f"classes-{release}.lock"):
        if not target.is_dir():
            partial = target.with_suffix(".partial")
            command = ["javac", "-nowarn", "-cp", f"{folder}/*", "-d", str(partial), str(source)]
            subprocess.run(command, check=True)
            partial.rename(target)
    return target


def write_home(home: Path) -> None:
    """Make a ROCKETMQ_HOME that only configures the folders and levels of the logs."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    # 4.9 reads the first three; 5.x the last, whose path `java_command` of peers sets.
    names = ("logback_broker.xml", "logback_namesrv.xml", "logback_tools.xml", "rmq.logback.xml")
    for name in names:
        (conf / name).write_bytes(_LOGBACK)


def write_properties(path: Path, settings: Mapping[str, object]) -> None:
    """Write a properties file, for -c."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
