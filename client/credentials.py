"""Access keys: the identity of a client and the signature of each request (Java:
AclClientRPCHook).
"""

from dataclasses import dataclass, field
from pathlib import Path

import orjson

from mq.client.errors import ClientError
from mq.client.machine import files
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.signature import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    UNIQUE_KEY_QUERY,
    content,
    signature,
)

# The ordinal of V4_9_3 in MQVersion; see `sign`.
_V4_9_3 = 399


@dataclass(frozen=True)
class AccessKey:
    """An access key with its secret, and a security token for services that require one."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.access_key.strip() or not self.secret_key.strip():
            raise ClientError("an access key and its secret key must not be empty")

    def sign(self, command: Command) -> None:
        """Add access key and signature to a request, which must not change afterwards."""
        fields = {name: value for name, value in command.fields.items() if name != SIGNATURE}
        fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        made = signature(self.secret_key.encode(), content(fields, command.body))
        command.fields = {**fields, SIGNATURE: made}
        if command.code == RequestCode.QUERY_MESSAGE and UNIQUE_KEY_QUERY in fields:
            # Brokers of 4.9.8 exclude that field from the signed content; those of 5.x do so only
            # for clients that are not newer than this version.
            command.version = min(command.version, _V4_9_3)


def read_access_key(path: Path) -> AccessKey:
    """Read an access key from a YAML file such as conf/tools.yml, with accessKey and secretKey.

    Raises ClientError, which names the file and never shows the secret.
    """
    try:
        content = files.read_bytes(path)
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror}") from None
    data = _parsed(path, content)
    if not isinstance(data, dict):
        raise ClientError(f"{path} has no accessKey and secretKey")
    values = [data.get(name) for name in ("accessKey", "secretKey", "securityToken")]
    access_key, secret_key, token = ("" if value is None else str(value) for value in values)
    if not access_key.strip() or not secret_key.strip():
        raise ClientError(f"{path} has no accessKey or no secretKey")
    return AccessKey(access_key, secret_key, token or None)


def _parsed(path: Path, content: bytes) -> object:
    try:
        return orjson.loads(content)  # JSON is YAML, and Spark's executors have no YAML parser
    except ValueError:
        pass
    import yaml

    try:
        found: object = yaml.safe_load(content)
        return found
    except (yaml.YAMLError, ValueError):
        raise ClientError(f"{path} is not YAML") from None
