"""The key-value configuration of a name server, kept in kvConfig.json."""

import logging
from pathlib import Path

from mq.daemons.state_file import read_with_backup, write_atomically
from mq.protocol import fastjson

log = logging.getLogger(__name__)

# Values are `brokerName:queues;brokerName:queues` by topic.
ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"

Table = dict[str, dict[str, str]]


class KvConfig:
    """Values by namespace and key. A change is on the disk before it can be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: Table = read_with_backup(path, _decode) or {}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, name: str) -> dict[str, str] | None:
        """All keys of a namespace; None if it never had one."""
        return self._table.get(name)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.

        Raises:
            OSError: it could not be saved; the old value stays.
        """
        changed = {name: dict(values) for name, values in self._table.items()}
        changed.setdefault(namespace, {})[key] = value
        self._save(changed)
        log.info("KV config: %s %s = %s", namespace, key, value)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value; one that does not exist is removed already.

        Raises:
            OSError: it could not be saved; the value stays.
        """
        if self.get(namespace, key) is None:
            return
        changed = {name: dict(values) for name, values in self._table.items()}
        del changed[namespace][key]
        self._save(changed)
        log.info("KV config: %s %s deleted", namespace, key)

    def _save(self, table: Table) -> None:
        write_atomically(self._path, fastjson.dumps({"configTable": table}))
        self._table = table


def _decode(data: bytes) -> Table:
    content = fastjson.loads(data)
    table = content.get("configTable") if isinstance(content, dict) else None
    if not isinstance(table, dict) or not all(isinstance(v, dict) for v in table.values()):
        raise ValueError("no configTable")
    return {
        str(name): {str(key): str(value) for key, value in values.items()}
        for name, values in table.items()
    }
