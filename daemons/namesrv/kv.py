"""The key-value configuration of a name server, kept in kvConfig.json."""

import asyncio
import logging
from pathlib import Path

from mq.daemons.config import MASK, is_secret
from mq.daemons.state_file import read_with_backup, write_atomically
from mq.protocol import fastjson

log = logging.getLogger(__name__)

# Values are `brokerName:queues;brokerName:queues` by topic.
ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"

# Seconds until all values are logged for the first time, the interval
# (NamesrvController.initialize), and the limit of logged values.
FIRST_LOG_SECONDS = 60.0
LOG_SECONDS = 600.0
MOST_LOGGED = 1000

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
        log.info("KV config: %s %s = %s", namespace, key, MASK if is_secret(key) else value)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value, if it exists.

        Raises:
            OSError: it could not be saved; the value stays.
        """
        if self.get(namespace, key) is None:
            return
        changed = {name: dict(values) for name, values in self._table.items()}
        del changed[namespace][key]
        self._save(changed)
        log.info("KV config: %s %s deleted", namespace, key)

    async def log_periodically(self) -> None:
        """Log all values periodically, until cancelled (printAllPeriodically)."""
        await asyncio.sleep(FIRST_LOG_SECONDS)
        while True:
            self.log_all()
            await asyncio.sleep(LOG_SECONDS)

    def log_all(self) -> None:
        """Log every value, masking possible secrets."""
        lines = [
            f"{namespace} {key} = {MASK if is_secret(key) else value}"
            for namespace, values in self._table.items()
            for key, value in values.items()
        ]
        log.info("KV config: %d values", len(lines))
        for line in lines[:MOST_LOGGED]:
            log.info("KV config: %s", line)
        if len(lines) > MOST_LOGGED:
            log.info("KV config: and %d more", len(lines) - MOST_LOGGED)

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
