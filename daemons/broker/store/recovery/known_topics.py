"""The topics of a store according to its configuration, this broker's or Java's, read without a
broker.
"""

from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.config import ConfigError
from mq.protocol import fastjson


def known_topics(root: Path) -> frozenset[str] | None:
    """Return the names of the topics, or None if no file has them.

    Without that file, a topic without queues need not be deleted: the log may have been restored
    alone. Raises OSError if an existing file cannot be read.
    """
    folder = layout.config_path(root)
    if files.is_folder(folder / "topics"):
        return None  # in RocksDB, as of 5.x (RocksDBTopicConfigManager.rocksdbConfigFilePath)
    for name in ("topics.json", "topics.json.bak"):  # in the order of a start
        try:
            found = frozenset(fastjson.loads(files.read_bytes(folder / name))["topicConfigTable"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            continue
        if found:
            return found
    return None


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
