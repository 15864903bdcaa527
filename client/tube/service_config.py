"""The settings of a service: the file that the C++ client starts with (conf/client.conf).

    [TubeMQ]
    log_num = 10
    log_size = 100
    log_path = /var/log/tubemq/client
    log_level = 2
    dns_xfs_period_ms = 30000
    timer_threads, network_threads, signal_threads

A number out of bounds is replaced by the nearest valid one, as in that client; the bounds of
log_num and log_size are specific to this project. There is only one event loop: the numbers of
threads are accepted and ignored.
"""

import configparser
import logging
from dataclasses import dataclass, field
from logging.handlers import RotatingFileHandler
from pathlib import Path

from mq.client.errors import ClientError
from mq.client.machine import files

log = logging.getLogger(__name__)

SECTION = "TubeMQ"
LOGGER = "mq.client.tube"
#: The original's levels from 0 on; the first is TRACE.
LEVELS = (5, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
THREADS = ("timer_threads", "network_threads", "signal_threads")

_LEAST_DNS_PERIOD_MS = 10_000
_MOST_INT = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """Settings of a `TubeService`.

    Attributes:
        log_path: the path of the log file, without ".log"; None leaves logging to the program. (The
            C++ client always writes one, by default `../log/tubemq`.)
        log_files: the number of files kept by log rotation (log_num).
        log_file_mib: the size limit of a file (log_size).
        log_level: 0 trace, 1 debug, 2 info, 3 warning, 4 error.
        dns_period: seconds between two lookups of the masters' names, at least 10.
    """

    log_path: Path | None = None
    log_files: int = 10
    log_file_mib: int = 100
    log_level: int = 4
    dns_period: float = 30.0
    without_meaning: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.dns_period * 1000 < _LEAST_DNS_PERIOD_MS:
            raise ClientError(f"dns_period must be at least 10 s, not {self.dns_period!r}")
        if not 0 <= self.log_level < len(LEVELS):
            raise ClientError(f"log_level must be between 0 and 4, not {self.log_level!r}")
        if self.log_files < 1 or self.log_file_mib < 1:
            raise ClientError("log_files and log_file_mib must be at least 1")

    @classmethod
    def read(cls, path: Path) -> "ServiceConfig":
        """Read a file. Raises ClientError, which names the file, if it is invalid."""
        try:
            text = files.read_bytes(path).decode()
        except OSError as error:
            raise ClientError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ClientError(f"{path} is not UTF-8") from None
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(text, str(path))
        except configparser.Error as error:
            raise ClientError(f"{path} cannot be read: {error.message}") from None
        if not parser.has_section(SECTION):
            raise ClientError(f"{path} has no section [{SECTION}]")
        return cls._of(_Section(path, dict(parser[SECTION])))

    @classmethod
    def _of(cls, section: "_Section") -> "ServiceConfig":
        path = section.values.get("log_path", "").strip()
        period = section.number("dns_xfs_period_ms", 30_000, _LEAST_DNS_PERIOD_MS)
        return cls(
            log_path=Path(path) if path else None,
            log_files=section.number("log_num", 10, 1),
            log_file_mib=section.number("log_size", 100, 1),
            log_level=section.number("log_level", 4, 0, 4),
            dns_period=period / 1000,
            without_meaning=tuple(name for name in THREADS if name in section.values),
        )

    def open_log(self) -> logging.Handler | None:
        """Open the log file, if configured. Raises ClientError if that fails."""
        if self.without_meaning:
            log.info("%s: ignored, there is one event loop", ", ".join(self.without_meaning))
        if self.log_path is None:
            return None
        path = self.log_path.with_name(self.log_path.name + ".log")
        size = self.log_file_mib * 1024 * 1024
        try:
            files.make_folders(path.parent)
            handler = RotatingFileHandler(path, maxBytes=size, backupCount=self.log_files - 1)
        except OSError as error:
            raise ClientError(f"{path} cannot be written: {error.strerror}") from None
        handler.setLevel(LEVELS[self.log_level])
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger = logging.getLogger(LOGGER)
        logger.addHandler(handler)
        if logger.getEffectiveLevel() > handler.level:
            logger.setLevel(handler.level)
        return handler


class _Section:
    """The values of the section, and the file."""

    def __init__(self, path: Path, values: dict[str, str]) -> None:
        self._path = path
        self.values = values

    def number(self, name: str, default: int, least: int, most: int = _MOST_INT) -> int:
        text = self.values.get(name, "").strip()
        if not text:
            return default
        try:
            return max(least, min(most, int(text)))
        except ValueError:
            raise ClientError(f"{self._path}: {name}={text} is not a number") from None
