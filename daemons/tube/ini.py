"""The settings files of TubeMQ's servers: sections of `name=value`, as ini4j reads them.

    ; a comment, as is # one [master] port=8715

A name ends at the first `=` or `:`. There are no escapes: a backslash in a value is literal.
"""

import re
from pathlib import Path

from mq.client.machine import files
from mq.daemons.config import ConfigError

_SECTION = re.compile(r"\[([^\[\]]+)\]")
_PAIR = re.compile(r"([^=:]*?)\s*[=:]\s*(.*)")


def parse_ini(text: str) -> dict[str, dict[str, str]]:
    """Return names and values by section; those before the first one are in the section "".

    Raises:
        ValueError: with the number of the invalid line.
    """
    sections: dict[str, dict[str, str]] = {}
    current = sections.setdefault("", {})
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in ";#":
            continue
        if section := _SECTION.fullmatch(line):
            current = sections.setdefault(section[1].strip(), {})
        elif (pair := _PAIR.fullmatch(line)) and pair[1]:
            current[pair[1]] = pair[2]
        else:
            raise ValueError(f"line {number}: neither [section] nor name=value")
    return sections


def read_ini(path: Path) -> dict[str, dict[str, str]]:
    """Parse a file. Raises ConfigError."""
    try:
        data = files.read_bytes(path)
        return parse_ini(data.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"configuration file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"configuration file {path}: {error}") from error
