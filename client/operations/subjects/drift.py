"""Settings that should be the same at all brokers, and where they differ."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting at each broker, in the same order in all rows: None if a broker does not have it.

    `differs` if the values are not all equal; `usual` is the most frequent value.
    """

    name: str
    values: tuple[str | None, ...]
    usual: str | None
    differs: bool


def compare(settings: Mapping[str, Mapping[str, Any]]) -> tuple[SettingRow, ...]:
    """Compare the settings of brokers, in the order in which brokers first name them."""
    names = list(dict.fromkeys(name for values in settings.values() for name in values))
    rows = []
    for name in names:
        values = tuple(_text(by_name.get(name)) for by_name in settings.values())
        ((usual, _),) = Counter(values).most_common(1)
        rows.append(SettingRow(name, values, usual, len(set(values)) > 1))
    return tuple(rows)


def _text(value: Any) -> str | None:
    """Format a value as in Java's configuration files."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_text(item)}" for key, item in sorted(value.items()))
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(sorted(str(_text(item)) for item in value))
    return None if value is None else str(value)
