"""Filter classes in force: one for each topic and group, each with its own sandbox.

A class is loaded in a new sandbox before it replaces the former one, so that a class that does not
compile changes nothing. The next pull restarts a sandbox that has ended, after a pause that grows
while it ends repeatedly; until then pulls are refused with the reason of its end.
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
# Seconds without an end after which a sandbox counts as healthy: its next pause is the first one.
CALM_SECONDS = 60.0
# Members of a group upload its class every 30 s; a class unused for this many seconds is removed.
UNUSED_SECONDS = 600.0


class Key(NamedTuple):
    """The topic and group of a class; topic@group in logs and statistics, as in Java."""

    topic: str
    group: str

    def __str__(self) -> str:
        return f"{self.topic}@{self.group}"


class NoClass(Exception):
    """A topic and group have no class, or no usable one; the text says why."""


class TooMany(Exception):
    """The limit of classes is reached."""


def crc_of(source: bytes) -> int:
    """The checksum of a class as clients send it (UtilAll.crc32)."""
    return crc32(source) & 0x7FFFFFFF


@dataclass
class Counts:
    """Counters of a group: GROUP_GET_NUMS and GROUP_GET_SIZE, checked messages, and failures."""

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
    why: str = ""  # the reason for a missing source
    sandbox: Sandbox | None = None
    counts: Counts = field(default_factory=Counts)
    used: float = 0.0  # by the monotonic clock
    again: float = 0.0  # it is not restarted before this time
    pause: float = 0.0
    began: float = 0.0
    reason: str = ""  # of the last end
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False)
class _UploadLock:
    """Serializes the uploads for one key."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Classes:
    """All classes of a filter server. ``refused`` is the reason for not having sandboxes, or ""."""

    def __init__(
        self, settings: FiltersrvSettings, now: Callable[[], float] = clock.monotonic
    ) -> None:
        self._settings = settings
        self._now = now
        self.table: dict[Key, FilterClass] = {}
        self.refused = ""
        self.ends = 0  # unexpected ends of sandboxes
        self._loading: dict[Key, _UploadLock] = {}
        # Limits of processes that start concurrently: for pulls, and for uploads, all of which may
        # hang.
        self._starting = asyncio.Semaphore(4)
        self._uploading = asyncio.Semaphore(4)
        # All sandboxes that may have a process: a killed one ends a moment later, and a caller that
        # would wait for that may be cancelled.
        self._sandboxes: set[Sandbox] = set()

    async def check_sandbox(self) -> None:
        """Check whether this machine allows sandboxes; logs one line if not."""
        sandbox = Sandbox(self._settings.sandbox.limits, "nobody")
        try:
            await sandbox.start()
        except NoSandbox as error:
            self.refused = f"this machine allows no sandboxes, so no class can run: {error}"
            log.error("%s", self.refused)
        except (SandboxEnded, OSError) as error:  # no process or no memory: possible later
            log.error("cannot start a sandbox: %s", error)
        finally:
            await sandbox.close()

    async def register(self, key: Key, name: str, source: bytes | None, why: str = "") -> None:
        """Register a class with this name and source for a key; without a source only the name.

        Raises FilterFailed, SandboxEnded or OSError for a class that is not usable, which leaves
        the former one in force, NoClass without sandboxes, and TooMany.
        """
        # Uploads for a key are serialized: of many concurrent members, one loads the class.
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
        """Raises TooMany if there is no room for a class of this key. An entry with only a name,
        which costs nothing to send, is dropped to make room.
        """
        most = self._settings.sandbox.filter_max_classes
        if key in self.table or len(self.table.keys() | self._loading.keys()) <= most:
            return
        names = [kept for kept in self.table.values() if kept.source is None]
        idle = [kept for kept in names if kept.key not in self._loading]
        if not idle:
            raise TooMany(f"the limit of {most} classes is reached (filterMaxClasses)")
        del self.table[min(idle, key=lambda kept: kept.used).key]

    async def _register(self, key: Key, name: str, source: bytes | None, why: str) -> None:
        known = self.table.get(key)
        if source is None:
            if known is None or known.source is None:  # otherwise the existing one stays in force
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
        """Return a bit for each record. Batches of a class are serialized.

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

    def check_idle(self) -> None:
        """End sandboxes that compute without a request. Called every second."""
        for kept in self.table.values():
            if kept.sandbox is not None:
                kept.sandbox.check_idle()

    async def remove_unused(self) -> None:
        """Remove classes that have not been uploaded or used by pulls for a while."""
        oldest = self._now() - UNUSED_SECONDS
        for kept in list(self.table.values()):
            # It may have been used or replaced while the previous sandbox was closed.
            if kept.used < oldest and self.table.get(kept.key) is kept:
                log.info("removing the unused class %s of %s", kept.name, kept.key)
                del self.table[kept.key]
                if kept.sandbox is not None:
                    await kept.sandbox.close()

    async def close(self) -> None:
        """End all sandboxes."""
        self.table = {}
        await asyncio.gather(*(sandbox.close() for sandbox in self._sandboxes))

    def _replace(self, fresh: FilterClass) -> None:
        """Put a class in force. A batch in progress is still matched by the former one, whose
        sandbox ends then.
        """
        former = self.table.get(fresh.key)
        self.table[fresh.key] = fresh
        if former is not None:
            fresh.counts = former.counts
            if former.sandbox is not None and not former.lock.locked():
                former.sandbox.kill("it is replaced")

    async def _running(self, kept: FilterClass) -> Sandbox:
        """The sandbox of a class, started if necessary. Raises NoClass, SandboxEnded."""
        if kept.source is None:
            raise NoClass(f"class {kept.name} of {kept.key} is missing: {kept.why}")
        if kept.sandbox is not None and kept.sandbox.has_ended:
            # It ended while idle, so perhaps not because of the class: the first restart is
            # immediate.
            self._has_ended(kept, kept.sandbox.why_ended, at_once=True)
        if kept.sandbox is not None:
            return kept.sandbox
        if self.refused:
            raise NoClass(self.refused)
        if self._now() < kept.again:
            raise NoClass(f"{kept.reason}; it will be restarted soon")
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
            raise NoClass(f"this machine allows no sandboxes: {error}") from None
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
        """Note that a sandbox has ended, by itself or because it was late or sent an invalid reply.
        It restarts after a pause; with `at_once` the first pause is zero.
        """
        if kept.sandbox is not None:
            kept.sandbox.kill(reason)
        now = self._now()
        calm = not kept.pause or now - kept.began >= CALM_SECONDS
        kept.pause = FIRST_PAUSE if calm else min(2 * kept.pause, LONGEST_PAUSE)
        kept.again = now if at_once and calm else now + kept.pause
        kept.sandbox, kept.reason = None, reason
        self.ends += 1
        log.warning("class %s: %s", kept.name, reason, extra={"failure": f"sandbox {kept.key}"})
