"""Files with secrets: access keys and TLS. Imported only if there are any."""

import ssl
from collections.abc import Mapping
from pathlib import Path

from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.client.credentials import AccessKey, read_access_key
from mq.client.errors import ClientError


def credentials(path: str, *, may_be_blank: bool = False) -> AccessKey | None:
    """Return the access key in a YAML file; None in a blank one with `may_be_blank`.

    Raises CommandError that names the file, and does not show its content.
    """
    try:
        if may_be_blank and not Path(path).read_bytes().strip():
            return None
        return read_access_key(Path(path))
    except (ClientError, OSError) as error:
        raise CommandError(
            str(error),
            hint="it needs two lines: accessKey: … and secretKey: …",
            status=Status.CONFIG,
        ) from None


def key_of_variables(variables: Mapping[str, str]) -> AccessKey:
    """Return the key of MQ_ACCESS_KEY, MQ_SECRET_KEY, MQ_SECURITY_TOKEN. Raises CommandError."""
    access_key = variables.get("MQ_ACCESS_KEY", "").strip()
    secret_key = variables.get("MQ_SECRET_KEY", "").strip()
    if not (access_key and secret_key):
        missing = "MQ_SECRET_KEY" if access_key else "MQ_ACCESS_KEY"
        raise CommandError(
            f"incomplete access key in the environment: {missing} is not set", status=Status.CONFIG
        )
    return AccessKey(access_key, secret_key, variables.get("MQ_SECURITY_TOKEN") or None)


def tls_context(path: str) -> ssl.SSLContext:
    """Return the TLS context of a tls.properties file. Raises CommandError with the cause."""
    from mq.client.transport.tls import client_context

    try:
        return client_context(tls_properties(path))
    except ClientError as error:
        raise CommandError(f"{path}: {error}", status=Status.CONFIG) from None


def tls_properties(path: str) -> dict[str, str]:
    """Return the properties of a tls.properties file. Raises CommandError if it is unreadable."""
    from mq.daemons.properties import read_properties

    try:
        return read_properties(Path(path).read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", status=Status.CONFIG) from None
    except ValueError as error:
        raise CommandError(f"{path}: {error}", status=Status.CONFIG) from None


def check_private(path: Path) -> None:
    """Raise CommandError unless a file with secrets is readable for its owner only."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", status=Status.CONFIG) from None
    if mode & 0o077:
        raise CommandError(
            f"{path} holds a secret key and is readable for other users",
            hint=f"chmod 600 {path}",
            status=Status.CONFIG,
        )
