"""mq as a zip from which executors import it, independent of the local installation.

Spark does not accept wheels, and executors have no mq installed. The zip contains the pure Python
that jobs need: protocol, client and pipeline. Other imports must be installed there: `NEEDED`. The
driver registers the data source itself.
"""

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.client.operations import local_files

NEEDED = ("pyarrow", "numpy", "orjson")  # at executors and the driver, besides pyspark

_PARTS = ("protocol", "client", "pipeline")
_KEPT = 30 * 86400  # seconds for which a zip is kept after its last use
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # so that equal files give equal zips

# In a separate directory: Spark adds the program's directory to the path, where a job's module
# would hide others.
_PROGRAM = """\
import sys

from mq.pipeline.jobs.driver import main

sys.exit(main())
"""


class Package(NamedTuple):
    """Paths of the zip and of the driver program, and the content of the zip."""

    zip: Path
    program: Path
    content: bytes

    def write(self) -> None:
        """Write both files, unless they exist. Raises CommandError."""
        try:
            for folder in (self.zip.parent, self.program.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path, content in ((self.zip, self.content), (self.program, _PROGRAM.encode())):
                if not path.exists() or path.read_bytes() != content:
                    local_files.replace(path, content)
            self._remove_old()
        except OSError as error:
            raise CommandError(
                f"cannot write to {self.zip.parent}: {error.strerror}",
                hint="set MQ_CACHE_DIR to another directory",
                status=Status.CANNOT_CREATE,
            ) from error

    def _remove_old(self) -> None:
        """Remove zips of earlier releases, unless a job may still need them."""
        os.utime(self.zip)
        newest = self.zip.stat().st_mtime
        for other in self.zip.parent.glob("mq-*.zip"):
            if other.stat().st_mtime < newest - _KEPT:
                other.unlink(missing_ok=True)


def package(cache: Path) -> Package:
    """Return the current mq; the zip's name contains the digest of its content."""
    files = dict(sorted(_files()))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), content, zipfile.ZIP_DEFLATED)
    content = buffer.getvalue()
    digest = hashlib.sha256(content).hexdigest()[:16]
    folder = cache / "spark"
    return Package(folder / f"mq-{digest}.zip", folder / "program" / "mq_job.py", content)


def _files() -> Iterator[tuple[str, bytes]]:
    (root,) = import_module("mq").__path__
    yield "mq/__init__.py", (Path(root) / "__init__.py").read_bytes()
    for part in _PARTS:
        (folder,) = import_module(f"mq.{part}").__path__
        for path in Path(folder).rglob("*.py"):
            yield f"mq/{part}/{path.relative_to(folder).as_posix()}", path.read_bytes()
