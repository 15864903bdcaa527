"""The topics of a store according to its configuration, this broker's or Java's, read without a
broker.
"""

from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
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
