"""Refuses stores of Java 5.x whose topics, groups and consumer offsets are in RocksDB."""

from pathlib import Path

from mq.client.machine import files
from mq.daemons.config import ConfigError

# Databases by their folder in `config`, and the JSON file with the same content. Sources:
# RocksDBTopicConfigManager, RocksDBSubscriptionGroupManager, RocksDBConsumerOffsetManager.
_CONTENT = {
    "topics": "topics.json",
    "subscriptionGroups": "subscriptionGroup.json",
    "consumerOffsets": "consumerOffset.json",
}
_EVERYTHING = "rdb"  # with configManagerVersion=v2 (ConfigStorage)


def check_rocksdb(folder: Path) -> None:
    """Raise ConfigError if a database in the folder has content that no JSON file has.

    Without its content every group would start at offset 0, and every setting would be lost.
    """
    lost = [
        name
        for name, file in _CONTENT.items()
        if _is_database(folder / name)
        and not any(files.exists(folder / f"{file}{end}") for end in ("", ".bak"))
    ]
    if _is_database(folder / _EVERYTHING):
        lost += [file for file in _CONTENT.values() if not files.exists(folder / file)]
    if lost:
        raise ConfigError(
            f"{folder}: Java keeps {', '.join(lost)} in RocksDB, which this broker does not read. "
            "Write them as JSON files into that folder first: mqadmin rocksDBConfigToJson of Java "
            "5.3.2 or later"
        )


def _is_database(folder: Path) -> bool:
    return files.exists(folder / "CURRENT")  # the file that names the manifest of a database
