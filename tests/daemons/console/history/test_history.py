"""Series of metrics outlive kills, full disks, damaged files and clocks that are set."""

import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mq.client.machine import clock
from mq.daemons.console.history import history as history_module
from mq.daemons.console.history.file import HistoryFile
from mq.daemons.console.history.history import History
from mq.daemons.console.history.points import HOUR, Damaged, Key
from mq.daemons.service import CannotStart, InUse
from tests.daemons.tube.loops import in_loop

LAG = Key("prod", "group", "orders", "lag")
RATE = Key("prod", "topic", "orders", "in_rate")
NOON = 1_790_000_000 - 1_790_000_000 % HOUR  # a full hour


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator["Time"]:
    own = Time()
    monkeypatch.setattr(clock, "time", lambda: own.now)
    monkeypatch.setattr(clock, "monotonic", lambda: own.passed)
    yield own


class Time:
    """The time of day, in s, and the elapsed time."""

    now = float(NOON)
    passed = 0.0

    def go(self, seconds: float) -> None:
        self.now += seconds
        self.passed += seconds


@asynccontextmanager
async def opened(path: Path, **options: int) -> AsyncIterator[History]:
    async with History(path / "history.sqlite", **options) as history:
        yield history


@in_loop
async def test_points_are_there_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as history:
        history.add(LAG, 5.0, NOON)
        history.add(LAG, 7.0, NOON + 10)
    async with opened(tmp_path) as history:
        found = await history.read(LAG, NOON, NOON + 60)
    assert [(p.at, p.mean) for p in found] == [(NOON, 5.0), (NOON + 10, 7.0)]


@in_loop
async def test_a_kill_loses_what_came_after_the_last_batch_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as history:
        history.add(LAG, 5.0, NOON)
        await history.keep(NOON + 60)
        history.add(LAG, 6.0, NOON + 61)
        left = tmp_path / "left"
        left.mkdir()
        for file in tmp_path.glob("history.sqlite*"):
            (left / file.name).write_bytes(file.read_bytes())
    async with opened(left) as history:
        assert [p.mean for p in await history.read(LAG, NOON, NOON + 600)] == [5.0]


@in_loop
async def test_an_hour_that_is_over_leaves_memory_and_is_read_from_the_file(
    tmp_path: Path, time: Time
) -> None:
    async with opened(tmp_path) as history:
        for at in range(NOON, NOON + 2 * HOUR, 60):
            history.add(RATE, float(at - NOON), at)
        time.go(2 * HOUR)
        await history.keep(NOON + 2 * HOUR)
        assert not any(len(points) for points in history._memory.values())
        found = await history.read(RATE, NOON, NOON + 2 * HOUR)
    assert [p.mean for p in found] == [float(at) for at in range(0, 2 * HOUR, 60)]


@in_loop
async def test_a_kill_amid_writing_an_hour_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> None:
        raise sqlite3.OperationalError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(HistoryFile, "forget_log", cut)
        async with opened(tmp_path) as history:
            for at in range(NOON, NOON + HOUR, 60):
                history.add(RATE, float(at - NOON), at)
            await history.keep(NOON + HOUR)
            assert history.problem == "killed here"
    async with opened(tmp_path) as history:
        await history.keep(NOON + HOUR)
        found = await history.read(RATE, NOON, NOON + HOUR)
    assert [p.mean for p in found] == [float(at) for at in range(0, HOUR, 60)]


@in_loop
async def test_what_is_older_than_a_day_is_there_in_five_minutes(
    tmp_path: Path, time: Time
) -> None:
    async with opened(tmp_path) as history:
        for at in range(NOON, NOON + HOUR, 10):
            history.add(LAG, float(at % 300), at)
        time.go(30 * HOUR)
        await history.keep()
        found = await history.read(LAG, NOON, NOON + HOUR)
        fine = await history._run(lambda: history._file.fine(1, NOON, NOON + HOUR))
    assert [(p.at, p.low, p.high, p.mean) for p in found] == [
        (at, 0.0, 290.0, 145.0) for at in range(NOON, NOON + HOUR, 300)
    ]
    assert fine == []


