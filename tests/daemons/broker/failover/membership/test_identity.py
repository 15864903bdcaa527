"""The id of a broker: Java's files, and their state after a killed start."""

from pathlib import Path

import pytest

from mq.daemons.broker.failover.membership.identity import Application, IdentityFiles
from mq.daemons.service import CannotStart


def files_in(folder: Path, name: str = "broker-a") -> IdentityFiles:
    return IdentityFiles(folder / "store" / "brokerIdentity", "DefaultCluster", name)


APPLIED = Application(3, "127.0.0.1:10911;1700000000000")


def test_both_files_are_as_java_writes_them(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    assert files.read() is None
    assert files.read_application() is None
    files.apply(APPLIED)
    store = tmp_path / "store"
    assert (store / "brokerIdentity-temp").read_bytes() == (
        b"DefaultCluster#broker-a#3#127.0.0.1:10911;1700000000000"
    )
    assert files_in(tmp_path).read_application() == APPLIED
    files.accept(APPLIED)
    assert (store / "brokerIdentity").read_bytes() == b"DefaultCluster#broker-a#3"
    assert files_in(tmp_path).read() == 3
    assert [path.name for path in store.iterdir()] == ["brokerIdentity"]


def test_a_refused_id_is_not_applied_for_again(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.apply(APPLIED)
    files.drop_application()
    assert files.read_application() is None
    assert list((tmp_path / "store").iterdir()) == []


def test_an_application_left_by_a_killed_start_is_removed(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.apply(Application(9, "other;1"))
    (tmp_path / "store" / "brokerIdentity").write_bytes(b"DefaultCluster#broker-a#3")
    assert files.read() == 3
    assert files.read_application() is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "does not contain an id assigned by controllers"),
        (b"DefaultCluster#broker-a", "does not contain an id assigned by controllers"),
        (b"DefaultCluster#broker-a#0", "'0' is not a broker id"),
        (b"DefaultCluster#broker-a#x7", "'x7' is not a broker id"),
        (b"DefaultCluster#broker-b#3", "is of broker broker-b of cluster DefaultCluster"),
        (b"other#broker-a#3", "is of broker broker-a of cluster other"),
        (b"\xff\xfe\x00#\x80", "does not contain an id assigned by controllers"),
    ],
)
def test_an_invalid_or_foreign_id_is_refused_with_a_reason(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    files = files_in(tmp_path)
    files.apply(APPLIED)
    (tmp_path / "store" / "brokerIdentity").write_bytes(content)
    with pytest.raises(CannotStart, match=reason):
        files.read()
    assert (tmp_path / "store" / "brokerIdentity").read_bytes() == content
