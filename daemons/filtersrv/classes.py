"""Filter classes in force: one for each topic and group, each with a sandbox of its own.

A class is loaded in a new sandbox before it takes the place of the one before it, so that one that
does not compile changes nothing. A sandbox that has ended is started again by the next pull, after
a pause that grows while it ends again and again: until then pulls are told why it has ended.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from mq.client.machine import clock
from mq.daemons.filtersrv.config import FiltersrvSettings
from mq.daemons.filtersrv.sandbox.process import FilterFailed, NoSandbox, Sandbox, SandboxEnded

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
# A sandbox that has matched for so long without an end is well: its next pause is the first one.
CALM_SECONDS = 60.0
# Members of a group upload its class each 30 s; what nobody has for so long is forgotten.
FORGET_SECONDS = 600.0


class Key(NamedTuple):
    """Whose class it is; topic@group in logs and statistics, as in Java."""

    topic: str
    group: str

    def __str__(self) -> str:
        return f"{self.topic}@{self.group}"


class NoClass(Exception):
    """There is no class for a topic and group, or none that can be used; the text says why."""


class TooMany(Exception):
    """No class more is taken."""


def crc_of(source: bytes) -> int:
    """The checksum of a class as clients send it (UtilAll.crc32)."""
    return crc32(source) & 0x7FFFFFFF


@dataclass
class Counts:
    """What a group has been given: GROUP_GET_NUMS and GROUP_GET_SIZE, and what was looked at."""

    messages: int = 0
    bytes: int = 0
    seen: int = 0
    failures: int = 0


@dataclass(eq=False)
class FilterClass:
    """The class of a topic and group. `source` is None while only its name is known."""

    key: Key
    name: str
    source: bytes | None = None
    crc: int = 0
    why: str = ""  # there is no source
    sandbox: Sandbox | None = None
    counts: Counts = field(default_factory=Counts)
    used: float = 0.0  # by the monotonic clock
    again: float = 0.0  # not started again before that
    pause: float = 0.0
    began: float = 0.0
    reason: str = ""  # of the last end
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False)
class _UploadLock:
    """Who uploads a class of one key now."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Classes:
    """All classes of a filter server. ``refused`` says why it has no sandboxes; "" when it has."""

    def __init__(
        self, settings: FiltersrvSettings, now: Callable[[], float] = clock.monotonic
    ) -> None:
        self._settings = settings
        self._now = now
        self.table: dict[Key, FilterClass] = {}
        self.refused = ""
        self.ends = 0  # of sandboxes that nobody had asked for
        self._loading: dict[Key, _UploadLock] = {}
        # Processes that start at a time: for pulls, and for uploads, which may all hang.
        self._starting = asyncio.Semaphore(4)
        self._uploading = asyncio.Semaphore(4)
        # All that may have a process: one that was killed ends a moment later, and who would wait
        # for that may be cancelled.
        self._sandboxes: set[Sandbox] = set()

    async def look_for_sandbox(self) -> None:
        """Find out whether this machine allows sandboxes; one line in the log where it does not."""
        sandbox = Sandbox(self._settings.sandbox.limits, "nobody")
        try:
            await sandbox.start()
        except NoSandbox as error:
            self.refused = f"this machine allows no sandbox, so no class runs here: {error}"
            log.error("%s", self.refused)
        except (SandboxEnded, OSError) as error:  # no process, no memory: later there may be
            log.error("no sandbox could be started: %s", error)
        finally:
            await sandbox.close()

    async def register(self, key: Key, name: str, source: bytes | None, why: str = "") -> None:
        """Have a class of this name and source for a key; without a source the name alone.

        Raises FilterFailed, SandboxEnded, OSError for one that cannot be used, which leaves the one
        before it in force, NoClass without sandboxes, TooMany.
        """
        # One upload of a key after the other: of many members that come together, one loads it.
        turn = self._loading.setdefault(key, _UploadLock())
        turn.users += 1
        try:
            self._check_room(key)
            async with turn.lock:
                await self._register(key, name, source, why)
        finally:
            turn.users -= 1
            if not turn.users:
                del self._loading[key]

    def _check_room(self, key: Key) -> None:
        """Raises TooMany where there is no room for a class of this key. One of which there is no
        more than the name, which costs nothing to give, has to go for it."""
        most = self._settings.sandbox.filter_max_classes
        if key in self.table or len(self.table.keys() | self._loading.keys()) <= most:
            return
        names = [kept for kept in self.table.values() if kept.source is None]
        idle = [kept for kept in names if kept.key not in self._loading]
        if not idle:
            raise TooMany(f"there are {most} classes, and no more are taken (filterMaxClasses)")
        del self.table[min(idle, key=lambda kept: kept.used).key]

    async def _register(self, key: Key, name: str, source: bytes | None, why: str) -> None:
        known = self.table.get(key)
        if source is None:
            if known is None or known.source is None:  # another one stays in force
                self.table[key] = FilterClass(key, name, why=why)
            self.table[key].used = self._now()
            return
        if known is not None and (known.name, known.source) == (name, source):
            known.used = self._now()
            return
        if self.refused:
            raise NoClass(self.refused)
        fresh = FilterClass(key, name, source, crc_of(source), used=self._now())
        async with self._uploading:
            await self._start(fresh)
        self._replace(fresh)
        log.info("class %s of %s is in force: %d bytes, CRC %d", name, key, len(source), fresh.crc)

    async def match(self, key: Key, records: bytes | memoryview, count: int) -> bytes:
        """A bit for each record, as the class says. One batch of a class after the other.

        Raises NoClass, FilterFailed, SandboxEnded.
        """
        while True:
            kept = self.table.get(key)
            if kept is None:
                raise NoClass(f"no class of {key} is registered here")
            kept.used = self._now()
            async with kept.lock:
                if self.table.get(key) is kept:
                    return await self._match(kept, records, count)

    async def _match(self, kept: FilterClass, records: bytes | memoryview, count: int) -> bytes:
        sandbox = await self._running(kept)
        try:
            bits = await sandbox.match(records, count)
        except FilterFailed as error:
            kept.counts.failures += 1
            raise FilterFailed(f"class {kept.name}: {error}") from None
        except SandboxEnded as error:
            kept.counts.failures += 1
            self._has_ended(kept, str(error))
            raise
        finally:
            if self.table.get(kept.key) is not kept or sandbox.is_worn:
                sandbox.kill("it is replaced")
                kept.sandbox = None
        kept.counts.seen += count
        return bits

    def look(self) -> None:
        """To be called each second: ends sandboxes that compute while nobody asks them."""
        for kept in self.table.values():
            if kept.sandbox is not None:
                kept.sandbox.look()

    async def forget_unused(self) -> None:
        """Forget what nobody has uploaded or pulled by for a while."""
        oldest = self._now() - FORGET_SECONDS
        for kept in list(self.table.values()):
            # It may be used, or be another one, since the one before it was ended.
            if kept.used < oldest and self.table.get(kept.key) is kept:
                log.info("class %s of %s is forgotten: nobody uses it", kept.name, kept.key)
                del self.table[kept.key]
                if kept.sandbox is not None:
                    await kept.sandbox.close()

    async def close(self) -> None:
        """End all sandboxes."""
        self.table = {}
        await asyncio.gather(*(sandbox.close() for sandbox in self._sandboxes))

    def _replace(self, fresh: FilterClass) -> None:
        """Put a class in its place. A batch that is on its way is answered by the one before it,
        whose sandbox ends then."""
        former = self.table.get(fresh.key)
        self.table[fresh.key] = fresh
        if former is not None:
            fresh.counts = former.counts
            if former.sandbox is not None and not former.lock.locked():
                former.sandbox.kill("it is replaced")

    async def _running(self, kept: FilterClass) -> Sandbox:
        """The sandbox of a class, started if there is none. Raises NoClass, SandboxEnded."""
        if kept.source is None:
            raise NoClass(f"class {kept.name} of {kept.key} is not here: {kept.why}")
        if kept.sandbox is not None and kept.sandbox.has_ended:
            # While it had nothing to do, so that it need not be the class: at once, the first time.
            self._has_ended(kept, kept.sandbox.why_ended, at_once=True)
        if kept.sandbox is not None:
            return kept.sandbox
        if self.refused:
            raise NoClass(self.refused)
        if self._now() < kept.again:
            raise NoClass(f"{kept.reason}; it is started again in a moment")
        try:
            async with self._starting:
                return await self._start(kept)
        except (FilterFailed, SandboxEnded, NoClass, OSError) as error:
            kept.counts.failures += 1
            self._has_ended(kept, str(error))
            raise NoClass(str(error)) from None

    async def _start(self, kept: FilterClass) -> Sandbox:
        assert kept.source is not None
        sandbox = Sandbox(self._settings.sandbox.limits, str(kept.key))
        self._sandboxes = {one for one in self._sandboxes if not one.is_gone} | {sandbox}
        try:
            await sandbox.start()
            await sandbox.load(kept.key.group, kept.name, kept.source)
        except NoSandbox as error:
            await self._close(sandbox)
            raise NoClass(f"this machine allows no sandbox: {error}") from None
        except BaseException:
            sandbox.kill("its class cannot be loaded")
            await self._close(sandbox)
            raise
        kept.sandbox, kept.began = sandbox, self._now()
        return sandbox

    async def _close(self, sandbox: Sandbox) -> None:
        await sandbox.close()
        self._sandboxes.discard(sandbox)

    def _has_ended(self, kept: FilterClass, reason: str, *, at_once: bool = False) -> None:
        """Of itself, or because it was late or lied: it begins again after a pause; with `at_once`
        the first pause is none."""
        if kept.sandbox is not None:
            kept.sandbox.kill(reason)
        now = self._now()
        calm = not kept.pause or now - kept.began >= CALM_SECONDS
        kept.pause = FIRST_PAUSE if calm else min(2 * kept.pause, LONGEST_PAUSE)
        kept.again = now if at_once and calm else now + kept.pause
        kept.sandbox, kept.reason = None, reason
        self.ends += 1
        log.warning("class %s: %s", kept.name, reason, extra={"failure": f"sandbox {kept.key}"})
