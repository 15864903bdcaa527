"""Configuration shared by the daemons: Java .properties files and typed settings.

A daemon's configuration is one or more frozen dataclasses (`Section`) whose fields are made by
`setting(...)`: default, meaning, unit, whether it may change while the daemon runs. The `-c`
reader, `-p`, `-m`, the text a daemon answers to "get config" and the check of an update all
derive from these declarations. `Settings` holds the sections of a running daemon.
"""

import dataclasses
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from mq.client.machine import clock, files
from mq.daemons.properties import (
    read_properties,
    read_sections,
    rewrite_properties,
    rewrite_section,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

INT_RANGE = range(-(2**31), 2**31)
LONG_RANGE = range(-(2**63), 2**63)

# Values under such names may be secrets, also of other programs that share the file: a reply or a
# log never shows them.
_SECRET_NAME = re.compile(r"secret|password|passwd|token|credential|access_?key", re.IGNORECASE)


MASK = "******"


class ConfigError(Exception):
    """A setting or a configuration file that cannot be used; the text says which and why."""


class NotUpdatable(ConfigError):
    """A setting that exists but may not change while the daemon runs."""


@dataclass(frozen=True)
class Setting:
    """What is declared about one setting besides its value."""

    attribute: str
    name: str  # as in the .properties file
    type: type  # bool, int, float, str or a StrEnum
    long: bool  # a 64-bit Java long rather than a 32-bit int
    doc: str
    unit: str
    important: bool  # printed by -m
    updatable: bool  # may change while the daemon runs
    effect: bool  # False: accepted and shown for compatibility, nothing here reads it
    aliases: tuple[str, ...]
    nullable: bool
    shown: str  # the default in words, where it depends on the machine

    def parse(self, text: str) -> Any:
        """The value that `text` stands for.

        Raises:
            ConfigError: `text` is not a value of this setting's type.
        """
        text = text.strip()
        if issubclass(self.type, StrEnum):
            if text in self.type.__members__:
                return self.type[text]
            raise ConfigError(f"{self.name}={text}: expected one of {', '.join(self.type)}")
        if self.type is bool:
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            raise ConfigError(f"{self.name}={text}: expected true or false")
        if self.type in (int, float):
            return self._parse_number(text)
        return None if self.nullable and text == "" else text

    def _parse_number(self, text: str) -> int | float:
        try:
            if self.type is float:
                return float(text)
            if not re.fullmatch(r"[+-]?[0-9]+", text):
                raise ValueError(text)
            number = int(text)
        except ValueError:
            kind = "a number" if self.type is float else "a whole number"
            raise ConfigError(f"{self.name}={text}: expected {kind}") from None
        if number not in (LONG_RANGE if self.long else INT_RANGE):
            bits = 64 if self.long else 32
            raise ConfigError(f"{self.name}={text}: does not fit in {bits} bits")
        return number


def setting(
    default: Any = dataclasses.MISSING,
    doc: str = "",
    *,
    factory: Any = dataclasses.MISSING,
    shown: str = "",
    name: str = "",
    unit: str = "",
    long: bool = False,
    important: bool = False,
    updatable: bool = False,
    effect: bool = True,
    aliases: tuple[str, ...] = (),
) -> Any:
    """Declare a field of a `Section`; `name` only where camelCase of the attribute is not it.

    With a `factory` the default depends on the machine; `shown` says in words what it is.
    """
    metadata = {
        "doc": doc,
        "shown": shown,
        "name": name,
        "unit": unit,
        "long": long,
        "important": important,
        "updatable": updatable,
        "effect": effect,
        "aliases": aliases,
    }
    if factory is not dataclasses.MISSING:
        if not shown:
            raise TypeError(f"say with `shown` what the default is: {doc}")
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _camel_case(attribute: str) -> str:
    first, *rest = attribute.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


@dataclass(frozen=True)
class Section:
    """Base of the frozen dataclasses that declare settings."""

    #: Not so where it is complete only behind a step of its own, which checks it (TlsConfig).
    is_checked_at_once: ClassVar[bool] = True
    _settings: ClassVar[dict[str, Setting]]

    @classmethod
    def settings(cls) -> dict[str, Setting]:
        """The declarations by property name, in the order of the class."""
        if "_settings" not in cls.__dict__:
            cls._settings = {s.name: s for s in map(_declaration, dataclasses.fields(cls))}
        return cls._settings

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> dict[str, Any]:
        """Attribute values for the properties that this section declares; others are ignored.

        Raises:
            ConfigError: a value is not of its setting's type.
        """
        values = {}
        for declared in cls.settings().values():
            for name in (*declared.aliases, declared.name):
                if name in properties:
                    values[declared.attribute] = declared.parse(properties[name])
        return values

    def check(self) -> None:
        """Refuse values that cannot work. Raises ConfigError naming the setting."""

    def complete(self) -> Self:
        """With what else it is made of, and checked, where that is a step of its own."""
        return self

    def replace(self, **changes: Any) -> Self:
        """A copy with some attributes changed."""
        return dataclasses.replace(self, **changes)

    def properties(self, *, important: bool = False) -> Iterator[tuple[str, str]]:
        """Name and text of every value; a null is an empty text."""
        for declared in self.settings().values():
            if important and not declared.important:
                continue
            yield declared.name, _text(getattr(self, declared.attribute))

    def described(self) -> Iterator[tuple[Setting, str]]:
        """Every declaration with its value as text, or in words if it depends on the machine."""
        for declared in self.settings().values():
            yield declared, declared.shown or _text(getattr(self, declared.attribute))

    def without_effect(self) -> list[str]:
        """Settings that differ from their default although nothing in this daemon reads them."""
        fresh = type(self)()
        return [
            declared.name
            for declared in self.settings().values()
            if not declared.effect
            and getattr(self, declared.attribute) != getattr(fresh, declared.attribute)
        ]


def _declaration(field: dataclasses.Field[Any]) -> Setting:
    meta = field.metadata
    annotation = str(field.type) if isinstance(field.type, str) else ""
    if annotation:  # pragma: no cover - the modules that declare settings do not postpone them
        raise TypeError(f"{field.name}: settings need evaluated annotations")
    nullable = field.type == str | None
    kind = str if nullable else field.type
    if not isinstance(kind, type) or not issubclass(kind, bool | int | float | str):
        raise TypeError(f"{field.name}: {field.type} is not a type of setting")
    return Setting(
        attribute=field.name,
        name=meta["name"] or _camel_case(field.name),
        type=kind,
        long=meta["long"],
        doc=meta["doc"],
        unit=meta["unit"],
        important=meta["important"],
        updatable=meta["updatable"],
        effect=meta["effect"],
        aliases=meta["aliases"],
        nullable=nullable,
        shown=meta["shown"],
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


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
                    merged.update(_without_secrets([(declared.name, _text(value))]))
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
