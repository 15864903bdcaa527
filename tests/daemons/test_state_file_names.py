"""Files of state behind a power cut: their names and folders are there, too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.delivery import quarantine as quarantine_file
from mq.daemons.broker.delivery.quarantine import Quarantine
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.state_file import write_atomically
from tests.daemons.broker.store.power import Machine
from tests.daemons.broker.store.stores import put, with_store


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(monkeypatch, tmp_path)
    (tmp_path / "a").mkdir()
    yield made
    made.close()


def test_the_first_file_of_a_new_folder_outlives_a_power_cut(
    tmp_path: Path, machine: Machine
) -> None:
    write_atomically(tmp_path / "a" / "store" / "config" / "topics.json", b"{}")
    machine.lose_power(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / "store" / "config" / "topics.json").read_bytes() == b"{}"


def test_so_it_does_where_who_made_the_folder_was_killed_at_once(
    tmp_path: Path, machine: Machine
) -> None:
    files.make_folders(tmp_path / "a" / "config")
    write_atomically(tmp_path / "a" / "config" / "topics.json", b"{}")
    machine.lose_power(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / "config" / "topics.json").read_bytes() == b"{}"


def test_what_was_set_aside_outlives_a_power_cut(tmp_path: Path, machine: Machine) -> None:
    async def work(store: MessageStore) -> None:
        (physical,) = await put(store, "orders", 0, b"body")
        aside = Quarantine(store)
        aside.put("timer", "for a test", "orders", 0, 0, physical)
        await aside.save()
        machine.lose_power(store.root, tmp_path / "b")

    with_store(tmp_path / "a", work)
    name = quarantine_file.FILE_NAME
    assert b"for a test" in (tmp_path / "b" / "config" / name).read_bytes()
