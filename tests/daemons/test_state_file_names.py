"""State files after a power failure: their names and folders must survive, too."""

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


def test_the_first_file_of_a_new_folder_survives_a_power_failure(
    tmp_path: Path, machine: Machine
) -> None:
    write_atomically(tmp_path / "a" / "store" / "config" / "topics.json", b"{}")
    machine.lose_power(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / "store" / "config" / "topics.json").read_bytes() == b"{}"


def test_a_file_survives_though_the_creator_of_its_folder_was_killed(
    tmp_path: Path, machine: Machine
) -> None:
    files.make_folders(tmp_path / "a" / "config")
    write_atomically(tmp_path / "a" / "config" / "topics.json", b"{}")
    machine.lose_power(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / "config" / "topics.json").read_bytes() == b"{}"


def test_a_renamed_file_survives_a_power_failure(tmp_path: Path, machine: Machine) -> None:
    async def work(store: MessageStore) -> None:
        (physical,) = await put(store, "orders", 0, b"body")
        aside = Quarantine(store)
        aside.put("timer", "for a test", "orders", 0, 0, physical)
        await aside.save()
        machine.lose_power(store.root, tmp_path / "b")

    with_store(tmp_path / "a", work)
    name = quarantine_file.FILE_NAME
    assert b"for a test" in (tmp_path / "b" / "config" / name).read_bytes()
