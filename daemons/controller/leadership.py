"""The leadership of a group of controllers: held by the one that put its name under an etcd lease.

One controller creates the key, which is deleted when its lease expires. The leader's writes are
compared with the revision that created the key (`fence`), in the same transaction: a controller
that has lost the key, and does not know it yet, changes nothing. For reads it checks its own clock:
`leads` ends before the lease can expire, because the lease started later than it was requested.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import orjson

from mq.client.machine import clock
from mq.daemons.controller.etcd import Etcd, EtcdError, NoLease

log = logging.getLogger(__name__)

# Seconds between checks of a follower whether there is a leader.
_CHECK_SECONDS = 0.5
# Seconds of the lease that are not used, because clocks differ.
_MARGIN = 0.1


class Leadership:
    """Leads, or follows the leader.

    ``on_lead`` is awaited before `leads` becomes true, and may raise EtcdError, so that another
    controller may try; ``on_leading`` is called when `leads` is true.
    """

    def __init__(
        self,
        etcd: Etcd,
        prefix: str,
        *,
        address: str,
        seconds: int,
        on_lead: Callable[[], Awaitable[None]],
        on_leading: Callable[[], None] = lambda: None,
        kind: str = "controller",
        details: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`prefix` is that of this group's keys, and ends in "/"; `kind` names the members in
        texts; `details` returns further data about the leader for the others.
        """
        self._etcd = etcd
        self._key = f"{prefix}leader"
        self._members = f"{prefix}{kind}s/"
        self._kind = kind
        self._details = details
        self._seconds = seconds
        self._on_lead = on_lead
        self._on_leading = on_leading
        self._lease = 0
        self._created = 0  # the revision that created the key, if this controller holds it
        self._until = 0.0
        self._ready = False
        self._stands_back = False  # it could not take over, and lets others try first
        self.leader = ""  # address of the leader, as far as it is known
        self.leader_details: Mapping[str, str] = {}
        self.controllers: tuple[str, ...] = (address,)  # addresses of all live controllers
        self.elections = 0  # won by this controller
        self.address = address

    @property
    def leads(self) -> bool:
        """Whether this controller certainly leads at this moment."""
        return self._ready and clock.monotonic() < self._until

    @property
    def may_lead(self) -> bool:
        """Whether this controller leads, or has led and does not know yet that another one does."""
        return self._ready

    @property
    def fence(self) -> Mapping[str, Mapping[str, int]]:
        """The condition of all writes of the leader."""
        return {self._key: {"created": self._created}}

    async def work(self) -> None:
        """Task: try to lead, and stay the leader while possible."""
        while True:
            try:
                if self._created:
                    await self._stay()
                else:
                    await self._try()
            except EtcdError as error:
                log.warning("%s", error, extra={"failure": "etcd"})
                if isinstance(error, NoLease) or clock.monotonic() >= self._until:
                    self._lose(str(error))
                self.leader = self.address if self._created else ""
            waits = self._created or self._stands_back
            await asyncio.sleep(self._seconds / 3 if waits else _CHECK_SECONDS)

    async def give_up(self) -> None:
        """Let another controller lead at once, instead of when the lease expires."""
        await self._leave(f"this {self._kind} stops")

    async def _leave(self, why: str) -> None:
        lease, self._lease = self._lease, 0
        self._lose(why)
        if not lease:
            return
        try:
            await self._etcd.revoke(lease)
        except EtcdError as error:
            log.warning("cannot revoke the lease: %s", error)

    def doubt(self) -> None:
        """A write has shown that another may lead: refuse requests until that is clear."""
        self._until = 0.0

    async def _stay(self) -> None:
        asked = clock.monotonic()
        await self._etcd.keep_alive(self._lease)
        found = await self._etcd.get(self._key)
        if found is None or found.created != self._created:
            self._lose(f"another {self._kind} leads")
            return
        self._until = asked + self._seconds - _MARGIN
        if not self._ready:
            await self._take_over()
        await self._list_members()

    async def _try(self) -> None:
        asked = clock.monotonic()
        await self._renew_lease()
        found = await self._etcd.get(self._key)
        if found is not None and found.lease != self._lease:
            self.leader_details = _read(found.value)
            self.leader = self.leader_details.get("address", "")
            await self._list_members()
            return
        self.leader = ""
        if found is not None:
            # The key is held under this controller's lease: its creation was not confirmed, or etcd
            # was unavailable. This controller renews the lease, so no other could ever lead.
            self._created = found.created
        else:
            free = {self._key: {"created": 0}}
            done = await self._etcd.put_if(self._key, self._value(), free, self._lease)
            if not done.succeeded:
                return
            self._created = done.revision
        self._until = asked + self._seconds - _MARGIN
        await self._take_over()

    async def _renew_lease(self) -> None:
        """Renew or create the lease under which the other controllers find this one."""
        if self._lease:
            try:
                await self._etcd.keep_alive(self._lease)
            except NoLease:
                self._lease = 0
                raise
            return
        lease = await self._etcd.grant(self._seconds)
        await self._etcd.put_if(self._members + self.address, self._value(), {}, lease)
        self._lease = lease

    def _value(self) -> bytes:
        return orjson.dumps({**self._details(), "address": self.address})

    async def _list_members(self) -> None:
        start = len(self._members)
        found = await self._etcd.pairs(self._members)
        self.controllers = tuple(sorted(pair.key[start:] for pair in found))

    async def _take_over(self) -> None:
        self._stands_back = False
        try:
            await self._on_lead()
        except EtcdError as error:
            # Perhaps only this controller fails. While it keeps its lease, no other could ever
            # lead.
            self._stands_back = True
            await self._leave(str(error))
            raise
        if clock.monotonic() < self._until:
            self._ready = True
            self.elections += 1
            self.leader = self.address
            log.info("this %s leads", self._kind)
            self._on_leading()

    def _lose(self, why: str) -> None:
        if self._ready:
            log.warning("this %s no longer leads: %s", self._kind, why)
        self._ready = False
        self._created = 0
        self._until = 0.0
        self.leader = ""


def _read(value: bytes) -> Mapping[str, str]:
    try:
        found = orjson.loads(value)
        return {str(name): str(text) for name, text in found.items()}
    except (ValueError, AttributeError):
        return {}
