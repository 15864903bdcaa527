"""Pages' data as JSON: dataclasses by their fields' names, in lowerCamelCase."""

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

import orjson

EXACT = 2**53  # JavaScript represents integers exactly up to here


def to_json(data: Any) -> bytes:
    """Return a value as JSON."""
    return orjson.dumps(plain(data))


def plain(value: Any) -> Any:
    """Return dicts, lists, texts and numbers; integers over `EXACT` become texts."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, int):
        return value if -EXACT <= value <= EXACT else str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # a lone surrogate is not UTF-8
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {camel(f.name): plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    raise TypeError(f"{type(value).__name__} is not a plain value")


def camel(name: str) -> str:
    """Return `last_stored_at` as `lastStoredAt`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
