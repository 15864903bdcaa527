"""Offsets of groups: the file, the times of saving, and expiry."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path

import pytest

from mq.client.machine import clock, files
from mq.daemons.tube.broker import offsets as module
from mq.daemons.tube.broker.offsets import Offsets, TooManyOffsets

KEY = ("demo", 0)
JAVA = """{"lstStoreTime":1700000000000,"brokerId":1,"groupOffsetStgInfo":{"group":{
"lstCommitTime":1700000000000,"partOffsetInfo":{"demo-10001":{"topic":"demo","partId":10001,
"lstRstTerm":3,"lstOffset":280,"msgId":9,"lstUpdTime":1700000000000,"createOffset":28,
"createTime":1600000000000}}}}}"""


def make(folder: Path) -> Offsets:
    offsets = Offsets(folder / "offsets.meta", 1)
    offsets.load()
    return offsets


def test_what_java_has_written_is_read_and_kept(tmp_path: Path) -> None:
    (tmp_path / "offsets.meta").write_text(JAVA)
    offsets = make(tmp_path)
    assert offsets.committed("group", ("demo", 10_001)) == 280
    asyncio.run(offsets.replace([("group", KEY, 57)]))
    written = json.loads((tmp_path / "offsets.meta").read_text())
    parts = written["groupOffsetStgInfo"]["group"]["partOffsetInfo"]
    assert parts["demo-10001"] == {
        "topic": "demo", "partId": 10001, "lstRstTerm": 3, "lstOffset": 280, "msgId": 9,
        "lstUpdTime": 1700000000000, "createOffset": 28, "createTime": 1600000000000,
    }  # fmt: skip
    assert parts["demo-0"]["lstOffset"] == 56  # a record of the index begins there


@pytest.mark.parametrize("name", ["offsets.mid", "offsets.old"])
def test_what_java_has_left_amid_its_renames_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(JAVA)
    assert make(tmp_path).committed("group", ("demo", 10_001)) == 280


def test_a_torn_file_gives_way_to_the_one_before(tmp_path: Path) -> None:
    offsets = make(tmp_path)
    asyncio.run(offsets.replace([("group", KEY, 28)]))
    asyncio.run(offsets.replace([("group", KEY, 56)]))
    path = tmp_path / "offsets.meta"
    path.write_bytes(path.read_bytes()[:-9])
    assert make(tmp_path).committed("group", KEY) == 28


def test_a_change_is_saved_before_it_is_answered(tmp_path: Path) -> None:
    offsets = make(tmp_path)
    assert asyncio.run(offsets.replace([("a", KEY, 28), ("b", KEY, 56)])) == [0, 0]
    again = make(tmp_path)
    assert (again.committed("a", KEY), again.committed("b", KEY)) == (28, 56)


def test_a_commit_that_could_not_be_saved_is_saved_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = make(tmp_path)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            asyncio.run(offsets.replace([("group", KEY, 28)]))
    asyncio.run(offsets.file.save_pending())
    assert make(tmp_path).committed("group", KEY) == 28


def test_saves_come_by_themselves(tmp_path: Path) -> None:
    async def main() -> None:
        offsets = make(tmp_path)
        offsets.register("group", KEY, 1, -1, (0, 84))
        saves = asyncio.ensure_future(offsets.run_saves(0.001))
        async with asyncio.timeout(30):
            while offsets.file.unsaved or offsets.file._saving.locked():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        saves.cancel()

    asyncio.run(main())
    assert make(tmp_path).committed("group", KEY) == 84


def test_groups_that_commit_nothing_for_long_go(tmp_path: Path) -> None:
    (tmp_path / "offsets.meta").write_text(JAVA)
    offsets = make(tmp_path)
    asyncio.run(offsets.replace([("new", KEY, 28)]))
    day = 24 * 3600 * 1000
    assert offsets.expire(clock.milliseconds()) == []
    assert offsets.expire(20 * day) == ["group"]
    assert offsets.groups() == ["new"]
    assert len(offsets) == 1


def test_topics_that_are_no_more_take_their_offsets_along(tmp_path: Path) -> None:
    offsets = make(tmp_path)
    asyncio.run(offsets.replace([("a", KEY, 28), ("a", ("b", 0), 28), ("c", KEY, 28)]))
    asyncio.run(offsets.forget_topics(frozenset({"demo"})))
    assert (offsets.groups(), len(offsets)) == (["a"], 1)
    # at once: a new topic of the same name starts without offsets, even after a kill
    again = make(tmp_path)
    again.load()
    assert again.groups() == ["a"]


def test_too_many_at_once_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    offsets = make(tmp_path)
    changes = [("g", ("demo", number), 28) for number in range(3)]
    with pytest.raises(TooManyOffsets):
        asyncio.run(offsets.replace(changes))
    assert len(offsets) == 0
    asyncio.run(offsets.replace(changes[:2]))


def test_what_begins_below_the_first_message_is_raised(tmp_path: Path) -> None:
    offsets = make(tmp_path)
    asyncio.run(offsets.replace([("g", KEY, 28)]))
    found = offsets.next("g", KEY, manual=False, consumed=True, bounds=(280, 560), lowers=True)
    assert found == (280, True)
    assert offsets.committed("g", KEY) == 280