@in_loop
async def test_after_thirty_days_nothing_is_left_of_a_series(tmp_path: Path, time: Time) -> None:
    async with opened(tmp_path) as history:
        history.add(LAG, 1.0, NOON)
        time.go(HOUR)
        await history.keep()
        assert LAG in history
        time.go(32 * 24 * HOUR)
        await history.keep()
        assert LAG not in history
        assert await history.read(LAG, NOON, NOON + HOUR) == []
    rows = sqlite3.connect(tmp_path / "history.sqlite")
    for table in ("series", "fine", "coarse", "log"):
        assert rows.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


@in_loop
async def test_more_series_than_there_is_room_for_are_left_out_and_said(tmp_path: Path) -> None:
    async with opened(tmp_path, most_series=2) as history:
        for name in "ABCD":
            history.add(Key("prod", "topic", name, "in_rate"), 1.0, NOON)
        await history.keep(NOON + 60)
        assert len(history) == 2
        assert history.problem is not None
        assert "the limit of 2 series is reached: 2 points" in history.problem


@pytest.mark.parametrize(
    "damage", [b"no database at all" * 100, b"SQLite format 3\x00" + b"x" * 5000]
)
@in_loop
async def test_a_damaged_file_is_quarantined_and_said(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "history.sqlite").write_bytes(damage)
    async with opened(tmp_path) as history:
        assert history.problem is not None
        assert "quarantined as history.sqlite.damaged-" in history.problem
        history.add(LAG, 3.0, NOON)
    aside = [p for p in tmp_path.iterdir() if ".damaged-" in p.name]
    assert [p.read_bytes() for p in aside] == [damage]
    async with opened(tmp_path) as history:
        assert [p.mean for p in await history.read(LAG, NOON, NOON + 1)] == [3.0]


@in_loop
async def test_a_file_that_is_damaged_while_it_is_used_begins_anew_with_the_hour_in_memory(
    tmp_path: Path,
) -> None:
    path = tmp_path / "history.sqlite"
    async with opened(tmp_path) as history:
        history.add(LAG, 3.0, NOON)
        await history.keep(NOON + 60)

        def spoil() -> None:
            do = history._file._connection.execute
            do("PRAGMA wal_checkpoint(TRUNCATE)")
            do("PRAGMA cache_size = 0")
            data = path.read_bytes()
            with path.open("r+b") as file:  # all pages but the first
                file.seek(4096)
                file.write(b"\xff" * (len(data) - 4096))

        await history._run(spoil)
        history.add(LAG, 4.0, NOON + 61)
        await history.keep(NOON + 120)
        assert "quarantined" in (history.problem or "")
        await history.keep(NOON + 180)
        assert history.problem is None
    async with opened(tmp_path) as history:
        assert [p.mean for p in await history.read(LAG, NOON, NOON + 90)] == [3.0, 4.0]


@in_loop
async def test_points_wait_in_memory_while_the_disk_is_full(tmp_path: Path) -> None:
    async with opened(tmp_path) as history:
        await history.keep(NOON)
        await history._run(lambda: _set_most_pages(history, 1))
        for at in range(2000):
            history.add(LAG, float(at), NOON + at)
        await history.keep(NOON + 2000)
        assert history.problem == "database or disk is full"
        assert len(await history.read(LAG, NOON, NOON + 2000)) == 2000
        await history._run(lambda: _set_most_pages(history, 1 << 20))
        await history.keep(NOON + 2060)
        assert history.problem is None
    async with opened(tmp_path) as history:
        assert len(await history.read(LAG, NOON, NOON + 2000)) == 2000


