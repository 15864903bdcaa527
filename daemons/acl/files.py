"""The ACL files of a broker: conf/plain_acl.yml and every *.yml under conf/acl, combined.

Changes use a temporary file and a rename, and a file is only replaced by a valid one. Comments do
not survive a change by request, as in Java.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mq.client.machine import clock, files
from mq.daemons.acl.accounts import Account, AclDocument, parse_document, version_of
from mq.daemons.acl.addresses import Matcher
from mq.daemons.acl.errors import AclError
from mq.daemons.state_file import make_folder
from mq.protocol.bodies import DataVersion

log = logging.getLogger(__name__)

TOOLS_FILE = "tools.yml"  # mqadmin's keys, not a list of accounts
# An ACL file is written by hand: a larger one is a different kind of file.
MOST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Rules:
    """The content of all files together. `files` has the file of each access key."""

    accounts: Mapping[str, Account]
    files: Mapping[str, Path]
    global_matchers: tuple[Matcher, ...]
    versions: Mapping[Path, DataVersion]


class AclFiles:
    """The files in `<home>/conf/acl` and `default`, to which new accounts are added."""

    def __init__(self, home: Path, default: str) -> None:
        self.default = home / default
        self.folder = home / "conf" / "acl"

    def paths(self) -> list[Path]:
        """The existing files, the default one last (PlainPermissionManager.load)."""
        found = [
            path
            for path in files.below(self.folder)
            if path.suffix in (".yml", ".yaml") and path.name != TOOLS_FILE and files.is_file(path)
        ]
        if self.default not in found and files.is_file(self.default):
            found.append(self.default)
        return found

    def fingerprint(self) -> tuple[object, ...]:
        """A value that changes when a file is changed, added or removed."""
        marks: list[object] = []
        for path in self.paths():
            try:
                status = files.stat(path)
            except OSError:
                continue  # just removed: the next check sees that
            marks.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(marks)

    def read(self) -> Rules:
        """Read every file. Raises AclError that names the file and the error."""
        accounts: dict[str, Account] = {}
        of_keys: dict[str, Path] = {}
        matchers: list[Matcher] = []
        versions: dict[Path, DataVersion] = {}
        for path in self.paths():
            document = _parse(path, load(path))
            matchers += document.global_matchers
            versions[path] = document.version
            for account in document.accounts:
                if account.access_key in accounts:
                    log.warning(
                        "access key %s is also in %s; using %s",
                        account.access_key,
                        path,
                        of_keys[account.access_key],
                    )
                    continue
                accounts[account.access_key] = account
                of_keys[account.access_key] = path
        return Rules(accounts, of_keys, tuple(matchers), versions)

    def write(self, path: Path, data: dict[str, Any]) -> None:
        """Replace a file and increase its version.

        Raises AclError, and changes nothing, if the new content is invalid or cannot be written.
        """
        version = version_of(data)
        data["dataVersion"] = [{"counter": version.counter + 1, "timestamp": clock.milliseconds()}]
        _parse(path, data)
        import yaml

        content = yaml.safe_dump(data, allow_unicode=True, sort_keys=False).encode()
        try:
            _replace(path, content)
        except OSError as error:
            raise AclError(f"cannot write {path}: {error.strerror}") from error


def _content(path: Path) -> bytes:
    """The content of a file; empty if it is missing. Raises AclError."""
    try:
        content = files.read_bytes(path, MOST_BYTES + 1)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise AclError(f"cannot read {path}: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise AclError(f"{path}: over {MOST_BYTES} bytes, too large for an ACL file")
    return content


def load(path: Path) -> dict[str, Any]:
    """The YAML of a file; empty for a missing or empty one. Raises AclError."""
    content = _content(path)
    if not content:
        return {}
    import yaml  # most brokers have no such file

    try:
        data = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # The parser's text quotes the line, which may contain a secret.
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or type(error).__name__
        raise AclError(f"{path} is not YAML{where}: {problem}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise AclError(f"{path}: an ACL file must be a YAML mapping with accounts")
    return data


def _parse(path: Path, data: dict[str, Any]) -> AclDocument:
    try:
        return parse_document(data)
    except AclError as error:
        raise AclError(f"{error} ({path})") from None


def _replace(path: Path, content: bytes) -> None:
    """Like state_file.write_atomically, but readable by the owner only and without a copy: the file
    has secrets, and a deleted account must not survive.
    """
    make_folder(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    mode = files.stat(path).st_mode & 0o777 if files.exists(path) else 0o600
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with files.opened(temporary, flags, 0o600) as descriptor:
            files.fchmod(descriptor, mode)
            files.write_all(descriptor, content)
            files.fsync(descriptor)
        files.replace(temporary, path)
    except OSError:
        files.remove(temporary)
        raise
    files.sync_folder(path.parent)
