"""The timer's files after power failures: everything that its checkpoint covers exists."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.daemons.broker.delayed.timer_log import TimerLog, Unit
from tests.daemons.broker.store.power import Machine

FILE_SIZE = 200  # three units


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(monkeypatch, tmp_path)
    (tmp_path / "a").mkdir()
    yield made
    made.close()


def append(log: TimerLog, count: int) -> None:
    for number in range(count):
        log.append(-1, 1, 1_000, 2_000 + number, number * 100, 100)


def units(root: Path) -> list[Unit]:
    log = TimerLog(root / "timerlog", FILE_SIZE)
    try:
        return [unit for _, unit in log.recover(0)]
    finally:
        log.close()


def test_synced_units_survive_a_power_failure_with_the_names_of_their_files(
    tmp_path: Path, machine: Machine
) -> None:
    log = TimerLog(tmp_path / "a" / "timerlog", FILE_SIZE)
    assert not list(log.recover(0))
    append(log, 2)
    log.sync()
    append(log, 5)  # in later files
    log.sync()
    log.close()
    machine.lose_power(tmp_path / "a", tmp_path / "b")
    assert len(units(tmp_path / "b")) == 7


def test_units_found_by_a_start_after_a_kill_are_synced_with_the_next_save(
    tmp_path: Path, machine: Machine
) -> None:
    """The checkpoint advances past them then, and no later start puts them into the wheel again."""
    log = TimerLog(tmp_path / "a" / "timerlog", FILE_SIZE)
    append(log, 4)
    machine.kill(tmp_path / "a", tmp_path / "b")
    log.close()
    log = TimerLog(tmp_path / "b" / "timerlog", FILE_SIZE)
    assert len(list(log.recover(0))) == 4
    log.sync()
    log.close()
    machine.lose_power(tmp_path / "b", tmp_path / "c")
    assert len(units(tmp_path / "c")) == 4
