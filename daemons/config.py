"""Configuration shared by the daemons: Java .properties files and typed settings.

`Settings` holds the sections of a running daemon, which sections.py declares.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from mq.client.machine import clock, files
from mq.daemons.properties import (
    lines_of,
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
    "explained",
    "is_secret",
    "read_file",
    "read_file_of_several",
    "setting",
    "warn_of_remarks",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

# Values of settings with such names may be secrets, also of other programs that share the file:
# replies and logs never show them.
_SECRET_NAME = re.compile(r"secret|password|passwd|pwd|token|credential|access_?key", re.IGNORECASE)

MASK = "******"

# A comment after a value, which in .properties files, as in Java's, is part of the value. `;`
# separates addresses, so it counts as a comment only in a refused value.
_REMARK = re.compile(r"\s(?:#|//)")
_REMARK_IN_REFUSED = re.compile(r"\s(?:[#!;]|//)")
_REMARK_HINT = "a comment needs a line of its own, which starts with #"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WINDOWS_PATH = re.compile(r"[A-Za-z]:")


# Settings that define the identity of the daemon, its addresses and its permissions: requests
# cannot change them.
_FIXED = frozenset(
    "bindAddress brokerClusterName brokerConfigPath brokerId brokerIP1 brokerIP2 brokerName "
    "brokerRole configBlackList enableControllerMode haListenPort instances listenPort "
    "metricsHost rocketmqHome aclEnable rocketmq.acl.plain.file namesrvAclFile "
    "writeAllowList haAllowedAddresses filterServerAllowList statsdAddress".split()
)
_FIXED_PREFIXES = ("tls.", "etcd")
# An unknown setting is kept for the next start; these limits bound the growth of a file by
# requests.
_UNKNOWN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
MAX_UNKNOWN_SETTINGS = 256
MAX_UNKNOWN_VALUE = 4096  # characters
# Limit of notes per request that suggest a similar name, which takes about 1 ms to find.
_MAX_SUGGESTIONS = 20


class Update(NamedTuple):
    """The result of a change of settings."""

    changed: frozenset[str]  # names of the settings whose value has changed
    notes: tuple[str, ...]  # one sentence for each setting that takes no effect before a restart


class Settings:
    """The sections of one running daemon: `settings.<section>` is always the current one.

    Components of the daemon keep the `Settings` and read through it, or are called back: functions
    in `on_change` get the names of the settings that an update changed.
    """

    section_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, path: Path | None = None, extra: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.section = ""  # the section of the file at `path`, if the file is for several daemons
        self.extra = dict(extra or {})  # unknown settings in the file: shown, never used
        self.on_change: list[Callable[[frozenset[str]], None]] = []
        self.pending: dict[str, str] = {}  # saved in the file, effective after a restart
        self.version = (clock.milliseconds(), 0)  # timestamp in ms, counter

    @property
    def sections(self) -> list[Section]:
        return [getattr(self, name) for name in self.section_names]

    def apply(self, properties: Mapping[str, str]) -> None:
        """Set values without restrictions, as a file and the command line do before the start.

        Raises:
            ConfigError: a value does not match its setting's type.
        """
        known: set[str] = set()
        for name in self.section_names:
            section: Section = getattr(self, name)
            setattr(self, name, section.replace(**section.parse(properties)))
            for declared in section.settings().values():
                known.update((declared.name, *declared.aliases))
        self.extra.update({k: v for k, v in properties.items() if k not in known})

    def finish(self, overrides: Mapping[str, str] | None) -> None:
        """Finish loading: apply values of the command line, check, and complete the TLS settings.

        Raises:
            ConfigError: a value is invalid.
        """
        self.apply(overrides or {})
        self.check()
        for name in self.section_names:
            setattr(self, name, getattr(self, name).complete())
        self.log_without_effect()

    def lines(self, *, important: bool = False) -> list[str]:
        """`name=value` of every setting, section by section: the output of -p and -m."""
        return [
            f"{name}={value}"
            for section in self.sections
            for name, value in _without_secrets(section.properties(important=important))
        ]

    def log_all(self) -> None:
        """Log every setting on its own line (MixAll.printObjectProperties)."""
        foreign = [f"{name}={value}" for name, value in _without_secrets(self.extra.items())]
        for line in self.lines():
            log.info("%s", _escape_value(line))
        for line in foreign:
            log.info("%s (not a setting of this daemon)", _escape_value(line))

    def text(self) -> str:
        """The reply to "get config": every setting that has a value, one per line.

        Java writes the same in `Configuration.getAllConfigsFormatString`, which omits nulls, too.
        Backslashes are doubled because the reader parses .properties.
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
        """The data version in the format of Java's `DataVersion.toJson`."""
        timestamp, counter = self.version
        return f'{{"counter":{counter},"timestamp":{timestamp}}}'

    def blocked(self) -> frozenset[str]:
        """The names in `configBlackList`."""
        names: set[str] = set()
        for section in self.sections:
            names.update(getattr(section, "config_black_list", "").split(";"))
        return frozenset(names)

    def update(self, properties: Mapping[str, str]) -> Update:
        """Change settings of the running daemon, all or none, and save them in its file.

        Settings that cannot change at run time, have no effect here or are unknown are saved for
        the next start. Java's `Configuration.update` accepts all of these, too.

        Raises:
            NotUpdatable: a setting is fixed, or needs a restart and there is no file to keep it in.
            ConfigError: a value is invalid, or the file cannot be written.
        """
        now, later, notes = self._sorted(properties)
        replaced = self._with(now)
        self.check_sections(replaced)
        if later:  # the next start must accept the file
            self.check_sections(self._with({**self.pending, **later, **now}))
        saved = self._save(properties)
        if later and not saved:
            raise ConfigError(f"{', '.join(later)}: {self.path} could not be written; see the log")
        changed = self._changed(replaced)
        for name, section in replaced.items():
            setattr(self, name, section)
        self.pending.update(later)
        known = self._declared()
        self.extra.update({name: text for name, text in properties.items() if name not in known})
        self.version = (clock.milliseconds(), self.version[1] + 1)
        for callback in self.on_change:
            callback(changed)
        return Update(changed, notes)

    def _sorted(
        self, properties: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
        """Split an update into settings that change now, settings that change after a restart, and
        notes about all that do not change now. Raises like `update`.
        """
        declared, blocked = self._declared(), self.blocked()
        now: dict[str, str] = {}
        later: dict[str, str] = {}
        notes: list[str] = []
        self._check_unknown({n: text for n, text in properties.items() if n not in declared})
        for name, text in properties.items():
            known = declared.get(name)
            fixed = (
                name in _FIXED
                or name.startswith(_FIXED_PREFIXES)
                or (known is not None and known.path)
            )
            if fixed or name in blocked:
                raise NotUpdatable(
                    f"{name} cannot be changed by a request; set it in the configuration file and "
                    "restart"
                )
            if known is None:
                suggestion = self.suggestion(name) if len(notes) < _MAX_SUGGESTIONS else ""
                notes.append(f"{name} is not a setting of this daemon{suggestion}")
                continue
            known.parse(text)
            if not known.effect:
                notes.append(f"{name} has no effect in this daemon")
            elif known.updatable:
                now[name] = text
            elif self.path is None:
                raise NotUpdatable(
                    f"{name} needs a restart, and there is no configuration file to keep it in; "
                    "start with -c FILE"
                )
            else:
                later[name] = text
                notes.append(f"{name} is saved and takes effect after a restart")
        return now, later, tuple(notes)

    def _check_unknown(self, unknown: Mapping[str, str]) -> None:
        """Raise ConfigError for unknown settings of a request that cannot be saved."""
        for name, text in unknown.items():
            if not _UNKNOWN_NAME.fullmatch(name) or len(text) > MAX_UNKNOWN_VALUE:
                raise ConfigError(f"{name[:128]!r} is not a setting of this daemon")
        new = [name for name in unknown if name not in self.extra]
        if new and len(self.extra) + len(new) > MAX_UNKNOWN_SETTINGS:
            raise ConfigError(
                f"{new[-1]} is not a setting of this daemon, and it keeps no more than "
                f"{MAX_UNKNOWN_SETTINGS} unknown ones"
            )

    def suggestion(self, name: str) -> str:
        """`; did you mean NAME?` for a name similar to that of a setting, or ""."""
        by_folded = {known.lower(): known for known in self._declared()}
        near = get_close_matches(name.lower(), by_folded, 1, 0.85)
        return f"; did you mean {by_folded[near[0]]}?" if near else ""

    def _declared(self) -> dict[str, Setting]:
        return {
            known: declared
            for section in self.sections
            for declared in section.settings().values()
            for known in (declared.name, *declared.aliases)
        }

    def _with(self, properties: Mapping[str, str]) -> dict[str, Section]:
        """The sections with some values changed. Raises ConfigError for a wrong type."""
        return {
            name: getattr(self, name).replace(**getattr(self, name).parse(properties))
            for name in self.section_names
        }

    def _changed(self, replaced: Mapping[str, Section]) -> frozenset[str]:
        """The names of the settings whose values differ; each is logged."""
        changed = set()
        for section_name, section in replaced.items():
            for declared in section.settings().values():
                old = getattr(getattr(self, section_name), declared.attribute)
                new = getattr(section, declared.attribute)
                if new != old:
                    changed.add(declared.name)
                    shown = (MASK, MASK) if is_secret(declared.name) else (old, new)
                    log.info("setting changed: %s: %s -> %s", declared.name, *shown)
        return frozenset(changed)

    def check_sections(self, sections: Mapping[str, Section]) -> None:
        """Refuse invalid values; a daemon adds checks of combinations.

        Raises:
            ConfigError: names the setting.
        """
        for section in sections.values():
            if section.is_checked_at_once:
                section.check()

    def check(self) -> None:
        """Check the current values. Raises ConfigError."""
        self.check_sections({name: getattr(self, name) for name in self.section_names})
        for section in self.sections:
            for declared in section.settings().values():
                if declared.path and (value := getattr(section, declared.attribute)):
                    _check_new_path(declared.name, value)

    def log_without_effect(self) -> None:
        """Log the settings without effect, and unknown ones with names similar to a known one."""
        for name in self.extra:
            if suggestion := self.suggestion(name):
                log.warning("%s is not a setting of this daemon%s", name, suggestion)
        names = [name for section in self.sections for name in section.without_effect()]
        if names:
            log.warning("settings without effect here: %s", ", ".join(names))

    def _save(self, properties: Mapping[str, str]) -> bool:
        """Write settings to the configuration file; returns whether they are saved."""
        if self.path is None:
            log.warning("changed settings are lost at the stop: started without a file (-c)")
            return False
        try:
            if self.section:
                # other daemons save their settings there, too
                with files.locked_folder(self.path.parent):
                    self._write(self.path, properties)
            else:
                self._write(self.path, properties)
        except (OSError, UnicodeDecodeError) as error:
            log.error("cannot save changed settings in %s: %s", self.path, error)
            return False
        return True

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


def _check_new_path(name: str, value: str) -> None:
    """Refuse a path that does not exist and whose name must be a mistake.

    Java creates such folders. An existing path is accepted, because it may be a store.
    """
    if "\0" not in value and files.exists(Path(value)):
        return
    if value.startswith("~"):
        why = "~ is not expanded; write the whole path"
    elif _CONTROL.search(value) or _WINDOWS_PATH.match(value) or "\\" in value:
        why = "write a path of this system, with / between folders (\\ starts an escape here)"
    elif _REMARK.search(value):
        why = f"no such file or folder, and it is not created; {_REMARK_HINT}"
    else:
        return
    raise ConfigError(f"{name}={_escape_value(_CONTROL.sub('?', value))}: {why}")


def explained(error: ConfigError, path: Path | None) -> str:
    """The text of an error in a setting, with its location in the configuration file.

    The location is the line that gives the setting the refused value. Values from other sources
    (the command line, defaults) have none.
    """
    text = str(error)
    for number, name, value in _entries(path):
        if f"{name}={value}".rstrip() == text[: len(name) + 1 + len(value)].rstrip():
            hint = "" if _REMARK_HINT in text else f"; {_REMARK_HINT}"
            return f"{path}, line {number}: {text}" + (
                hint if _REMARK_IN_REFUSED.search(value) else ""
            )
    return text


def warn_of_remarks(path: Path | None) -> None:
    """Log each value of a configuration file that seems to contain a comment."""
    for number, name, value in _entries(path):
        if _REMARK.search(value) and not is_secret(name):
            log.warning(
                "%s, line %d: the value of %s is %r; %s", path, number, name, value, _REMARK_HINT
            )


def _entries(path: Path | None) -> list[tuple[int, str, str]]:
    """Line number, name and value of each pair of a file; empty for an unreadable file."""
    if path is None:
        return []
    try:
        return _read(path, lambda text: list(lines_of(text)))
    except ConfigError:
        return []


def is_secret(name: str) -> bool:
    """Whether the value of a setting with this name may be a secret."""
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
    """Like `read_file`, by section, for a file for several daemons; "" has the common settings."""
    return _read(path, read_sections)


def _read(path: Path, understood: Callable[[str], T]) -> T:
    try:
        data = files.read_bytes(path)
    except OSError as error:
        raise ConfigError(f"configuration file {path}: {error.strerror}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # the encoding of every file for java.util.Properties
    try:
        return understood(text)
    except ValueError as error:
        raise ConfigError(f"configuration file {path}: {error}") from error
