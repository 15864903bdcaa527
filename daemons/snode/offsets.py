"""The offsets that groups have committed through a snode.

What a consumer commits is kept here and goes to the enode a little later, as the seed of the snode
branch does it: after 10 s at most the first time, then every persistOffsetInterval; besides at once
when a group's members change, for the next who reads a queue may ask another snode, and when the
snode stops. What an enode does not take stays here for the next time. A snode that is killed loses
what it has not sent: those messages are consumed again, none is lost. With forwardOffsets every
commit is an enode's before it is answered (the snode branch at its end: sent there one-way).

Commits that come with pulls are the enode's at once; here they are remembered only, for whoever
asks how far a group is.
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
# Of a stop: enodes that take no offsets hold it up no longer.
LAST_SECONDS = 3.0
LAST_PAUSE = 0.2  # between two times that they are sent then
# An enode without the topic or the group of an offset is sent it again for so long: a slave that
# has just become the master may have to hear of them.
GIVE_UP_SECONDS = 60.0
# Characters of a name of a key.
LONGEST_NAME = 255
# Offsets that are sent side by side.
_AT_ONCE = 64


class Key(NamedTuple):
    """Whose offsets: of a group, in a topic of an enode."""

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
        self._told: dict[Key, dict[int, int]] = {}  # what enodes were told from here last
        # Since when enodes, which are there at these addresses, have no such topic, or group.
        self._unknown: dict[Key, tuple[str, float]] = {}
        self._count = 0
        self._due: set[str] = set()  # groups whose offsets go now
        self._wake = asyncio.Event()
        self.sent = 0
        self.failed = 0
        enodes.on_link_ended.append(self._link_ended)

    def __len__(self) -> int:
        return self._count

    @property
    def unsent(self) -> int:
        """How many no enode has yet."""
        return sum(map(len, self._unsent.values()))

    def commit(self, key: Key, queue_id: int, offset: int, remote: str) -> bool:
        """Keep an offset that is to go to its enode; False where there are too many, or the key is
        no key: then it is for the caller to send."""
        if not self._keep(key, queue_id, offset, remote):
            return False
        self._unsent.setdefault(key, set()).add(queue_id)
        return True

    def remember(self, key: Key, queue_id: int, offset: int, remote: str) -> None:
        """Keep an offset that its enode gets with the request that it came in."""
        if self._keep(key, queue_id, offset, remote):
            self._told.setdefault(key, {})[queue_id] = offset

    def _keep(self, key: Key, queue_id: int, offset: int, remote: str) -> bool:
        offsets = self._offsets.get(key)
        known = None if offsets is None else offsets.get(queue_id)
        if known is None:
            if max(map(len, key)) > LONGEST_NAME:
                return False  # no enode has it: it says so
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
        """What was committed last, as far as it is known here."""
        offsets = self._offsets.get(key)
        return None if offsets is None else offsets.get(queue_id)

    def find_unsent(self, key: Key, queue_id: int) -> int | None:
        """What no enode has yet. Of all else the enode knows best: another snode, to which a client
        has turned, may have told it more since."""
        return self.find(key, queue_id) if queue_id in self._unsent.get(key, ()) else None

    def acked(self, enode: str, topic: str, group: str, queue_id: int) -> int | None:
        """The same for who pushes."""
        return self.find(Key(enode, topic, group), queue_id)

    def group_changed(self, group: str) -> None:
        """Who reads which queue of a group is another matter now: let all of it be the enodes'."""
        self._due.add(group)
        self._wake.set()

    # to the enodes --------------------------------------------------------------------------

    async def work(self) -> None:
        """Send them when they are due, until cancelled."""
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
        """Send all that no enode has. What is not taken stays for the next time."""
        await self._send(list(self._unsent))

    async def close(self) -> None:
        """The same for the last time, for a few seconds at most: enodes that are busy are asked
        again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                enodes = dict.fromkeys(key.enode for key in self._unsent)
                await asyncio.gather(*map(self._send_last, enodes))
        if self._unsent:
            log.error("%d offsets are lost: their enodes take none", self.unsent)

    async def _send_last(self, enode: str) -> None:
        busy = True
        while busy:
            busy = await self._send_to(enode, [key for key in self._unsent if key.enode == enode])
            await asyncio.sleep(LAST_PAUSE if busy else 0)

    async def _send(self, keys: Iterable[Key]) -> None:
        """To all enodes side by side: one that does not answer holds up no other."""
        by_enode: dict[str, list[Key]] = {}
        for key in keys:
            by_enode.setdefault(key.enode, []).append(key)
        await asyncio.gather(*(self._send_to(*one) for one in by_enode.items()))

    async def _send_to(self, enode: str, keys: Sequence[Key]) -> bool:
        """Returns whether an enode was busy. Where it does not answer, what is left stays."""
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

        # Not a task for each: there may be maxCachedOffsets.
        await asyncio.gather(*(send_in_turn() for _ in range(_AT_ONCE)))
        return busy

    async def _send_one(self, key: Key, queue_id: int) -> Exception | None:
        """Returns why an offset was not taken."""
        if queue_id not in self._unsent.get(key, ()):
            return None  # it has gone meanwhile: a stop sends all, whatever is under way
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
            if self._may_hear_of_it(key, address):
                return error
            log.warning("an offset of %s is never taken: %s", key, error,
                        extra={"failure": f"offsets {key.enode}"})  # fmt: skip
        except MQError as error:
            return self._failed(key, error)
        else:
            self.sent += 1
            self._unknown.pop(key, None)
            self._told.setdefault(key, {})[queue_id] = offset
        self._is_sent(key, queue_id, offset)
        return None

    def _may_hear_of_it(self, key: Key, address: str) -> bool:
        """Whether the enode at an address has not said for long that it has no topic or group of a
        key: what another said that was its master before, or the same before it was started anew,
        does not count."""
        now = clock.monotonic()
        found = self._unknown.get(key)
        if found is None or found[0] != address:
            found = self._unknown[key] = address, now
        return now - found[1] < GIVE_UP_SECONDS

    def _link_ended(self, enode: str) -> None:
        self._unknown = {key: one for key, one in self._unknown.items() if key.enode != enode}

    def _failed(self, key: Key, error: Exception) -> Exception:
        log.warning("offsets of %s cannot be sent now: %s", key, error,
                    extra={"failure": f"offsets {key.enode}"})  # fmt: skip
        self.failed += 1
        return error

    async def _catch_up(self, key: Key, queue_id: int, address: str) -> None:
        """Take over what an enode has been told elsewhere since it was told something here, if that
        is more: members of the group have turned to another snode, and what they committed here
        before that comes late. What we have not told it may be a step back on purpose. Raises
        MQError and RemoteProtocolError where it does not say what it has."""
        told = self._told.get(key, {}).get(queue_id)
        if told is None:
            return
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=key.group, topic=key.topic, queue_id=queue_id, enode_name=key.enode
        )
        request = Command(RequestCode.QUERY_CONSUMER_OFFSET, header.encode())
        try:
            answer = await self._enodes.call(address, request)
        except (QueryNotFound, TopicNotExist, SubscriptionGroupNotExist):
            return  # it has none
        known = QueryConsumerOffsetResponseHeader.decode(answer.fields).offset
        if self._told.get(key, {}).get(queue_id) != told:
            return  # a pull has told it another one meanwhile
        offset = self._offsets.get(key, {}).get(queue_id)
        if offset is not None and known > offset and known != told:
            log.info(
                "%s, queue %d: offset %d comes too late, it is %d", key, queue_id, offset, known
            )
            self._offsets[key][queue_id] = self._told[key][queue_id] = known
            self._is_sent(key, queue_id, known)

    def _is_sent(self, key: Key, queue_id: int, offset: int) -> None:
        unsent = self._unsent.get(key)
        if unsent is not None and self._offsets[key].get(queue_id) == offset:  # no newer one
            unsent.discard(queue_id)
            if not unsent:
                del self._unsent[key]
                self._unknown.pop(key, None)

    def _forget(self, groups: set[str]) -> None:
        """Ask the enodes from now on what groups have committed, but for what they have not got."""
        for key in [key for key in self._offsets if key.group in groups]:
            unsent = self._unsent.get(key, ())
            told = self._told.pop(key, {})
            if late := {number: at for number, at in told.items() if number in unsent}:
                self._told[key] = late  # who comes late is still to be held against it
            kept = {number: at for number, at in self._offsets[key].items() if number in unsent}
            self._count -= len(self._offsets[key]) - len(kept)
            if kept:
                self._offsets[key] = kept
            else:
                del self._offsets[key]
