"""Files with secrets that a command uses: access keys and TLS. Loaded only where there are some."""

import ssl
from collections.abc import Mapping
from pathlib import Path

from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.client.credentials import AccessKey, read_access_key
from mq.client.errors import ClientError


def credentials(path: str, *, may_be_blank: bool = False) -> AccessKey | None:
    """The access key in a YAML file; None in a blank one, where that may be.

    Raises CommandError that names the file, and does not show its content.
    """
    try:
        if may_be_blank and not Path(path).read_bytes().strip():
            return None
        return read_access_key(Path(path))
    except (ClientError, OSError) as error:
        raise CommandError(
            str(error),
            hint="write two lines: accessKey: … and secretKey: …",
            status=Status.CONFIG,
        ) from None


def key_of_variables(variables: Mapping[str, str]) -> AccessKey:
    """The access key in MQ_ACCESS_KEY, MQ_SECRET_KEY, MQ_SECURITY_TOKEN. CommandError for half."""
    access_key = variables.get("MQ_ACCESS_KEY", "").strip()
    secret_key = variables.get("MQ_SECRET_KEY", "").strip()
    if not (access_key and secret_key):
        missing = "MQ_SECRET_KEY" if access_key else "MQ_ACCESS_KEY"
        raise CommandError(
            f"half an access key in the environment: {missing} is not set", status=Status.CONFIG
        )
    return AccessKey(access_key, secret_key, variables.get("MQ_SECURITY_TOKEN") or None)


def tls_context(path: str) -> ssl.SSLContext:
    """The TLS of a tls.properties file. Raises CommandError that names what is wrong."""
    from mq.client.tls import client_context

    try:
        return client_context(tls_properties(path))
    except ClientError as error:
        raise CommandError(f"{path}: {error}", status=Status.CONFIG) from None


def tls_properties(path: str) -> dict[str, str]:
    """What a tls.properties file says. Raises CommandError for one that cannot be read."""
    from mq.daemons.properties import read_properties

    try:
        return read_properties(Path(path).read_text("utf-8"))
    except OSError as error:
        raise CommandError(
            f"{path} cannot be read: {error.strerror}", status=Status.CONFIG
        ) from None
    except ValueError as error:
        raise CommandError(f"{path}: {error}", status=Status.CONFIG) from None


def check_private(path: Path) -> None:
    """Raises CommandError unless only its owner can read a file with secrets."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise CommandError(
            f"{path} cannot be read: {error.strerror}", status=Status.CONFIG
        ) from None
    if mode & 0o077:
        raise CommandError(
            f"{path} holds a secret key and others may read it",
            hint=f"chmod 600 {path}",
            status=Status.CONFIG,
        )
