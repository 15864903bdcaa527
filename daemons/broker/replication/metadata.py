"""The data that a slave copies from its master in addition to the log (SlaveSynchronize).

    topics, groups                all of them, when their data version differs
    offsets of groups             each time; the master's replace those here
    delay levels, timer           how far the master has delivered: this broker continues there
                                  when it is started as a master
    modes of groups that pop      5.x

A round is due every ten seconds, or every two if it takes little time. Topics and groups are also
copied whenever the log brings a record of a topic, or of a queue, that is not configured here: the
record is stored, and acknowledged, after that (`copy_ahead`).

Each kind is requested separately; an error of one is logged and does not affect the others. Each is
saved to its file before it is used.

Delivery progress and offsets of groups are applied only when the log here has reached the end that
the master's log had at that report: then this log has all delivered messages, and those that groups
have consumed and sent back, or popped and may get again. If they were applied earlier (as Java
does), a slave that becomes master would skip messages that the dead master delivered and did not
replicate. For the same reason a report of one master is not applied to the log of another, nor
after the end of a connection: the master may have restarted without the end of its log.

Nothing is requested from a broker that does not send the log, or that has less of the log than this
one: the master's address may belong to another broker by now, for example with an empty disk, whose
topics and groups would replace those here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from mq.client.errors import (
    BadAnswer,
    BrokerError,
    ConnectError,
    MQError,
    NoneThere,
    RemoteSystemError,
    RequestNotSupported,
    RequestTimeout,
)
from mq.client.machine import clock
from mq.client.transport.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delayed.delay_levels import DelayedMessages, decode_delay_offsets
from mq.daemons.broker.delayed.timer_inheritance import TimerCopy
from mq.daemons.broker.groups.request_modes import RequestModes
from mq.daemons.broker.peer_sessions import PeerSessions
from mq.daemons.broker.replication import copied_answers
from mq.daemons.broker.replication.master_addresses import MasterAddresses
from mq.daemons.broker.store import UnknownTopic
from mq.daemons.broker.stores import Stores
from mq.protocol.bodies import DataVersion, KVTable
from mq.protocol.bodies.pop import MessageRequestModeSerializeWrapper
from mq.protocol.bodies.schema import Body
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import ProtocolError

log = logging.getLogger(__name__)

# The pause after a round grows with its duration, so that large tables are copied rarely.
MIN_PERIOD_SECONDS = 2.0
PERIOD_SECONDS = 10.0
_PAUSE_PER_SECOND = 20.0
CHECK_SECONDS = 0.5  # between two checks for a master, and for the progress of the log
TIMEOUT = 3.0
# A Java broker refuses this request before its first sample, a second after its start
# (StoreStatsService.getPutTps).
SAMPLED_SECONDS = 3.0

_OFFSETS = "offsets of groups"
_DELIVERED = "delivery progress of the master"

M = TypeVar("M", bound=Body)

# Sends a request to the master; returns the body of the reply.
Ask = Callable[[RequestCode], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class DeferredCopy:
    """A report that is applied when the log has reached the end that the master's log had then."""

    log_end: int
    endings: int  # number of connections to the master that had ended by then
    take: Callable[[], Awaitable[None]]  # raises OSError and ValueError


class CopiedTable(Protocol[M]):
    """A table of this broker that is copied from the master."""

    data_version: DataVersion

    async def take_copy(self, members: dict[str, M], version: DataVersion, /) -> None:
        """Replace the table by the master's. Raises OSError."""


