"""The settings that 5.x brokers may keep in RocksDB, read from their directory.

A broker with storeType=defaultRocksDB has a database for each kind in `config`. It maps names to
JSON; a separate column family holds the version (ConfigRocksDBStorage).
"""

from pathlib import Path
from typing import Any

from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.client.operations.errors import NotFound

TOPICS, GROUPS, OFFSETS = "topics", "subscriptionGroups", "consumerOffsets"
KINDS = (TOPICS, GROUPS, OFFSETS)
TABLES = {TOPICS: "topicConfigTable", GROUPS: "subscriptionGroupTable", OFFSETS: "offsetTable"}
_VERSION_FAMILY, _VERSION_KEY = "kvDataVersion", b"kvDataVersionKey"

Entries = dict[str, str]  # JSON by name, in key order


def read(directory: Path, kind: str) -> tuple[Entries, str | None]:
    """Return the entries of a kind below `directory`, and their version. Nothing is written.

    Raises NotFound if there is no database, CommandError if it cannot be read.
    """
    path = directory / kind
    if not (path / "CURRENT").is_file():  # opening a missing database would create it
        raise NotFound(
            f"no RocksDB in {path}", hint="give the directory config of a broker's store"
        )
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError:
        raise CommandError(
            "reading RocksDB needs the package rocksdict",
            hint="install it: pip install 'mq[rocksdb]'",
            status=Status.CONFIG,
        ) from None
    try:
        families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(path))}
        database = Rdict(
            str(path), Options(raw_mode=True), families, access_type=AccessType.read_only()
        )
        try:
            found = {_text(key): _text(value) for key, value in database.items()}
            version = None
            if _VERSION_FAMILY in families:
                version = database.get_column_family(_VERSION_FAMILY).get(_VERSION_KEY)
        finally:
            database.close()
    except Exception as error:  # rocksdict raises it for each RocksDB error
        raise CommandError(f"cannot read {path}: {error}", status=Status.BAD_DATA) from error
    return found, None if version is None else _text(version)


def _text(value: Any) -> str:
    return bytes(value).decode("utf-8", "replace")


def parse(kind: str, name: str, text: str) -> Any:
    """Return the value of an entry; offsets by queue id. Raises CommandError for invalid JSON."""
    from mq.protocol import fastjson

    try:
        value = fastjson.loads(text.encode())
        if kind == OFFSETS:
            return {int(queue): offset for queue, offset in value["offsetTable"].items()}
        return value
    except (fastjson.MalformedJson, KeyError, TypeError, AttributeError, ValueError) as error:
        raise CommandError(
            f"{kind}: the entry of {name!r} is not a setting: {error}", status=Status.BAD_DATA
        ) from None


def pretty(value: Any, indent: str = "") -> str:
    """Return JSON as fastjson 2 pretty-prints it: a tab per level, numeric keys without quotes."""
    import orjson

    if isinstance(value, dict) and value:
        deeper = indent + "\t"
        items = (
            f"{deeper}{key if isinstance(key, int) else orjson.dumps(key).decode()}:"
            f"{pretty(item, deeper)}"
            for key, item in value.items()
        )
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        deeper = indent + "\t"
        inner = ",\n".join(f"{deeper}{pretty(item, deeper)}" for item in value)
        return f"[\n{inner}\n{indent}]"
    return orjson.dumps(value).decode()
