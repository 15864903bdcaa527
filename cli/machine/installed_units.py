"""The units of `systemd/` as files of a system: where each goes, and whether one there was changed.

An installed file begins with a line that has the digest of the rest. A file whose digest is right
is as some release wrote it, and is replaced; any other is somebody's, and stays.
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
# What systemd reads in a command line as something else than itself, `%` aside, which is doubled.
_SPECIAL = re.compile(r"[\s\"'\\$;]|[^ -~]")
# What the units may not see, and why: an mq that lies there cannot be started by them.
_HIDDEN = {
    "/home": "ProtectHome=yes",
    "/root": "ProtectHome=yes",
    "/run/user": "ProtectHome=yes",
    "/tmp": "PrivateTmp=yes",
    "/var/tmp": "PrivateTmp=yes",
}
# Where systemd and its tools look beside /etc (systemd.unit(5), sysusers.d(5), tmpfiles.d(5)).
SEARCHED = (Path("/usr/local"), Path("/usr"))


class Unit(NamedTuple):
    """A file to install: its place below the prefix, and its content with the first line."""

    place: Path
    content: bytes


def units(command: str) -> Iterator[Unit]:
    """Every file, for the `mq` at this absolute path, sorted by place."""
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
    """Whether an installed file is as some release of mq wrote it."""
    return content == _headed(content.partition(b"\n")[2])


def command_of(called: str, given: str | None) -> str:
    """The absolute path of the `mq` that the units run: `given`, or the one that runs now.

    `called` is how that was called. It counts if it is the script of this very environment, so that
    a link to the version in use, /opt/mq, stays one. Raises UsageError for a path that is no
    program, or that no unit can name.
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
            f"{sys.prefix} has no script bin/mq that a unit could run",
            hint="install mq there with pip, or name one: --command /opt/mq/bin/mq",
        )
    path = Path(called).absolute()
    return path if path.is_file() and path.samefile(script) else script


def _escaped(command: str) -> str:
    if _SPECIAL.search(command):
        raise UsageError(
            f"{command!r} cannot stand in a unit: it has a blank or a special character",
            hint="install mq in another folder, such as /opt/mq",
        )
    return command.replace("%", "%%")


def hidden(command: str) -> str | None:
    """The setting of the units that hides the program from them, if it lies where one does."""
    for path in (Path(command), Path(command).resolve()):
        for folder, setting in _HIDDEN.items():
            if path.is_relative_to(folder):
                return setting
    return None
