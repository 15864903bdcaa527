"""The preferences of a user for pages, stored in cookies."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

THEMES = ("auto", "light", "dark")
COOKIES = ("mq-theme", "mq-language", "mq-zone", "mq-keys")


@dataclass(frozen=True, slots=True)
class Preferences:
    """``zone`` is the name of a time zone, "UTC" by default; ``keys`` enables single keys as
    shortcuts."""

    theme: str = "auto"
    language: str = ""
    zone: str = "UTC"
    keys: bool = True

    @property
    def tz(self) -> tzinfo:
        """The time zone."""
        return _zone(self.zone)


def of_cookies(cookies: Mapping[str, str]) -> Preferences:
    """Return the preferences of cookies; invalid values are ignored."""
    theme = cookies.get("mq-theme", "auto")
    zone = cookies.get("mq-zone", "UTC").replace("%2F", "/")
    return Preferences(
        theme if theme in THEMES else "auto",
        cookies.get("mq-language", ""),
        zone if is_zone(zone) else "UTC",
        cookies.get("mq-keys", "on") != "off",
    )


def is_zone(name: str) -> bool:
    """Return whether a time zone of this name exists."""
    return name == "UTC" or _zone(name) is not UTC


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    if name in ("", "UTC") or len(name) > 64:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # ValueError: not a plain relative path
        return UTC
