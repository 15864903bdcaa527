"""Accounts and tokens: a JSON file that only its owner can read.

    {"version": 1,
     "users":  {NAME: {"password": "$argon2id$…", "roles": {CLUSTER or "*": ROLE},
                       "topics": [PATTERN], "groups": [PATTERN], "readOnly": false}},
     "tokens": {NAME: {"sha256": HEX, "roles": …, "topics": …, "groups": …, "readOnly": …,
                       "expires": ms since 1970 or null}}}

Commands write it (`mq console user`, `mq console token`); a console reads it again when it changes.
It contains no passwords and no tokens: for a password it has the argon2id hash, for a token, which
has 256 random bits, the SHA-256.
"""

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from mq.client.machine import files, random_ids
from mq.client.operations.errors import BadData, CannotWrite, InvalidRequest, NotFound
from mq.daemons.console.permissions import ROLES
from mq.daemons.console.security.roles import User
from mq.daemons.state_file import make_private_folder, write_atomically

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
TOKEN_PREFIX = "mqc_"
MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Account:
    """A user with a password, or a token; ``secret`` is the stored hash of either."""

    name: str
    secret: str
    roles: Mapping[str, str]
    topics: tuple[str, ...] = ("*",)
    groups: tuple[str, ...] = ("*",)
    read_only: bool = False
    expires: int | None = None  # ms since 1970, of a token

    @property
    def mark(self) -> str:
        """A value that changes with any change of the account, which ends earlier sessions."""
        content = repr((self.secret, sorted(self.roles.items()), self.topics, self.groups))
        return hashlib.sha256(f"{content}{self.read_only}".encode()).hexdigest()

    def user(self, *, token: bool = False) -> User:
        """Return the user of this account."""
        name = f"token {self.name}" if token else self.name
        return User(
            name,
            self.roles,
            self.topics,
            self.groups,
            self.read_only,
            self.name if token else "",
        )


@dataclass(slots=True)
class Accounts:
    """The content of the file."""

    users: dict[str, Account] = field(default_factory=dict)
    tokens: dict[str, Account] = field(default_factory=dict)

    def of_token(self, secret: str, now: int) -> Account | None:
        """Return the account of a token, unless it has expired. ``now`` is in ms since 1970."""
        given = hashlib.sha256(secret.encode()).hexdigest()
        for token in self.tokens.values():
            if hmac.compare_digest(token.secret, given):
                return None if token.expires is not None and token.expires <= now else token
        return None


def new_token() -> tuple[str, str]:
    """Return a new token for its holder, and the hash to store."""
    raw = base64.urlsafe_b64encode(random_ids.random_bytes(32)).rstrip(b"=").decode()
    token = TOKEN_PREFIX + raw
    return token, hashlib.sha256(token.encode()).hexdigest()


def read(path: Path) -> Accounts:
    """Return the accounts of a file; none if the file is missing.

    Raises BadData if it cannot be read, or if other users may read or write it.
    """
    try:
        with files.opened(path, os.O_RDONLY) as descriptor:
            if files.fstat(descriptor).st_mode & 0o077:
                raise BadData(f"{path} is accessible to other users: chmod 600 {path}")
            content = files.read(descriptor, MOST_BYTES + 1)
    except FileNotFoundError:
        return Accounts()
    except OSError as error:
        raise BadData(f"cannot read {path}: {error.strerror}") from error
    try:
        found = orjson.loads(content)
        if found.get("version") != 1:
            raise ValueError(f"version {found.get('version')!r}")
        return Accounts(
            {n: _account(n, one, "password") for n, one in found.get("users", {}).items()},
            {n: _account(n, one, "sha256") for n, one in found.get("tokens", {}).items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError, InvalidRequest) as error:
        raise BadData(f"{path} is not an accounts file: {error}") from error


def _account(name: str, one: Mapping[str, Any], secret: str) -> Account:
    expires = one.get("expires")
    return Account(
        checked_name(name),
        str(one[secret]),
        checked_roles({str(c): str(r) for c, r in one["roles"].items()}),
        tuple(map(str, one.get("topics", ["*"]))),
        tuple(map(str, one.get("groups", ["*"]))),
        bool(one.get("readOnly", False)),
        None if expires is None else int(expires),
    )


def checked_name(name: str) -> str:
    """Return the name. Raises InvalidRequest if it is not valid for an account."""
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} is not a valid account name: use letters, digits, . _ @ and -"
        )
    return name


def checked_roles(roles: Mapping[str, str]) -> dict[str, str]:
    """Return the roles. Raises InvalidRequest for an unknown one."""
    for role in roles.values():
        if role not in ROLES:
            raise InvalidRequest(f"{role!r} is not a role: roles are {', '.join(ROLES)}")
    return dict(roles)


@contextmanager
def changing(path: Path) -> Iterator[Accounts]:
    """Return the accounts of a file for changes; they are written at the end, unless it raises.

    A lock excludes other writers meanwhile. Raises BadData and CannotWrite.
    """
    try:
        make_private_folder(path.parent)
        with files.locked_folder(path.parent):
            accounts = read(path)
            yield accounts
            if not files.exists(path):  # write_atomically keeps the mode of an existing file
                # Written whole or not at all: a partial file would be unusable.
                new = path.with_name(path.name + ".new")
                files.remove(new)
                with files.opened(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600) as descriptor:
                    files.fchmod(descriptor, 0o600)
                    files.write_all(descriptor, written(Accounts()))
                    files.fsync(descriptor)
                files.replace(new, path)
            write_atomically(path, written(accounts))
            # it contains the data that was just removed
            files.remove(path.with_name(path.name + ".bak"))
    except OSError as error:
        raise CannotWrite(f"cannot write {path}: {error.strerror}") from error


def written(accounts: Accounts) -> bytes:
    """Return the content of the file."""
    content = {
        "version": 1,
        "users": {n: _written(one, "password") for n, one in accounts.users.items()},
        "tokens": {n: _written(one, "sha256") for n, one in accounts.tokens.items()},
    }
    return orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n"


def _written(one: Account, secret: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        secret: one.secret,
        "roles": dict(one.roles),
        "topics": list(one.topics),
        "groups": list(one.groups),
        "readOnly": one.read_only,
    }
    if secret == "sha256":
        found["expires"] = one.expires
    return found


def of_name(accounts: Mapping[str, Account], name: str, kind: str) -> Account:
    """Return the account of this name. Raises NotFound."""
    if name not in accounts:
        known = ", ".join(sorted(accounts)) or "there are none"
        raise NotFound(f"no {kind} {name!r} (known: {known})")
    return accounts[name]