@in_loop
async def test_what_was_quarantined_stays_while_the_next_file_cannot_be_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as history:
        history.add(LAG, 3.0, NOON)
        await history.keep(NOON + 60)

        def fail() -> None:
            raise CannotStart("database or disk is full")

        with monkeypatch.context() as full:
            full.setattr(history._file, "open", fail)
            await history._recreate(Damaged("spoiled"))
            (aside,) = tmp_path.glob("*.damaged-*")
            history.add(LAG, 4.0, NOON + 60)
            for minute in (2, 3):
                await history.keep(NOON + 60 * minute)
        assert list(tmp_path.glob("*.damaged-*")) == [aside]
        await history.keep(NOON + 240)  # there is room again
        await history.keep(NOON + 300)
        assert history.problem is None
        assert list(tmp_path.glob("*.damaged-*")) == [aside]
    async with opened(tmp_path) as history:
        assert [p.mean for p in await history.read(LAG, NOON, NOON + 90)] == [3.0, 4.0]


@in_loop
async def test_memory_is_bounded_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "MOST_IN_MEMORY", 1000)
    async with opened(tmp_path) as history:
        await history.keep(NOON)
        await history._run(lambda: _set_most_pages(history, 1))
        for at in range(0, 10 * HOUR, 10):
            history.add(LAG, float(at), NOON + at)
        await history.keep(NOON + 10 * HOUR)
        left = await history.read(LAG, NOON, NOON + 10 * HOUR)
        assert 360 <= len(left) <= 1000
        assert left[-1].at == NOON + 10 * HOUR - 10
        assert history.lost == 3600 - len(left)
        await history._run(lambda: _set_most_pages(history, 1 << 20))


@in_loop
async def test_topics_by_the_thousand_take_no_places_of_brokers_and_clusters(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, most_series=2) as history:
        for name in "ABCD":
            history.add(Key("bad", "topic", name, "in_rate"), 1.0, NOON)
        for kind in ("broker", "cluster"):
            key = Key("prod", kind, "new", "in_rate")
            history.add(key, 1.0, NOON)
            assert key in history


def _set_most_pages(history: History, pages: int) -> None:
    history._file._connection.execute(f"PRAGMA max_page_count = {pages}")


@in_loop
async def test_a_clock_that_is_set_back_writes_again_from_there(tmp_path: Path, time: Time) -> None:
    async with opened(tmp_path) as history:
        for at in range(NOON, NOON + HOUR + 600, 60):
            history.add(LAG, 1.0, at)
        time.go(HOUR + 600)
        await history.keep()  # the first hour has its rows
        time.now = NOON + 1800.0
        for at in range(NOON + 1800, NOON + 2 * HOUR, 60):
            history.add(LAG, 2.0, at)
        time.go(2 * HOUR)
        await history.keep()
        found = await history.read(LAG, NOON, NOON + 2 * HOUR)
    assert [p.mean for p in found] == [1.0] * 30 + [2.0] * 90
    assert len({p.at for p in found}) == 120


@in_loop
async def test_a_clock_that_jumps_ahead_takes_nothing_away_for_an_hour(
    tmp_path: Path, time: Time
) -> None:
    async with opened(tmp_path) as history:
        history.add(LAG, 1.0, NOON)
        time.go(HOUR)
        await history.keep()
        time.now += 365 * 24 * HOUR
        await history.keep()
        time.now -= 365 * 24 * HOUR
        time.go(60)
        await history.keep()
        assert [p.mean for p in await history.read(LAG, NOON, NOON + HOUR)] == [1.0]


@in_loop
async def test_a_second_console_is_told_that_another_has_the_file(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(InUse, match="another console uses it"):
            async with opened(tmp_path):
                pass


@in_loop
async def test_the_history_is_private_also_where_an_earlier_release_made_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    path = folder / "history.sqlite"
    async with opened(folder) as history:
        history.add(LAG, 5.0, NOON)
        assert {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    path.chmod(0o644)
    folder.chmod(0o755)
    async with opened(folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755  # an administrator's own
