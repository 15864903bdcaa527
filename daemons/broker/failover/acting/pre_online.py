"""Pre-online: the steps of a starting broker of a replica set with acting masters
(BrokerPreOnlineService).

A returning master informs each living slave that it starts. A slave of this project stops acting
then, and answers when its delivery progress is final; one of Java continues until the master has
registered. Then the master requests the slave's progress of delay levels, the timer and groups, and
applies it where the slave is ahead: before the services start that continue from there. An error of
a slave must not keep the set without a master: after a while the master starts without its reply,
and delivers again what that slave has delivered.

Nothing is applied from a slave whose log is longer than the master's, because the master has lost
the end of its log, which had the records of the work that the slave's copies report as done. That
work is rather done again than not at all.

A slave waits, for a limited time, until the log of its master arrives.

Nothing is requested if no name server is configured, or none answers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from mq.client.errors import MQError, NoneThere, RequestNotSupported
from mq.client.machine import clock
from mq.client.transport.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delayed import timer_checkpoint
from mq.daemons.broker.delayed.delay_levels import advance_saved, decode_delay_offsets
from mq.daemons.broker.delayed.timer_checkpoint import TimerCheckpoint
from mq.daemons.broker.delayed.timer_inheritance import TimerCopy
from mq.daemons.broker.failover.acting.members import ask_for_members
from mq.daemons.broker.offsets.copy_version import is_worth_taking
from mq.daemons.broker.peer_sessions import PeerSessions
from mq.daemons.broker.replication import copied_answers
from mq.daemons.broker.stores import Stores
from mq.protocol import fastjson, names
from mq.protocol.bodies import KVTable
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import ProtocolError
from mq.protocol.headers.broker import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader

log = logging.getLogger(__name__)

# Seconds after which a master starts without the replies of silent slaves.
PATIENCE = 30.0
# Seconds to wait for name servers at most: without them no client finds the master anyway.
NAME_SERVER_PATIENCE = 5.0
RETRY_SECONDS = 0.5
# A slave whose reply is older than this after the wait for others is asked once more, because it
# stops acting for 15 s only.
FRESH_SECONDS = 5.0
# A slave that stops acting drains its messages in flight before it answers.
ASK_SECONDS = 12.0
# Seconds that a slave waits for the log of its master (HAConnectionStateNotificationService).
CONNECT_SECONDS = 10.0


class PreOnline:
    """The steps of one broker at its addresses; an async context manager."""

    def __init__(self, settings: BrokerSettings, address: str, ha_address: str) -> None:
        self._settings = settings
        self._address = address
        self._ha_address = ha_address
        self._sessions: list[tuple[str, Session]] = []
        self._parts = AsyncExitStack()

    async def __aenter__(self) -> "PreOnline":
        sessions = PeerSessions(self._settings)
        for address in self._settings.name_servers():
            session = sessions.session(address, connect_timeout=1.0)
            self._sessions.append((address, await self._parts.enter_async_context(session)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()

    async def members(self) -> dict[int, str] | None:
        """The other living brokers of the set by id; None if no name server answers."""
        broker = self._settings.broker
        found: dict[int, str] | None = None
        for address, session in self._sessions:
            try:
                answer = await ask_for_members(
                    session, address, broker.broker_cluster_name, broker.broker_name
                )
            except (MQError, ProtocolError) as error:
                log.warning("%s does not report the living brokers: %s", address, error)
            else:
                found = answer | (found or {})
        if found is None:
            return None
        return {n: a for n, a in found.items() if n != broker.broker_id and a != self._address}

    # a master -------------------------------------------------------------------------------------

    async def take_over(self, stores: Stores) -> None:
        """Continue where slaves are that were acting master. Raises OSError."""
        if not self._sessions:
            return
        began, asked = clock.monotonic(), dict[str, float]()
        while True:
            members = await self.members()
            waited = clock.monotonic() - began
            if members is None:
                if waited > NAME_SERVER_PATIENCE:
                    log.warning("no name server reports whether there are acting masters")
                    return
            else:
                left = [members[number] for number in sorted(members)]
                for address in [one for one in left if one not in asked]:
                    if await self._take_from(address, stores):
                        asked[address] = clock.monotonic()
                silent = [one for one in left if one not in asked]
                if silent and waited > PATIENCE:
                    log.error("%s may have been acting master, but does not report its progress: "
                              "its deliveries are repeated", silent)  # fmt: skip
                if not silent or waited > PATIENCE:
                    for address, at in list(asked.items()):
                        # it may be acting master again by now
                        if clock.monotonic() - at > FRESH_SECONDS:
                            await self._take_from(address, stores)
                    return
            await asyncio.sleep(RETRY_SECONDS)

    async def _take_from(self, address: str, stores: Stores) -> bool:
        """Apply the progress of a slave that is ahead; False if it does not answer. Raises
        OSError."""
        session = self._sessions[0][1]

        async def ask(code: RequestCode) -> bytes:
            return bytes((await session.call(address, Command(code), ASK_SECONDS)).body)

        notify = ExchangeHAInfoRequestHeader(
            master_ha_address=self._ha_address,
            master_flush_offset=stores.messages.log.written,
            master_address=self._address,
        )
        command = Command(RequestCode.EXCHANGE_BROKER_HA_INFO, notify.encode())
        try:
            await session.call(address, command, ASK_SECONDS)
            delays = await ask(RequestCode.GET_ALL_DELAY_OFFSET)
            offsets = await ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
            timer = await _timer_of(ask)
            is_ahead = _may_be_ahead(offsets)
            if is_ahead and await self._has_lost_more(address, ask, stores):
                return True
            if is_ahead:
                await self._take(stores, delays, offsets, timer)
        except (MQError, ProtocolError, ValueError) as error:
            log.warning("%s does not report its progress: %s", address, error)
            return False
        log.info("%s was%s acting master", address, "" if is_ahead else " not")
        return True

    async def _has_lost_more(
        self, address: str, ask: Callable[[RequestCode], Awaitable[bytes]], stores: Stores
    ) -> bool:
        """Whether a slave's log is longer than the one here. Raises MQError, ProtocolError and
        ValueError.
        """
        runtime = KVTable.decode(await ask(RequestCode.GET_BROKER_RUNTIME_INFO)).table
        end, own = int(runtime.get("commitLogMaxOffset", "")), stores.messages.log.written
        if end <= own:
            return False
        log.error("%s was acting master, but its log ends at %d and this one at %d: its "
                  "deliveries are repeated", address, end, own)  # fmt: skip
        return True

    async def _take(
        self, stores: Stores, delays: bytes, offsets: bytes, timer: bytes | None
    ) -> None:
        """Apply the progress of a slave. Raises OSError and ValueError."""
        store = stores.messages
        table = await asyncio.to_thread(copied_answers.read_changed_offsets, offsets)
        stores.offsets.advance(table, store.max_offset)
        await stores.offsets.save()
        config = store.root / "config"
        await asyncio.to_thread(
            advance_saved, config / "delayOffset.json", decode_delay_offsets(delays)
        )
        own = TimerCheckpoint(config / timer_checkpoint.FILE_NAME)
        values = None if timer is None else timer_checkpoint.read_values(timer)
        end = store.end_offset(names.TIMER_TOPIC, 0)
        if timer is not None and values is not None:
            read_time, reached = values[0], min(values[2:4])
            if read_time > own.read_time and own.queue_offset <= reached <= end:
                await TimerCopy(store.root).take(timer)

    # a slave --------------------------------------------------------------------------------------

    async def find_master(self, notify: Callable[[str, str], None]) -> bool:
        """Ask a living master for its replication address; returns whether it answers. ``notify``
        gets the addresses.
        """
        address = (await self.members() or {}).get(names.MASTER_ID)
        if address is None:
            return False
        session = self._sessions[0][1]
        command = Command(RequestCode.EXCHANGE_BROKER_HA_INFO)
        try:
            reply = await session.call(address, command, ASK_SECONDS)
            header = ExchangeHAInfoResponseHeader.decode(reply.fields)
        except (MQError, ProtocolError) as error:
            log.warning("%s does not report its replication address: %s", address, error)
            return False
        if not header.master_ha_address:
            return False
        notify(address, header.master_ha_address)
        return True


async def _timer_of(ask: Callable[[RequestCode], Awaitable[bytes]]) -> bytes | None:
    """Request the timer's checkpoint. A broker that had no message for its timer has none, and
    refuses.
    """
    try:
        return await ask(RequestCode.GET_TIMER_CHECK_POINT)
    except (RequestNotSupported, NoneThere):
        return None


def _may_be_ahead(offsets: bytes) -> bool:
    """Whether a slave's offsets show that it was acting master. Raises ValueError."""
    plain = fastjson.loads(offsets)
    return is_worth_taking(plain.get("dataVersion") if isinstance(plain, dict) else None)
