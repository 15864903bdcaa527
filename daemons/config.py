"""Configuration shared by the daemons: Java .properties files and typed settings.

`Settings` holds the sections of a running daemon, which sections.py declares.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, TypeVar

from mq.client.machine import clock, files
from mq.daemons.properties import (
    read_properties,
    read_sections,
    rewrite_properties,
    rewrite_section,
)
from mq.daemons.sections import (
    ConfigError,
    NotUpdatable,
    Section,
    Setting,
    setting,
    text_of,
)

__all__ = [
    "MASK",
    "ConfigError",
    "NotUpdatable",
    "Section",
    "Setting",
    "Settings",
    "is_secret",
    "read_file",
    "read_file_of_several",
    "setting",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

# Values under such names may be secrets, also of other programs that share the file: a reply or a
# log never shows them.
_SECRET_NAME = re.compile(r"secret|password|passwd|token|credential|access_?key", re.IGNORECASE)

MASK = "******"


class Settings:
    """The sections of one running daemon: `settings.<section>` is always the current one.

    Parts of the daemon keep the `Settings` and read through it, or are called back: functions in
    `on_change` get the names of the settings that an update changed.
    """

    section_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, path: Path | None = None, extra: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.section = ""  # of the file at `path`, where it is for several daemons
        self.extra = dict(extra or {})  # in the file, but not ours: shown, never used
        self.on_change: list[Callable[[frozenset[str]], None]] = []
        self.version = (clock.milliseconds(), 0)  # timestamp in ms, counter

    @property
    def sections(self) -> list[Section]:
        return [getattr(self, name) for name in self.section_names]

    def apply(self, properties: Mapping[str, str]) -> None:
        """Set values without any question, as a file and the command line do before the start.

        Raises:
            ConfigError: a value is not of its setting's type.
        """
        known: set[str] = set()
        for name in self.section_names:
            section: Section = getattr(self, name)
            setattr(self, name, section.replace(**section.parse(properties)))
            for declared in section.settings().values():
                known.update((declared.name, *declared.aliases))
        self.extra.update({k: v for k, v in properties.items() if k not in known})

    def finish(self, overrides: Mapping[str, str] | None) -> None:
        """What each load ends with: values of the command line, the checks, certificates' settings.

        Raises:
            ConfigError: a value cannot be used.
        """
        self.apply(overrides or {})
        self.check()
        for name in self.section_names:
            setattr(self, name, getattr(self, name).complete())
        self.log_without_effect()

    def lines(self, *, important: bool = False) -> list[str]:
        """`name=value` of every setting, section after section: what -p and -m print."""
        return [
            f"{name}={value}"
            for section in self.sections
            for name, value in _without_secrets(section.properties(important=important))
        ]

    def log_all(self) -> None:
        """Write every setting to the log, a line each (MixAll.printObjectProperties)."""
        foreign = [f"{name}={value}" for name, value in _without_secrets(self.extra.items())]
        for line in self.lines():
            log.info("%s", _escape_value(line))
        for line in foreign:
            log.info("%s (not a setting of this daemon)", _escape_value(line))

    def text(self) -> str:
        """The answer to "get config": every setting that has a value, one line each.

        Java writes the same in `Configuration.getAllConfigsFormatString`; there a null is left
        out too. Backslashes are doubled because the reader is a .properties reader.
        """
        merged: dict[str, str] = {}
        merged.update(_without_secrets(self.extra.items()))
        for section in self.sections:
            for declared in section.settings().values():
                value = getattr(section, declared.attribute)
                if value is not None:
                    merged.update(_without_secrets([(declared.name, text_of(value))]))
        return "".join(f"{k}={_escape_value(v)}\n" for k, v in merged.items())

    def version_json(self) -> str:
        """The data version as Java's `DataVersion.toJson` writes it."""
        timestamp, counter = self.version
        return f'{{"counter":{counter},"timestamp":{timestamp}}}'

    def blocked(self) -> frozenset[str]:
        """Names the operator added to `configBlackList`."""
        names: set[str] = set()
        for section in self.sections:
            names.update(getattr(section, "config_black_list", "").split(";"))
        return frozenset(names)

    def update(self, properties: Mapping[str, str]) -> frozenset[str]:
        """Change settings of the running daemon, all of them or none; returns changed names.

        Raises:
            NotUpdatable: one of them may not change at run time.
            ConfigError: one of them is unknown or has a bad value.
        """
        self._check_update(properties)
        changed: set[str] = set()
        replaced: dict[str, Section] = {}
        for section_name in self.section_names:
            section: Section = getattr(self, section_name)
            values = section.parse(properties)
            for declared in section.settings().values():
                new = values.get(declared.attribute)
                old = getattr(section, declared.attribute)
                if declared.attribute in values and new != old:
                    changed.add(declared.name)
                    shown = (MASK, MASK) if is_secret(declared.name) else (old, new)
                    log.info("setting changed: %s: %s -> %s", declared.name, *shown)
            replaced[section_name] = section.replace(**values)
        self.check_sections(replaced)
        for section_name, section in replaced.items():
            setattr(self, section_name, section)
        self.version = (clock.milliseconds(), self.version[1] + 1)
        self._save(properties)
        for callback in self.on_change:
            callback(frozenset(changed))
        return frozenset(changed)

    def check_sections(self, sections: Mapping[str, Section]) -> None:
        """Refuse values that cannot work; a daemon adds those that do not go together.

        Raises:
            ConfigError: names the setting.
        """
        for section in sections.values():
            if section.is_checked_at_once:
                section.check()

    def check(self) -> None:
        """Refuse the values that are now. Raises ConfigError."""
        self.check_sections({name: getattr(self, name) for name in self.section_names})

    def log_without_effect(self) -> None:
        """Name the settings that the operator has changed in vain."""
        names = [name for section in self.sections for name in section.without_effect()]
        if names:
            log.warning("settings without effect here: %s", ", ".join(names))

    def _check_update(self, properties: Mapping[str, str]) -> None:
        declared = {name: s for section in self.sections for name, s in section.settings().items()}
        for name in properties:
            if name not in declared:
                raise ConfigError(f"{name} is not a setting of this daemon")
            if not declared[name].effect:
                raise NotUpdatable(f"{name} is accepted in a file, but has no effect here")
            if not declared[name].updatable or name in self.blocked():
                raise NotUpdatable(
                    f"{name} cannot be changed while the daemon runs; "
                    "set it in the configuration file and restart"
                )

    def _save(self, properties: Mapping[str, str]) -> None:
        if self.path is None:
            log.warning("changed settings last until the stop: started without a file (-c)")
            return
        try:
            if self.section:
                with files.locked_folder(self.path.parent):  # the others save theirs there, too
                    self._write(self.path, properties)
            else:
                self._write(self.path, properties)
        except (OSError, UnicodeDecodeError) as error:
            log.error("changed settings could not be saved in %s: %s", self.path, error)

    def _write(self, path: Path, properties: Mapping[str, str]) -> None:
        from mq.daemons.state_file import write_atomically

        old = files.read_bytes(path).decode() if files.exists(path) else ""
        if self.section:
            new = rewrite_section(old, self.section, properties)
        else:
            new = rewrite_properties(old, properties)
        write_atomically(path, new.encode())


def _without_secrets(properties: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for name, value in properties:
        yield name, MASK if value and is_secret(name) else value


def is_secret(name: str) -> bool:
    """Whether what has this name may be a secret."""
    return _SECRET_NAME.search(name) is not None


def _escape_value(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def read_file(path: Path) -> dict[str, str]:
    """The properties of the file given with `-c`.

    Raises:
        ConfigError: it cannot be read or is not a .properties file.
    """
    return _read(path, read_properties)


def read_file_of_several(path: Path) -> dict[str, dict[str, str]]:
    """The same by section, of a file for several daemons; "" has what is for all of them."""
    return _read(path, read_sections)


def _read(path: Path, understood: Callable[[str], T]) -> T:
    try:
        data = files.read_bytes(path)
    except OSError as error:
        raise ConfigError(f"configuration file {path}: {error.strerror}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # what java.util.Properties takes every file for
    try:
        return understood(text)
    except ValueError as error:
        raise ConfigError(f"configuration file {path}: {error}") from error
