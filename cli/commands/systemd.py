"""`mq systemd install`: installs the units of the package where systemd finds them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mq.cli.machine import installed_units
from mq.cli.machine.installed_units import Unit
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.client.operations import local_files
from mq.client.operations.columns import text

COMMANDS = {"systemd": ("systemd install",)}

Prefix = Annotated[
    str,
    typer.Option(
        "--prefix", metavar="DIR", help="Directory that has lib/systemd/system and lib/sysusers.d."
    ),
]

_COLUMNS = (text("path", "File"), text("what", "Result"))
_TOTALS = (text("execStart", "The mq that the units run"),)
_NEXT = """\
Next:
  systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload
  systemctl enable --now mq-namesrv     # reads /etc/mq/namesrv.conf
  systemctl enable --now mq-broker@a    # reads /etc/mq/a.conf
"""


class _Change(StrEnum):
    """The change to a file."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"
    FORCED = "replaced, the old one is kept as .1"


@gives(_COLUMNS, totals=_TOTALS)
@writes
def systemd_install(
    call: Call,
    prefix: Prefix = "/usr/local",
    command: Annotated[
        str | None,
        typer.Option(
            "--command",
            metavar="PATH",
            help="Path of the mq that the units run. Default: this one.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace changed files, too; old ones are kept as FILE.1."),
    ] = False,
) -> Result:
    """Install the units for systemd, with their user and directories.

    Below DIR these are lib/systemd/system, lib/sysusers.d and lib/tmpfiles.d; files in /etc
    override them, so that changes and drop-ins of administrators stay. The units run the mq that
    ran this command, by its absolute path. Files of an earlier release are replaced; if one was
    edited, nothing is written, and the exit status is 73. Nothing is started: it prints the next
    commands. The exit status is 1 if the units have no access to the mq that they run.

    To uninstall, disable the units and remove their files:
    mq systemd install --dry-run --no-header --columns path | xargs -r rm

    Examples:
        mq systemd install --dry-run      show the units
        mq systemd install --prefix /usr  for a package
    """
    root = Path(prefix)
    if not root.is_absolute():
        raise UsageError(f"--prefix {prefix}: not an absolute path", hint="such as /usr/local")
    program = installed_units.command_of(sys.argv[0], command)
    rows: list[Row] = []
    with _readable_by_all():
        for path, content, change in _planned(root, program, force=force):
            rows.append((str(path), change.value))
            if change is _Change.UNCHANGED:
                continue
            if call.dry_run:
                call.would("write", path)
            else:
                _write(path, content, keep=change is _Change.FORCED)
    return _told(root, program, rows)


def _planned(root: Path, program: str, *, force: bool) -> list[tuple[Path, bytes, _Change]]:
    """Return the change of each file. Raises CommandError if one was edited."""
    found = [_looked_at(root, unit) for unit in installed_units.units(program)]
    changed = [path for path, _, change in found if change is _Change.FORCED]
    if changed and not force:
        raise CommandError(
            f"nothing was written; edited files: {', '.join(map(str, changed))}",
            hint="keep changes in drop-ins (systemctl edit UNIT), or replace the files: --force",
            status=Status.CANNOT_CREATE,
        )
    return found


def _looked_at(root: Path, unit: Unit) -> tuple[Path, bytes, _Change]:
    path = root / unit.place
    if not os.path.lexists(path):
        change = _Change.WRITTEN
    else:
        old = local_files.read(path)
        if old == unit.content:
            change = _Change.UNCHANGED
        elif installed_units.is_ours(old):
            change = _Change.REPLACED
        else:
            change = _Change.FORCED
    return path, unit.content, change


@contextmanager
def _readable_by_all() -> Iterator[None]:
    """Set a umask that makes units readable for all users."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def _write(path: Path, content: bytes, *, keep: bool) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise local_files.cannot("make", path.parent, error) from error
    local_files.replace(path, content, keep=int(keep))


def _told(root: Path, program: str, rows: list[Row]) -> Result:
    following = _NEXT
    if root not in installed_units.SEARCHED:
        following = f"systemd does not read {root}: use it for a package, or to view the files.\n"
    failures = []
    hidden = installed_units.hidden(program)
    if hidden:
        failures.append(
            f"the units cannot run {program}: {hidden} hides it from them; "
            "install mq below /opt, or name another one with --command"
        )
    width = max(len(path) for path, _ in rows)
    lines = [f"{path:{width}}  {what}\n" for path, what in rows]
    return Result(
        _COLUMNS,
        rows,
        "".join(lines) + following,
        totals={"execStart": program},
        failures=failures,
        notes=following.splitlines(),
    )
