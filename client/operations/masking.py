"""Secrets in what a command shows: settings, fields of requests, bodies."""

import re
from collections.abc import Mapping
from typing import Any

MASK = "******"

# Names of what is secret; initAuthenticationUser of 5.x has a password in its value.
_SECRET = re.compile(
    r"secret|passw|passphrase|token|signature|credential|authenticationUser|private_?key(?!.*path)",
    re.IGNORECASE,
)
# A secret within a value: {"username":"a","password":"b"}, also where = and : are escaped.
_WITHIN = re.compile(r"""(?:secret|passw|token)\w*["']?\s*\\?[:=]""", re.IGNORECASE)
_LINE = re.compile(r"^(\s*([\w.\-]+)\s*[=:]\s*)(.+)$", re.MULTILINE)


def is_secret(name: str, value: object = None) -> bool:
    """Whether what is called so, or has that value, is nothing to show."""
    return bool(_SECRET.search(name)) or (isinstance(value, str) and bool(_WITHIN.search(value)))


def fields(values: Mapping[str, str]) -> dict[str, str]:
    """The same without the values of secrets; an empty one is none."""
    return {
        name: MASK if value and is_secret(name, value) else value for name, value in values.items()
    }


def document(value: Any) -> Any:
    """What JSON says, likewise."""
    if isinstance(value, list):
        return [document(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        str(name): MASK if item and is_secret(str(name), item) else document(item)
        for name, item in value.items()
    }


def lines(text: str) -> str:
    """A text whose lines may be settings (`name=value`), likewise."""

    def line(found: re.Match[str]) -> str:
        begin, name, value = found.groups()
        return begin + MASK if is_secret(name, value) else found[0]

    return _LINE.sub(line, text)
