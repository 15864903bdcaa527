"""Stores whose topics, groups and offsets Java keeps in RocksDB."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.config import ConfigError
from tests.daemons.broker.running import broker_on

JSON = {
    "topics": "topics.json",
    "subscriptionGroups": "subscriptionGroup.json",
    "consumerOffsets": "consumerOffset.json",
}


def database(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "CURRENT").write_text("MANIFEST-000005\n")


def start(root: Path) -> None:
    async def main() -> None:
        async with broker_on(root):
            pass

    asyncio.run(main())


@pytest.mark.parametrize("name", [*JSON, "rdb"])
def test_a_database_without_its_json_file_prevents_the_start(tmp_path: Path, name: str) -> None:
    database(tmp_path / "config" / name)
    with pytest.raises(ConfigError, match="rocksDBConfigToJson"):
        start(tmp_path)
    assert not (tmp_path / "commitlog").exists()


def test_a_store_whose_databases_were_written_as_json_is_served(tmp_path: Path) -> None:
    for name, file in JSON.items():
        database(tmp_path / "config" / name)
        (tmp_path / "config" / file).write_text("{}")
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{}}')
    start(tmp_path)
