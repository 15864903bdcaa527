"""Masks secrets in the output of commands: settings, request fields, bodies."""

import re
from collections.abc import Mapping
from typing import Any

MASK = "******"

# Names of secrets; the value of initAuthenticationUser of 5.x contains a password.
_SECRET = re.compile(
    r"secret|passw|passphrase|token|signature|credential|authenticationUser|private_?key(?!.*path)",
    re.IGNORECASE,
)
# A secret within a value: {"username":"a","password":"b"}, also with escaped = and :.
_WITHIN = re.compile(r"""(?:secret|passw|token)\w*["']?\s*\\?[:=]""", re.IGNORECASE)
_LINE = re.compile(r"^(\s*([\w.\-]+)\s*[=:]\s*)(.+)$", re.MULTILINE)


def is_secret(name: str, value: object = None) -> bool:
    """Whether a name or a value indicates a secret."""
    return bool(_SECRET.search(name)) or (isinstance(value, str) and bool(_WITHIN.search(value)))


def fields(values: Mapping[str, str]) -> dict[str, str]:
    """Return the fields with secret values masked; empty values stay."""
    return {
        name: MASK if value and is_secret(name, value) else value for name, value in values.items()
    }


def document(value: Any) -> Any:
    """Return a JSON document with secret values masked."""
    if isinstance(value, list):
        return [document(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        str(name): MASK if item and is_secret(str(name), item) else document(item)
        for name, item in value.items()
    }


def lines(text: str) -> str:
    """Return a text whose lines may be settings (`name=value`) with secret values masked."""

    def line(found: re.Match[str]) -> str:
        begin, name, value = found.groups()
        return begin + MASK if is_secret(name, value) else found[0]

    return _LINE.sub(line, text)
