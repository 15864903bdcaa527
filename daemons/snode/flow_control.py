"""Flow control: limits of the requests per second, and of their size in KiB, that a snode accepts.

The limits are in a YAML file, which the snode branch calls flow_control.yml:

  snode:
    countLimit:
      - {flowControlResourceName: 310, flowControlGrade: 1, flowControlResourceCount: 500}
      - {flowControlResourceName: overall, flowControlResourceCount: 10000}
    sizeLimit:
      - {flowControlResourceName: 310, flowControlResourceCount: 5000}

A limit is for the requests of one code, or for all of them (`overall`, which the snode branch has
in its file and never uses). Heartbeats are exempt, because a client whose heartbeats are refused
would be evicted. A request over a limit is refused with SYSTEM_BUSY; its remark starts as in the
snode branch and names the limit. Sizes are those of bodies in whole KiB, so less than one KiB is
free.

Sources: the snode branch's QPSFlowControlServiceImpl, RequestSizeFlowControlServiceImpl and
AbstractFlowControlService; Sentinel's LeapArray, of two halves of a second.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from mq.client.machine import clock, files
from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError
from mq.daemons.dispatch import Handler, Overloaded
from mq.daemons.snode.config import SnodeConfig
from mq.daemons.snode.interceptors import InterceptorGroup, intercepted, load_interceptors
from mq.protocol.codes import PULLS, RequestCode, SnodeCode
from mq.protocol.command import Command

log = logging.getLogger(__name__)

SEND_CODES = frozenset(
    (
        *(int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)),
        int(RequestCode.CONSUMER_SEND_MSG_BACK),
    )
)
PULL_CODES = frozenset(
    (
        *map(int, PULLS),
        int(SnodeCode.SNODE_PULL_MESSAGE),
    )
)

COUNT = "countLimit"
SIZE = "sizeLimit"
OVERALL = "overall"
# Seconds between checks of the file, as for ACL files.
WATCH_SECONDS = 0.5
# The file is written by hand: a larger one is a different kind of file.
MOST_BYTES = 1024 * 1024
# Sentinel's window is a second, with so many parts.
_PARTS = 2
_PER_SECOND = 1  # flowControlGrade: RuleConstant.FLOW_GRADE_QPS
_REMARKS = {
    COUNT: "[REJECT]exceed system flow control config QPS",
    SIZE: "[REJECT]exceed system flow control config request size",
}
_UNITS = {COUNT: "requests", SIZE: "KiB of bodies"}
# In the snode branch's file, where it is not used either.
_UNUSED = "topicLimit"


class InterceptorChain:
    """The groups of interceptors, and `flow`, which is the first of the server's.

    Raises ConfigError for a class that cannot be instantiated, and for an invalid file of limits.
    """

    def __init__(self, config: SnodeConfig) -> None:
        self.flow = FlowControl(Path(config.rocketmq_home or ".") / config.flow_control_file)
        own = load_interceptors(config.remoting_server_interceptors, "remotingServerInterceptors")
        send = load_interceptors(config.send_message_interceptors, "sendMessageInterceptors")
        consume = load_interceptors(
            config.consume_message_interceptors, "consumeMessageInterceptors"
        )
        self.server = InterceptorGroup("server", [self.flow, *own])
        self.send = InterceptorGroup("send", send)
        self.consume = InterceptorGroup("consume", consume)
        self._sees_sends = bool(own or send)

    @property
    def groups(self) -> tuple[InterceptorGroup, InterceptorGroup, InterceptorGroup]:
        return self.server, self.send, self.consume

    @property
    def sees_sends(self) -> bool:
        """Whether an interceptor or limit must see each send now."""
        limits = self.flow.limits
        return bool(self._sees_sends or limits.counts or limits.sizes)

    def wrap(self, code: int, handler: Handler) -> Handler:
        """Wrap a handler with the interceptors of its kind, and the server's around them."""
        if code in SEND_CODES:
            handler = intercepted(handler, self.send)
        elif code in PULL_CODES:
            handler = intercepted(handler, self.consume)
        return intercepted(handler, self.server)


class Limits(NamedTuple):
    """The limits in a file: per kind, the amount per second by request code or OVERALL."""

    counts: Mapping[int | str, float]
    sizes: Mapping[int | str, float]


NO_LIMITS = Limits({}, {})


class _Window:
    """The amount accepted in the last second, with a resolution of half a second."""

    __slots__ = ("_begins", "_former", "_now")

    def __init__(self) -> None:
        self._begins = 0
        self._now = self._former = 0

    def taken(self, time: float) -> int:
        part = int(time * _PARTS)
        if part != self._begins:
            self._former = self._now if part == self._begins + 1 else 0
            self._now = 0
            self._begins = part
        return self._now + self._former

    def take(self, amount: int) -> None:
        self._now += amount


