"""Folders for the output of jobs, on any file system that Spark reaches: file:, hdfs:, s3a:, ….

Spark can access them, with its settings and secrets; this module uses the same Java classes.

A file appears whole or not at all. Spark's readers ignore names that begin with `_` or `.`: an
unfinished file has such a name, and gets its own by a rename. Object stores have no rename: there
the file is copied, which is atomic, too.

If two processes create a file of the same name at the same time, one must fail. This holds where a
rename is one step that replaces nothing (HDFS), with links (local folders), and in object stores
that create an object only if it is absent (S3 with Hadoop 3.4.2 or later). Elsewhere the user must
declare that no other process writes.
"""

import errno
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mq.pipeline.jobs.declaration import FolderFailed, FolderRefused, JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_RENAMES_ONCE = ("hdfs", "webhdfs", "swebhdfs")  # one step, which replaces nothing
# The capability and option of Hadoop's file systems to create a file, when it is closed, only if it
# is absent (Options.CreateFileOptionKeys).
_CONDITIONAL = "fs.option.create.conditional.overwrite"
# Hadoop's file systems name the error by its class; errors of Java only in its text.
_REFUSED = re.compile(r"AccessControl|AccessDenied|Permission denied")
# file systems without links
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class Folder:
    """A folder, which need not exist yet. Names in it are relative, with `/`.

    Methods raise JobError if the file system fails.
    """

    def __init__(self, spark: "SparkSession", path: str) -> None:
        if not path.strip():
            raise JobError("the folder has no name; for example: /data/offsets")
        try:
            jvm, java_spark = spark._jvm, spark._jsc
        except AttributeError:
            raise JobError("this job needs a session of its own, not Spark Connect") from None
        assert jvm is not None
        self._java: Any = jvm
        with _explained(path):
            given = self._java.org.apache.hadoop.fs.Path(path)
            self._configuration = java_spark.hadoopConfiguration()
            self._files = given.getFileSystem(self._configuration)
            self._root = self._files.makeQualified(given)
        self._spark = spark
        self.path: str = self._root.toString()

    def child(self, name: str) -> str:
        """Return the whole path of a name."""
        path: str = self._at(name).toString()
        return path

    def exists(self, name: str = "") -> bool:
        with _explained(self.path):
            return bool(self._files.exists(self._at(name)))

    def names(self, name: str = "") -> list[str]:
        """Return the names in a folder, sorted, without hidden ones; none if it does not exist."""
        with _explained(self.path):
            if not self._files.exists(self._at(name)):
                return []
            found = [each.getPath().getName() for each in self._files.listStatus(self._at(name))]
        return sorted(each for each in found if not each.startswith("."))

    def files(self, name: str = "") -> list[str]:
        """Return the data files in a folder and its subfolders, sorted, relative to `name`."""
        start = self.child(name)
        found = []
        with _explained(self.path):
            if not self._files.exists(self._at(name)):
                return []
            every = self._files.listFiles(self._at(name), True)
            while every.hasNext():
                path = every.next().getPath().toString()
                relative = path[len(start) :].lstrip("/")
                if not any(part.startswith(("_", ".")) for part in relative.split("/")):
                    found.append(relative)
        return sorted(found)

    def read(self, name: str) -> bytes:
        with _explained(self.child(name)):
            stream = self._files.open(self._at(name))
            try:
                return bytes(self._java.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def require_one_writer(self) -> None:
        """Raises JobError if the file system cannot detect two writers of the same file."""
        if self._scheme not in ("file", *_RENAMES_ONCE) and not self._makes_if_absent():
            raise self._unsafe()

    def write_new(self, name: str, content: bytes, *, alone: bool = False) -> bool:
        """Write a file; False if there is one of that name, which then stays unchanged.

        Raises JobError if this cannot be guaranteed, unless `alone` declares that no other process
        writes.
        """
        with _explained(self.child(name)):
            if self._scheme not in ("file", *_RENAMES_ONCE) and self._makes_if_absent():
                return self._make_if_absent(name, content)
            hidden = self._hidden_beside(name)
            stream = self._files.create(self._at(hidden), True)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()
            try:
                return self._rename_new(hidden, name, alone)
            finally:
                self._files.delete(self._at(hidden), False)

    def move(self, source: str, target: str) -> None:
        """Rename a file, into a folder that is created if it is absent."""
        with _explained(self.child(source)):
            place = self._at(target)
            self._files.mkdirs(place.getParent())
            if not self._files.rename(self._at(source), place):
                raise FolderFailed(f"{self.child(source)} cannot be moved to {self.child(target)}")

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its contents."""
        with _explained(self.child(name)):
            self._files.delete(self._at(name), True)

    def write_file(self, frame: "DataFrame", name: str, layout: str, **options: str) -> None:
        """Write a frame as one file of Parquet, CSV or JSON, which appears whole."""
        staging = f"_staging-{uuid.uuid4().hex}"
        try:
            writer = frame.coalesce(1).write.format(layout).options(**options)
            writer.save(self.child(staging))
            (part,) = self.files(staging)
            self.move(f"{staging}/{part}", name)
        finally:
            self.delete(staging)

    def write_whole(self, frame: "DataFrame") -> None:
        """Write a frame as Parquet; the complete folder replaces the previous one.

        The previous folder is moved aside first, and deleted afterwards: a kill in between leaves
        it next to the new one, with a name that begins with `_replaced-`.
        """
        beside = Folder(self._spark, self._root.getParent().toString())
        name, mark = self._root.getName(), uuid.uuid4().hex
        staging, replaced = f"_staging-{name}-{mark}", f"_replaced-{name}-{mark}"
        try:
            frame.write.parquet(beside.child(staging))
            if self.exists():
                beside.move(name, replaced)
            beside.move(staging, name)
            beside.delete(replaced)
        finally:
            beside.delete(staging)

    def _at(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self._root, name) if name else self._root

    def _hidden_beside(self, name: str) -> str:
        above, _, last = name.rpartition("/")
        return f"{above}/.{last}-{uuid.uuid4().hex}".lstrip("/")

    @property
    def _scheme(self) -> str:
        return str(self._root.toUri().getScheme())

    def _unsafe(self) -> JobError:
        return JobError(
            f"{self.path}: with {self._scheme}: two runs at the same time cannot be told apart, "
            "and both would archive the same messages. Make sure that only one runs, and confirm "
            "it with --alone"
        )

    def _makes_if_absent(self) -> bool:
        with _explained(self.path):
            return bool(self._files.hasPathCapability(self._root, _CONDITIONAL))

    def _make_if_absent(self, name: str, content: bytes) -> bool:
        from py4j.protocol import Py4JJavaError

        builder = self._files.createFile(self._at(name)).must(_CONDITIONAL, True)
        stream = builder.recursive().build()
        try:
            stream.write(bytearray(content))
            stream.close()
        except Py4JJavaError:
            # It was refused, or the answer was lost: compare the file's contents.
            if not self._files.exists(self._at(name)):
                raise
            return self.read(name) == content
        return True

    def _rename_new(self, source: str, target: str, alone: bool) -> bool:
        if self._scheme == "file":
            # Java's rename checks first and replaces then; a link is created or refused in one
            # step.
            try:
                os.link(self._local(source), self._local(target))
                return True
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
        if self._scheme not in _RENAMES_ONCE and not alone:
            raise self._unsafe()
        return not self.exists(target) and bool(
            self._files.rename(self._at(source), self._at(target))
        )

    def _local(self, name: str) -> Path:
        return Path(self._at(name).toUri().getPath())


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Convert errors of a file system to JobErrors of one line."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        reason = error.java_exception.toString().splitlines()[0]
        kind = FolderRefused if _REFUSED.search(reason) else FolderFailed
        raise kind(f"{path}: {reason}") from None
    except PermissionError as error:
        raise FolderRefused(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise FolderFailed(f"{path}: {error.strerror}") from None
