"""What is not in memory is told, and brought in with what lies behind it."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.store import residency
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.residency import NotInMemory, Residency
from tests.daemons.broker.store.stores import evict

MEGABYTE = 1024 * 1024
FILE = 8 * MEGABYTE


@pytest.fixture
def evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommitLog:
    """Two full files of a log."""
    monkeypatch.setattr(residency, "_RECENT", 0)
    log = CommitLog([tmp_path], FILE)
    for _ in range(2):
        log.add_file().write(b"x" * FILE, 0)
    log.set_end(2 * FILE)
    evict(log)
    return log


def missing(pages: Residency, *offsets: int) -> list[int]:
    try:
        pages.require(*offsets)
    except NotInMemory as absent:
        return list(absent.offsets)
    return []


def test_what_was_brought_in_is_in_memory_with_what_follows(evicted: CommitLog) -> None:
    pages = Residency(evicted)
    wanted = [0, FILE - 1]
    assert missing(pages, *wanted) == wanted  # asked only once: the kernel begins to read then
    asyncio.run(pages.bring_in(NotInMemory(wanted)))
    assert missing(pages, *wanted) == []
    evicted.files[0].read(3 * MEGABYTE, 1)  # waits for what is still under way
    assert missing(pages, 3 * MEGABYTE) == []
    assert missing(pages, FILE + 5 * MEGABYTE) == [FILE + 5 * MEGABYTE]
    evicted.close()


def test_what_is_not_in_the_log_is_waited_for_by_nobody(evicted: CommitLog) -> None:
    pages = Residency(evicted)
    assert missing(pages, -1, 1 << 62, 2 * FILE) == []
    asyncio.run(pages.bring_in(NotInMemory([-1, 1 << 62])))
    evicted.close()
    asyncio.run(pages.bring_in(NotInMemory([0])))


def test_the_end_of_the_log_is_in_memory(
    evicted: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residency, "_RECENT", MEGABYTE)
    pages = Residency(evicted)
    assert missing(pages, 2 * FILE - MEGABYTE + 1) == []
    assert missing(pages, 2 * FILE - MEGABYTE) == [2 * FILE - MEGABYTE]
    evicted.close()