class FlowControl:
    """The limits in force. An interceptor of the server (see `interceptors`)."""

    def __init__(self, path: Path | None, *, clock: Callable[[], float] = clock.monotonic) -> None:
        """Reads the file at `path`, which may be missing. Raises ConfigError if it is invalid."""
        self._path = path
        self._clock = clock
        self._windows: dict[tuple[str, int | str], _Window] = {}
        self._mark: object = self._file_state()
        try:
            self.limits = self._read()
        except FlowControlError as error:
            raise ConfigError(str(error)) from None

    def before_request(self, request: Command, channel: Channel) -> None:
        """Raises Overloaded for a request over a limit."""
        limits = self.limits
        if limits.counts or limits.sizes:
            self.check(request.code, len(request.body))

    def check(self, code: int, size: int) -> None:
        """Count a request with a body of `size` bytes. Raises Overloaded if it exceeds a limit.

        A refused request is not counted.
        """
        if code == RequestCode.HEART_BEAT:
            return
        now = self._clock()
        taken = []
        for kind, limits, amount in (
            (COUNT, self.limits.counts, 1),
            (SIZE, self.limits.sizes, size // 1024),
        ):
            if not amount or not limits:
                continue
            for name in (code, OVERALL):
                most = limits.get(name)
                if most is None:
                    continue
                window = self._windows.get((kind, name))
                if window is None:
                    window = self._windows[kind, name] = _Window()
                if window.taken(now) + amount > most:
                    raise Overloaded(f"{kind}@{name}", _REMARKS[kind])
                taken.append((window, amount))
        for window, amount in taken:
            window.take(amount)

    def reload(self) -> None:
        """Read the file again; if it is invalid, the limits do not change."""
        self._mark = self._file_state()
        try:
            limits = self._read()
        except FlowControlError as error:
            log.error("keeping the old flow control limits: %s", error)
            return
        self.limits = limits
        self._windows.clear()
        log.info("flow control reloaded: %s", describe(limits))

    async def watch(self) -> None:
        """Read the file again whenever it changes, appears or disappears, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self._file_state() != self._mark:
                self.reload()

    def _file_state(self) -> object:
        """A value that changes when the file is changed, added or removed."""
        if self._path is None:
            return None
        try:
            status = files.stat(self._path)
        except OSError as error:
            return error.errno
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> Limits:
        if self._path is None:
            return NO_LIMITS
        try:
            content = files.read_bytes(self._path, MOST_BYTES + 1)
        except FileNotFoundError:
            return NO_LIMITS
        except OSError as error:
            raise FlowControlError(f"cannot read {self._path}: {error.strerror}") from None
        if len(content) > MOST_BYTES:
            raise FlowControlError(f"{self._path}: over {MOST_BYTES} bytes")
        try:
            return parse_limits(content)
        except FlowControlError as error:
            raise FlowControlError(f"{self._path}: {error}") from None


class FlowControlError(Exception):
    """The file is invalid; the text says why, in one line."""


def describe(limits: Limits) -> str:
    """The limits as text, for the log."""
    parts = [
        f"{kind}@{name} {most:g} {_UNITS[kind]}/s"
        for kind, table in ((COUNT, limits.counts), (SIZE, limits.sizes))
        for name, most in table.items()
    ]
    return ", ".join(parts) or "no limits"


def parse_limits(content: bytes) -> Limits:
    """Parse the limits in a file; an empty one has none.

    Raises:
        FlowControlError: it is not YAML, or a limit is invalid; the text says which, and why.
    """
    try:
        data = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or type(error).__name__
        raise FlowControlError(f"not YAML{where}: {problem}") from None
    if data is None:
        return NO_LIMITS
    if not isinstance(data, dict) or not isinstance(data.get("snode"), dict):
        raise FlowControlError("expected a mapping `snode` with countLimit and sizeLimit")
    lists = data["snode"]
    for name in lists:
        if name not in (COUNT, SIZE, _UNUSED):
            raise FlowControlError(f"snode.{name}: expected countLimit or sizeLimit")
    if lists.get(_UNUSED):
        log.warning("flow control: %s has no effect", _UNUSED)
    return Limits(_table(COUNT, lists.get(COUNT)), _table(SIZE, lists.get(SIZE)))


def _table(kind: str, items: object) -> dict[int | str, float]:
    if items is None:
        return {}
    if not isinstance(items, list):
        raise FlowControlError(f"{kind}: expected a list")
    table: dict[int | str, float] = {}
    for number, item in enumerate(items, 1):
        where = f"{kind}, item {number}"
        if not isinstance(item, dict):
            raise FlowControlError(f"{where}: expected a mapping")
        name = _resource(where, item.get("flowControlResourceName"))
        if name in table:
            raise FlowControlError(f"{where}: {name} has a limit already")
        if item.get("flowControlGrade", _PER_SECOND) != _PER_SECOND:
            raise FlowControlError(f"{where}: flowControlGrade must be 1, per second")
        table[name] = _count(where, item.get("flowControlResourceCount"))
    return table


def _resource(where: str, value: Any) -> int | str:
    text = str(value).strip()
    if text == OVERALL:
        return OVERALL
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
        raise FlowControlError(
            f"{where}: flowControlResourceName is {value!r}, not a request code or `{OVERALL}`"
        )
    return int(text)


def _count(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise FlowControlError(
            f"{where}: flowControlResourceCount is {value!r}, not a number from 0 on"
        )
    return float(value)