class SlaveSynchronize:
    """Keeps the copies of this broker up to date: `run`, until cancelled."""

    def __init__(
        self,
        settings: BrokerSettings,
        masters: MasterAddresses,
        stores: Stores,
        delayed: DelayedMessages,
        modes: RequestModes,
        endings: Callable[[], int] = lambda: 0,
        follows: Callable[[], bool] = lambda: True,
        on_silence: Callable[[], None] = lambda: None,
        knows_better: Callable[[], bool] = lambda: False,
    ) -> None:
        """``endings`` counts the ended connections that brought the log. ``follows`` returns
        whether there is one now, to a master whose log was compared with the one here.
        ``on_silence`` is called when the master cannot be reached. Nothing is copied while
        ``knows_better`` is true: this broker has continued the master's deliveries.

        Raises ConfigError for an unusable key file or unusable certificates.
        """
        self.master = ""  # the address of the last known master
        self._taking = 0
        self._masters = masters
        self._stores = stores
        self._delayed = delayed
        self._modes = modes
        self._endings = endings
        self._follows = follows
        self._on_silence = on_silence
        self._knows_better = knows_better
        self._timer = TimerCopy(stores.messages.root)
        self._sessions = PeerSessions(settings)
        self._later: dict[str, DeferredCopy] = {}  # by kind
        # kinds that could not be copied the last time, with the kind of error
        self._failing: dict[str, str] = {}
        self._last: float | None = None  # monotonic time of the last round without errors
        # A table is requested and stored under this lock, so an older answer never replaces a newer
        # one.
        self._tables = asyncio.Lock()
        self._copies: dict[str, Callable[[Ask], Awaitable[None]]] = {
            "topics": self._copy_topics,
            "consumer offsets": self._copy_offsets,
            "delivered messages": self._copy_progress,
            "groups": self._copy_groups,
            "modes of groups": self._copy_modes,
        }

    async def run(self) -> None:
        """Copy repeatedly while there is a master, and at once when it changes."""
        loop = asyncio.get_running_loop()
        due = 0.0
        while True:
            address = self._masters.address
            if address and address != self.master:
                self._later.clear()  # the log will come from another master
                self.master, due = address, 0.0
            if self._knows_better():
                self._later.clear()
                self._timer.forget()
            elif address and loop.time() >= due and self._follows():
                began = loop.time()
                await self.round(address)
                pause = max(MIN_PERIOD_SECONDS, _PAUSE_PER_SECOND * (loop.time() - began))
                due = loop.time() + min(pause, PERIOD_SECONDS)
            await asyncio.sleep(CHECK_SECONDS)
            await self.take_delivered()

    async def round(self, address: str) -> None:
        """Copy everything once from the master at an address; errors are logged."""
        async with self._session(address) as session:
            ask = _asking(session, address)
            failures = len(self._failing)
            if not await self._is_master(ask):
                return
            for what, copy in self._copies.items():
                try:
                    await copy(ask)
                except (ConnectError, RequestTimeout) as error:
                    self._failed("data of the master", error)
                    self._on_silence()
                    self._later.clear()  # it may restart without the end of its log
                    return  # it does not answer anything else, either
                except (MQError, ProtocolError, OSError, ValueError) as error:
                    self._failed(what, error)
                else:
                    self._succeeded(what)
            self._succeeded("data of the master")
            if not self._failing:
                self._last = clock.monotonic()
                if failures:
                    log.info("all data of the master could be copied again")

    async def copy_ahead(self, address: str, unknown: UnknownTopic) -> int:
        """Copy topics and groups from the master at an address before a record is stored.

        Returns the physical offset before which the copy covers all records. A master that refuses,
        or takes too long to send its tables, is not asked again for this topic, which gets default
        settings here: a slow link must not stop replication. Raises MQError if the master does not
        answer, or is another broker; OSError if the tables cannot be saved.
        """
        if self._knows_better():
            return self._derive(unknown)
        async with self._session(address) as session:
            ask = _asking(session, address)
            log_end = 0
            try:
                log_end = await self._log_end(ask)
                if log_end <= unknown.physical:
                    raise BadAnswer(address, f"its log ends at {log_end}, before the sent records")
                await self._copy_topics(ask)
                await self._copy_groups(ask)
            except (BrokerError, ProtocolError, RequestTimeout) as error:
                if isinstance(error, RequestTimeout) and not log_end:
                    raise
                self._failed("topics and groups", error)
                return self._derive(unknown)
            self._succeeded("topics and groups")
            return log_end

    def _derive(self, unknown: UnknownTopic) -> int:
        """Serve a queue with default settings until a copy of its topic replaces them."""
        self._stores.topics.derive(unknown.topic, unknown.queue_id)
        return unknown.physical + 1

    async def _is_master(self, ask: Ask) -> bool:
        """Whether the peer's log is at least as long as the one here."""
        own = self._stores.messages.max_physical_offset
        try:
            end = await self._log_end(ask) if own else own
        except (MQError, ProtocolError) as error:
            self._failed("data of the master", error)
            if isinstance(error, ConnectError | RequestTimeout):
                self._on_silence()
                self._later.clear()
            return False
        if end < own:
            shorter = BadAnswer(self._masters.address, f"its log ends at {end}, this one at {own}")
            self._failed("data of the master", shorter)
            return False
        return True

    @property
    def is_taking(self) -> bool:
        """Whether a report of the master is being applied: no other master's deliveries may be
        continued before that has ended.
        """
        return self._taking > 0

    def age(self) -> float:
        """Seconds since everything was copied; -1 if it never was."""
        return -1.0 if self._last is None else clock.monotonic() - self._last

    def reload_key(self) -> None:
        """Read namesrvAclFile again; if it is unusable, the key stays as it was."""
        self._sessions.reload_key("the master")

    def _session(self, address: str) -> Session:
        limit = self._sessions.connect_timeout(TIMEOUT)
        return self._sessions.session(address, connect_timeout=limit, dead_after=TIMEOUT)

    def _failed(self, what: str, error: Exception) -> None:
        """Log one line for each kind of data and error while it fails."""
        kind = type(error).__name__
        if self._failing.get(what) != kind:
            self._failing[what] = kind
            log.warning("cannot copy %s: %s", what, error)

    def _succeeded(self, what: str) -> None:
        self._failing.pop(what, None)

    # copies ---------------------------------------------------------------------------------

    async def _copy_topics(self, ask: Ask) -> None:
        async with self._tables:
            await _copy_table(
                ask,
                RequestCode.GET_ALL_TOPIC_CONFIG,
                copied_answers.read_topics,
                self._stores.topics,
            )

    async def _copy_groups(self, ask: Ask) -> None:
        async with self._tables:
            code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            await _copy_table(ask, code, copied_answers.read_groups, self._stores.groups)

    async def _copy_offsets(self, ask: Ask) -> None:
        """Copy offsets of groups, unless the last report still waits."""
        if _OFFSETS in self._later:
            return
        offsets = self._stores.offsets
        body = await ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        table = await asyncio.to_thread(copied_answers.read_offsets, body)
        end = await self._log_end(ask)
        await self._take_later(_OFFSETS, end, lambda: offsets.take_copy(table))

    async def _copy_modes(self, ask: Ask) -> None:
        try:
            body = await ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        except RequestNotSupported:
            return  # a master of 4.9
        if body:
            await self._modes.take_copy(MessageRequestModeSerializeWrapper.decode(body))

    # deferred copies ------------------------------------------------------------------------

    async def _copy_progress(self, ask: Ask) -> None:
        """Copy the delivery progress of the master, unless its last report still waits."""
        if _DELIVERED in self._later:
            return
        offsets = decode_delay_offsets(await ask(RequestCode.GET_ALL_DELAY_OFFSET))
        timer = await self._ask_for_timer(ask)
        end = await self._log_end(ask)

        async def take() -> None:
            if timer is not None:
                await self._timer.take(timer)
            await self._delayed.take_copy(offsets)  # last: its presence shows that both were copied

        await self._take_later(_DELIVERED, end, take)

    async def _ask_for_timer(self, ask: Ask) -> bytes | None:
        try:
            return await ask(RequestCode.GET_TIMER_CHECK_POINT)
        except (RequestNotSupported, NoneThere):
            return None  # a master of 4.9, or one without timed messages

    async def _log_end(self, ask: Ask) -> int:
        """The end of the master's log. It is requested last, so it was not longer when the other
        data was reported. A master that has just started is asked again; its reply until then is
        an error, never an empty log.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SAMPLED_SECONDS
        while True:
            try:
                body = await ask(RequestCode.GET_BROKER_RUNTIME_INFO)
                break
            except RemoteSystemError:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(CHECK_SECONDS)
        end = KVTable.decode(body).table.get("commitLogMaxOffset", "")
        if not (end.isascii() and end.isdecimal()):
            raise BadAnswer(self._masters.address, f"commitLogMaxOffset={end[:30]!r}")
        return int(end)

    async def _take_later(
        self, what: str, log_end: int, take: Callable[[], Awaitable[None]]
    ) -> None:
        self._later[what] = DeferredCopy(log_end, self._endings(), take)
        await self.take_delivered()

    async def take_delivered(self) -> None:
        """Apply the reports whose end the log here has reached."""
        if self._knows_better():
            return
        for what, later in list(self._later.items()):
            if later.endings == self._endings():
                if self._stores.messages.max_physical_offset < later.log_end:
                    continue
                self._taking += 1
                try:
                    await later.take()
                except (OSError, ValueError) as error:
                    self._failed(what, error)
                else:
                    self._succeeded(what)
                finally:
                    self._taking -= 1
            self._later.pop(what, None)


def _asking(session: Session, address: str) -> Ask:
    async def ask(code: RequestCode) -> bytes:
        reply = await session.call(address, Command(code), TIMEOUT)
        return bytes(reply.body)

    return ask


async def _copy_table(
    ask: Ask,
    code: RequestCode,
    read: Callable[[bytes], tuple[dict[str, M], DataVersion]],
    table: CopiedTable[M],
) -> None:
    """Take over the table that a request gets, unless it is the one that is here."""
    members, version = await asyncio.to_thread(read, await ask(code))
    if version != table.data_version:
        await table.take_copy(members, version)
