"""The offsets that groups have committed through a snode.

Commits are kept here and sent to the enode a little later, as the seed of the snode branch does:
the first time after at most 10 s, then every persistOffsetInterval; also at once when a group's
members change, because the next consumer of a queue may use another snode, and when the snode
stops. Offsets that an enode does not accept stay here for the next time. A snode that is killed
loses its unsent offsets: those messages are consumed again, none is lost. With forwardOffsets every
commit is sent to the enode before it is answered (the snode branch in its last state: sent
one-way).

Commits in pulls reach the enode at once; here they are only remembered, for queries of a group's
offset.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from mq.client.errors import (
    ConnectError,
    MQError,
    QueryNotFound,
    RequestTimeout,
    SubscriptionGroupNotExist,
    TopicNotExist,
)
from mq.client.machine import clock
from mq.daemons.snode.config import SnodeSettings
from mq.daemons.snode.enodes import LATER, Enodes
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

log = logging.getLogger(__name__)

FIRST_SECONDS = 10.0
# Limit in seconds that enodes which accept no offsets delay a stop.
LAST_SECONDS = 3.0
LAST_PAUSE = 0.2  # between two attempts during a stop
# Seconds for which an offset is sent again to an enode without its topic or group: a slave that has
# just become the master may still have to learn of them.
GIVE_UP_SECONDS = 60.0
# Limit in characters of each name in a key.
LONGEST_NAME = 255
# Offsets that are sent concurrently.
_AT_ONCE = 64


class Key(NamedTuple):
    """The key of offsets: a group, in a topic of an enode."""

    enode: str
    topic: str
    group: str

    def __str__(self) -> str:
        return "@".join(self)


class OffsetCache:
    """Offsets by `enode@topic@group` and queue."""

    def __init__(self, settings: SnodeSettings, enodes: Enodes) -> None:
        self._settings = settings
        self._enodes = enodes
        self._offsets: dict[Key, dict[int, int]] = {}
        self._unsent: dict[Key, set[int]] = {}
        self._sent_offsets: dict[Key, dict[int, int]] = {}  # the last values sent from here
        # Since when enodes, at these addresses, have lacked the topic or group.
        self._unknown: dict[Key, tuple[str, float]] = {}
        self._count = 0
        self._due: set[str] = set()  # groups whose offsets are sent now
        self._wake = asyncio.Event()
        self.sent = 0
        self.failed = 0
        enodes.on_link_ended.append(self._link_ended)

    def __len__(self) -> int:
        return self._count

    @property
    def unsent(self) -> int:
        """The number of offsets that no enode has yet."""
        return sum(map(len, self._unsent.values()))

    def commit(self, key: Key, queue_id: int, offset: int, remote: str) -> bool:
        """Keep an offset for its enode; False at the limit of offsets or for an invalid key: then
        the caller must send it.
        """
        if not self._keep(key, queue_id, offset, remote):
            return False
        self._unsent.setdefault(key, set()).add(queue_id)
        return True

    def remember(self, key: Key, queue_id: int, offset: int, remote: str) -> None:
        """Keep an offset that its enode gets with the same request."""
        if self._keep(key, queue_id, offset, remote):
            self._sent_offsets.setdefault(key, {})[queue_id] = offset

    def _keep(self, key: Key, queue_id: int, offset: int, remote: str) -> bool:
        offsets = self._offsets.get(key)
        known = None if offsets is None else offsets.get(queue_id)
        if known is None:
            if max(map(len, key)) > LONGEST_NAME:
                return False  # too long for any enode, whose reply reports that
            if self._count >= self._settings.snode.max_cached_offsets:
                return False
            self._count += 1
        elif offset < known:
            log.warning("[NOTIFYME]update consumer offset less than store. clientHost=%s, key=%s, "
                        "queueId=%d, requestOffset=%d, storeOffset=%d",
                        remote, key, queue_id, offset, known,
                        extra={"peer": remote.rpartition(":")[0]})  # fmt: skip
        if offsets is None:
            offsets = self._offsets[key] = {}
        offsets[queue_id] = offset
        return True

    def find(self, key: Key, queue_id: int) -> int | None:
        """The last committed offset, as far as it is known here."""
        offsets = self._offsets.get(key)
        return None if offsets is None else offsets.get(queue_id)

    def find_unsent(self, key: Key, queue_id: int) -> int | None:
        """An offset that no enode has yet. For all others the enode is asked, because it may have a
        later one from another snode to which a client has moved.
        """
        return self.find(key, queue_id) if queue_id in self._unsent.get(key, ()) else None

    def acked(self, enode: str, topic: str, group: str, queue_id: int) -> int | None:
        """The last committed offset, for the push service."""
        return self.find(Key(enode, topic, group), queue_id)

    def group_changed(self, group: str) -> None:
        """Send all offsets of a group to the enodes, because its queues are assigned anew."""
        self._due.add(group)
        self._wake.set()

    # sending to enodes --------------------------------------------------------------------------

    async def work(self) -> None:
        """Send offsets when they are due, until cancelled."""
        pause = min(FIRST_SECONDS, self._settings.snode.persist_offset_interval / 1000)
        loop = asyncio.get_running_loop()
        due = loop.time() + pause
        while True:
            try:
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            except TimeoutError:
                await self.send_all()
                due = loop.time() + self._settings.snode.persist_offset_interval / 1000
                continue
            self._wake.clear()
            groups, self._due = self._due, set()
            await self._send(key for key in list(self._unsent) if key.group in groups)
            self._forget(groups)

    async def send_all(self) -> None:
        """Send all unsent offsets. Those that are not accepted stay for the next time."""
        await self._send(list(self._unsent))

    async def close(self) -> None:
        """Send all unsent offsets for the last time, for at most a few seconds: busy enodes are
        retried.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                enodes = dict.fromkeys(key.enode for key in self._unsent)
                await asyncio.gather(*map(self._send_last, enodes))
        if self._unsent:
            log.error("%d offsets are lost: their enodes accept none", self.unsent)

    async def _send_last(self, enode: str) -> None:
        busy = True
        while busy:
            busy = await self._send_to(enode, [key for key in self._unsent if key.enode == enode])
            await asyncio.sleep(LAST_PAUSE if busy else 0)

    async def _send(self, keys: Iterable[Key]) -> None:
        """Send to all enodes concurrently, so that one that does not reply delays no other."""
        by_enode: dict[str, list[Key]] = {}
        for key in keys:
            by_enode.setdefault(key.enode, []).append(key)
        await asyncio.gather(*(self._send_to(*one) for one in by_enode.items()))

    async def _send_to(self, enode: str, keys: Sequence[Key]) -> bool:
        """Send offsets to an enode; returns whether it was busy. If it does not reply, the rest
        stays.
        """
        if enode not in self._enodes.masters:
            return False
        todo = iter([(key, queue_id) for key in keys for queue_id in self._unsent.get(key, ())])
        busy = silent = False

        async def send_in_turn() -> None:
            nonlocal busy, silent
            for one in todo:
                error = await self._send_one(*one)
                busy = busy or isinstance(error, LATER)
                silent = silent or isinstance(error, ConnectError | RequestTimeout)
                if silent:
                    return

        # Not one task for each: there may be maxCachedOffsets.
        await asyncio.gather(*(send_in_turn() for _ in range(_AT_ONCE)))
        return busy

    async def _send_one(self, key: Key, queue_id: int) -> Exception | None:
        """Send one offset; returns the error if it was not accepted."""
        if queue_id not in self._unsent.get(key, ()):
            return None  # it has been sent meanwhile: a stop sends all offsets
        address = self._enodes.masters.get(key.enode)
        if address is None:
            return None
        try:
            await self._catch_up(key, queue_id, address)
        except (MQError, RemoteProtocolError) as error:
            return self._failed(key, error)
        if queue_id not in self._unsent.get(key, ()):
            return None
        offset = self._offsets[key][queue_id]
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=key.group,
            topic=key.topic,
            queue_id=queue_id,
            commit_offset=offset,
            enode_name=key.enode,
        )
        request = Command(RequestCode.UPDATE_CONSUMER_OFFSET, header.encode())
        try:
            await self._enodes.call(address, request)
        except (TopicNotExist, SubscriptionGroupNotExist) as error:
            self._failed(key, error)
            if self._may_learn(key, address):
                return error
            log.warning("giving up an offset of %s: %s", key, error,
                        extra={"failure": f"offsets {key.enode}"})  # fmt: skip
        except MQError as error:
            return self._failed(key, error)
        else:
            self.sent += 1
            self._unknown.pop(key, None)
            self._sent_offsets.setdefault(key, {})[queue_id] = offset
        self._is_sent(key, queue_id, offset)
        return None

    def _may_learn(self, key: Key, address: str) -> bool:
        """Whether the enode at this address may still learn of the topic or group of a key. Only
        its recent replies count, not those of an earlier master, or before its restart.
        """
        now = clock.monotonic()
        found = self._unknown.get(key)
        if found is None or found[0] != address:
            found = self._unknown[key] = address, now
        return now - found[1] < GIVE_UP_SECONDS

    def _link_ended(self, enode: str) -> None:
        self._unknown = {key: one for key, one in self._unknown.items() if key.enode != enode}

    def _failed(self, key: Key, error: Exception) -> Exception:
        log.warning("cannot send offsets of %s: %s", key, error,
                    extra={"failure": f"offsets {key.enode}"})  # fmt: skip
        self.failed += 1
        return error

    async def _catch_up(self, key: Key, queue_id: int, address: str) -> None:
        """Adopt an enode's offset if it is higher than the one sent from here, which means that
        another snode has advanced it.

        Members of the group have then moved to that snode, and their earlier commits here are late.
        If nothing was sent from here, the offset may be lowered on purpose. Raises MQError and
        RemoteProtocolError if the enode does not return its offset.
        """
        told = self._sent_offsets.get(key, {}).get(queue_id)
        if told is None:
            return
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=key.group, topic=key.topic, queue_id=queue_id, enode_name=key.enode
        )
        request = Command(RequestCode.QUERY_CONSUMER_OFFSET, header.encode())
        try:
            answer = await self._enodes.call(address, request)
        except (QueryNotFound, TopicNotExist, SubscriptionGroupNotExist):
            return  # the enode has none
        known = QueryConsumerOffsetResponseHeader.decode(answer.fields).offset
        if self._sent_offsets.get(key, {}).get(queue_id) != told:
            return  # a pull has sent another one meanwhile
        offset = self._offsets.get(key, {}).get(queue_id)
        if offset is not None and known > offset and known != told:
            log.info(
                "%s, queue %d: offset %d is late; the enode has %d", key, queue_id, offset, known
            )
            self._offsets[key][queue_id] = self._sent_offsets[key][queue_id] = known
            self._is_sent(key, queue_id, known)

    def _is_sent(self, key: Key, queue_id: int, offset: int) -> None:
        unsent = self._unsent.get(key)
        if unsent is not None and self._offsets[key].get(queue_id) == offset:  # not a newer one
            unsent.discard(queue_id)
            if not unsent:
                del self._unsent[key]
                self._unknown.pop(key, None)

    def _forget(self, groups: set[str]) -> None:
        """Forget the offsets of groups, except unsent ones; enodes are asked from now on."""
        for key in [key for key in self._offsets if key.group in groups]:
            unsent = self._unsent.get(key, ())
            told = self._sent_offsets.pop(key, {})
            if late := {number: at for number, at in told.items() if number in unsent}:
                self._sent_offsets[key] = late  # needed to detect a late commit
            kept = {number: at for number, at in self._offsets[key].items() if number in unsent}
            self._count -= len(self._offsets[key]) - len(kept)
            if kept:
                self._offsets[key] = kept
            else:
                del self._offsets[key]
