"""Folders through Spark's file systems."""

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mq.pipeline.jobs.declaration import JobError
from mq.pipeline.jobs.storage import Folder
from tests.pipeline.conftest import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)


def test_a_new_file_is_whole_and_never_replaces_another(
    spark: "SparkSession", tmp_path: Path
) -> None:
    folder = Folder(spark, str(tmp_path / "a b"))
    assert not folder.exists() and folder.names() == folder.files() == []
    assert folder.write_new("deep/1.json", b"\x00first\xff")
    assert not folder.write_new("deep/1.json", b"second")
    assert folder.read("deep/1.json") == b"\x00first\xff"
    assert sorted(each.name for each in (tmp_path / "a b" / "deep").iterdir()) == ["1.json"]


def test_files_in_subfolders_are_listed_and_hidden_ones_are_not(
    spark: "SparkSession", tmp_path: Path
) -> None:
    folder = Folder(spark, f"file:{tmp_path}")
    for name in ("b/2", "a", "_hidden/3", "b/_4", "b/.5"):
        assert folder.write_new(name, b"")
    assert folder.files() == ["a", "b/2"]
    assert folder.files("b") == ["2"]
    folder.move("a", "c/d/e")
    folder.delete("b")
    assert folder.files() == ["c/d/e"]
    assert folder.names() == ["_hidden", "c"]


def test_a_frame_is_written_as_one_file(spark: "SparkSession", tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path))
    folder.write_file(spark.range(10).repartition(3), "day=1/n.csv", "csv", header="true")
    assert folder.files() == ["day=1/n.csv"]
    assert (tmp_path / "day=1" / "n.csv").read_text().splitlines()[0] == "id"
    assert folder.names() == ["day=1"]


def test_a_refusal_of_the_file_system_is_one_line(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match=r"file/under/x: .*") as raised:
        Folder(spark, str(tmp_path / "file" / "under")).write_new("x", b"")
    assert "\n" not in str(raised.value)
    with pytest.raises(JobError, match="nosuch"):
        Folder(spark, "nosuch://host/folder")
    with pytest.raises(JobError, match="has no name"):
        Folder(spark, " ")
    with pytest.raises(JobError, match="missing"):
        Folder(spark, str(tmp_path)).read("missing")
    with pytest.raises(JobError, match="missing"):
        Folder(spark, str(tmp_path)).move("missing", "other")


def test_without_hard_links_only_a_run_that_is_alone_writes_a_file(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    folder = Folder(spark, str(tmp_path))
    with pytest.raises(JobError, match="two runs at the same time cannot be told apart"):
        folder.write_new("1.json", b"first")
    assert list(tmp_path.iterdir()) == []
    assert folder.write_new("1.json", b"first", alone=True)
    assert not folder.write_new("1.json", b"second", alone=True)
    assert folder.read("1.json") == b"first"
    assert folder.names() == ["1.json"]


def test_a_folder_is_replaced_as_a_whole(spark: "SparkSession", tmp_path: Path) -> None:
    folder = Folder(spark, str(tmp_path / "result"))
    for count in (3, 2):
        folder.write_whole(spark.range(count))
        assert spark.read.parquet(folder.path).count() == count
    assert [each.name for each in tmp_path.iterdir()] == ["result"]
