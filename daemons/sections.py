"""The settings of a daemon: frozen dataclasses whose fields are declared by `setting(...)`.

A declaration has a default, a description, a unit and whether it may change at run time. The `-c`
reader, `-p`, `-m`, the reply to "get config", the check of an update and the man pages all derive
from these.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

INT_RANGE = range(-(2**31), 2**31)
LONG_RANGE = range(-(2**63), 2**63)


class ConfigError(Exception):
    """An invalid setting or configuration file; the text names it and the reason."""


class NotUpdatable(ConfigError):
    """A setting that exists but may not change at run time."""


@dataclass(frozen=True)
class Setting:
    """The declaration of one setting, without its value."""

    attribute: str
    name: str  # as in the .properties file
    type: type  # bool, int, float, str or a StrEnum
    long: bool  # a 64-bit Java long instead of a 32-bit int
    doc: str
    unit: str
    important: bool  # printed by -m
    updatable: bool  # may change at run time
    effect: bool  # False: accepted and shown for compatibility, not used
    aliases: tuple[str, ...]
    nullable: bool
    shown: str  # the default in words, if it depends on the machine
    path: bool = False  # a file or folder that this daemon creates if it is missing

    def parse(self, text: str) -> Any:
        """Parse the text of a value.

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
    path: bool = False,
) -> Any:
    """Declare a field of a `Section`; `name` only if it differs from the attribute in camelCase.

    With a `factory` the default depends on the machine; `shown` describes it in words.
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
        "path": path,
    }
    if factory is not dataclasses.MISSING:
        if not shown:
            raise TypeError(f"describe the default with `shown`: {doc}")
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _camel_case(attribute: str) -> str:
    first, *rest = attribute.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


@dataclass(frozen=True)
class Section:
    """Base of the frozen dataclasses that declare settings."""

    # False for a section that is checked by its own step that completes it (TlsConfig).
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
        """Attribute values of the properties that this section declares; others are ignored.

        Raises:
            ConfigError: a value does not match its setting's type.
        """
        values = {}
        for declared in cls.settings().values():
            for name in (*declared.aliases, declared.name):
                if name in properties:
                    values[declared.attribute] = declared.parse(properties[name])
        return values

    def check(self) -> None:
        """Refuse invalid values. Raises ConfigError naming the setting."""

    def complete(self) -> Self:
        """Add values from other sources and check, if that is a step of its own."""
        return self

    def replace(self, **changes: Any) -> Self:
        """A copy with some attributes changed."""
        return dataclasses.replace(self, **changes)

    def properties(self, *, important: bool = False) -> Iterator[tuple[str, str]]:
        """Name and text of every value; a null is an empty text."""
        for declared in self.settings().values():
            if important and not declared.important:
                continue
            yield declared.name, text_of(getattr(self, declared.attribute))

    def described(self) -> Iterator[tuple[Setting, str]]:
        """Every declaration with its value as text, or in words if it depends on the machine."""
        for declared in self.settings().values():
            yield declared, declared.shown or text_of(getattr(self, declared.attribute))

    def without_effect(self) -> list[str]:
        """Settings without effect that differ from their default."""
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
        path=meta["path"],
    )


def text_of(value: Any) -> str:
    """A value as text of a .properties file; a null is an empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
