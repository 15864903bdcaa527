"""The brokers in one settings file: their names, and settings that no two of them may share.

A file has the common settings and, after a line `[name]`, the settings of the broker with that
name. Missing settings of a section are derived: the first broker has the common ones, the others
the same with ports that are higher by ten each, and with store folders that end in their names.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.config import DEFAULT_PORT, BrokerSettings
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.daemons.config import ConfigError, read_file_of_several

# Distance between the ports of two brokers: each also has a fast port and a replication port.
PORT_STEP = 10
# Limit of brokers, more than a machine has cores: a number by mistake would fill it with processes.
MOST = 64
# The default of each port property.
_PORTS = {"listenPort": DEFAULT_PORT, "haListenPort": 0, "metricsPort": 0}
_FOLDERS = ("storePathRootDir", "storePathCommitLog", "storePathDLedgerCommitLog")
# Settings that each broker must have for itself: `--set` of these applies to the first, as in the
# file.
OWN = ("brokerName", *_PORTS, *_FOLDERS)


@dataclass(frozen=True)
class PlannedBroker:
    """One of several brokers: its name, which is that of its section, and all its properties."""

    name: str
    properties: dict[str, str]

    def settings(self, path: Path | None) -> BrokerSettings:
        """Raises ConfigError."""
        try:
            return BrokerSettings.load_one_of(path, self.name, self.properties)
        except ConfigError as error:
            raise ConfigError(f"[{self.name}] {error}") from None


def plan(path: Path | None, overrides: Mapping[str, str], count: int | None) -> list[PlannedBroker]:
    """The brokers in a file: ``count``, or the value of `instances`, or one for each section.

    Empty if there are not several. Raises ConfigError.
    """
    sections = read_file_of_several(path) if path is not None else {"": {}}
    common = {**sections.pop(""), **overrides}
    if count is None and "instances" in common:
        count = _number("instances", common["instances"])
    if not sections and (count is None or count == 1):
        return []
    if count is not None and not 1 <= count <= MOST:
        raise ConfigError(f"instances={count}: expected 1 to {MOST}")
    # The command line overrides the file, except for settings that each broker has for itself.
    forced = {name: value for name, value in overrides.items() if name not in OWN}
    return [
        PlannedBroker(
            name, {**common, **_derived(turn, name, common), **sections.get(name, {}), **forced}
        )
        for turn, name in enumerate(_names(common, sections, count))
    ]


def _names(
    common: Mapping[str, str], sections: Mapping[str, Mapping[str, str]], count: int | None
) -> list[str]:
    for name, properties in sections.items():
        if properties.get("brokerName", name) != name:
            raise ConfigError(
                f"[{name}] brokerName={properties['brokerName']}: the section must have the name "
                "of the broker; rename one of them"
            )
    if count is None:
        return list(sections)
    base = common.get("brokerName") or BrokerConfig().broker_name
    names = [base, *(f"{base}-{number}" for number in range(2, count + 1))]
    for name in sections:
        if name not in names:
            raise ConfigError(
                f"[{name}] is not one of the brokers of instances={count}: {', '.join(names)}"
            )
    return names


def _derived(turn: int, name: str, common: Mapping[str, str]) -> dict[str, str]:
    found = {"brokerName": name}
    if turn == 0:
        return found
    for port, usual in _PORTS.items():
        first = _number(port, common[port]) if port in common else usual
        if first > 0:
            found[port] = str(first + turn * PORT_STEP)
    root = MessageStoreConfig().store_path_root_dir
    for folder in _FOLDERS:
        path = common.get(folder) or (root if folder == "storePathRootDir" else "")
        if path:
            found[folder] = f"{path.rstrip('/')}-{name}"
    return found


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name}={text}: expected a whole number") from None


def check_apart(brokers: Mapping[str, BrokerSettings]) -> None:
    """Refuse brokers with the same port or folder. Raises ConfigError."""
    taken: dict[object, tuple[str, str]] = {}
    for name, settings in brokers.items():
        for what, value in _of_one(settings):
            other = taken.setdefault(value, (name, what))
            if other != (name, what):
                raise ConfigError(
                    f"[{name}] {what}={value}: {other[1]} of [{other[0]}] is the same; "
                    f"set {what} in one of the sections"
                )


def _of_one(settings: BrokerSettings) -> Iterator[tuple[str, object]]:
    """The settings that no other broker on the machine may share."""
    port = settings.server.listen_port
    if port:
        yield "listenPort", port
        yield "listenPort - 2", settings.fast_port
    for name, other in (
        ("haListenPort", settings.store.ha_listen_port),
        ("metricsPort", settings.operation.metrics_port),
    ):
        if other > 0:
            yield name, other
    yield "storePathRootDir", os.path.abspath(settings.store.store_path_root_dir)
    yield "storePathCommitLog", os.path.abspath(settings.store.commit_log_path)
