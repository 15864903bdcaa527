"""The units of `systemd/` as installed files: their places, and whether one was edited.

The first line of an installed file has the digest of the rest. A file with a correct digest is
unchanged since its release, and is replaced; any other has been edited, and stays.
"""

import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from mq.cli.runtime.errors import UsageError

_SHIPPED_COMMAND = "/opt/mq/bin/mq"
_HEAD = "# Written by mq systemd install; changes belong in /etc. sha256="
# Characters that systemd interprets in a command line; `%` is doubled instead.
_SPECIAL = re.compile(r"[\s\"'\\$;]|[^ -~]")
# Directories that the units cannot access, with the setting; an mq there cannot be started.
_HIDDEN = {
    "/home": "ProtectHome=yes",
    "/root": "ProtectHome=yes",
    "/run/user": "ProtectHome=yes",
    "/tmp": "PrivateTmp=yes",
    "/var/tmp": "PrivateTmp=yes",
}
# The prefixes that systemd and its tools search besides /etc (systemd.unit(5), sysusers.d(5),
# tmpfiles.d(5)).
SEARCHED = (Path("/usr/local"), Path("/usr"))


class Unit(NamedTuple):
    """A file to install: its place below the prefix, and its content with the first line."""

    place: Path
    content: bytes


def units(command: str) -> Iterator[Unit]:
    """Yield every file, for the `mq` at this absolute path, sorted by place."""
    shipped = resources.files("mq.systemd")
    texts = {item.name: item for item in shipped.iterdir() if not item.name.startswith("__")}
    for name in sorted(texts):
        place = _place(name)
        if place is not None:
            text = texts[name].read_text("utf-8").replace(_SHIPPED_COMMAND, _escaped(command))
            yield Unit(place, _headed(text.encode()))


def _place(name: str) -> Path | None:
    if name.endswith((".service", ".timer")):
        return Path("lib/systemd/system", name)
    base, _, kind = name.rpartition(".")
    return Path(f"lib/{kind}.d", f"{base}.conf") if kind in ("sysusers", "tmpfiles") else None


def _headed(content: bytes) -> bytes:
    return f"{_HEAD}{hashlib.sha256(content).hexdigest()}\n".encode() + content


def is_ours(content: bytes) -> bool:
    """Return whether an installed file is unchanged since its release."""
    return content == _headed(content.partition(b"\n")[2])


def command_of(called: str, given: str | None) -> str:
    """Return the absolute path of the `mq` that the units run: `given`, or the running one.

    `called` is the path by which it was called. It is kept if it is the script of this environment,
    so that a link to the version in use, such as /opt/mq, stays a link. Raises UsageError for a
    path that is not a program, or that a unit cannot contain.
    """
    path = Path(given).absolute() if given else _running(called)
    if given and not path.is_file():
        raise UsageError(f"--command {given}: no such program", hint="name an installed mq")
    _escaped(str(path))
    return str(path)


def _running(called: str) -> Path:
    script = Path(sysconfig.get_path("scripts"), "mq")
    if not script.is_file():
        raise UsageError(
            f"{sys.prefix} has no script bin/mq for units to run",
            hint="install mq there with pip, or name one: --command /opt/mq/bin/mq",
        )
    path = Path(called).absolute()
    return path if path.is_file() and path.samefile(script) else script


def _escaped(command: str) -> str:
    if _SPECIAL.search(command):
        raise UsageError(
            f"{command!r} cannot be used in a unit: it contains a blank or a special character",
            hint="install mq in another directory, such as /opt/mq",
        )
    return command.replace("%", "%%")


def hidden(command: str) -> str | None:
    """Return the setting of the units that hides the program's path from them, if any."""
    for path in (Path(command), Path(command).resolve()):
        for folder, setting in _HIDDEN.items():
            if path.is_relative_to(folder):
                return setting
    return None
