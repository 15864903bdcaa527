"""Which topics a store has by its configuration, ours or Java's, without a broker."""

from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.protocol import fastjson


def known_topics(root: Path) -> frozenset[str] | None:
    """The names of the topics; None where no file says.

    Then a topic without queues need not be one that was deleted: a log may have been saved alone.
    Raises OSError for a file that is there and cannot be read.
    """
    folder = layout.config_path(root)
    if files.is_folder(folder / "topics"):
        return None  # in RocksDB, as of 5.x (RocksDBTopicConfigManager.rocksdbConfigFilePath)
    for name in ("topics.json", "topics.json.bak"):  # as a start looks for them
        try:
            found = frozenset(fastjson.loads(files.read_bytes(folder / name))["topicConfigTable"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            continue
        if found:
            return found
    return None
