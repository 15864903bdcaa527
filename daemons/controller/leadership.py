"""Who leads the controllers of a group: who has put its name under a lease of etcd.

The key is made by one, and goes when its lease is over. What the leader writes is compared with the
revision that made the key (`fence`), in the same transaction: one that has lost it, and does not
know yet, changes nothing. For what is only read it looks at its own clock: `leads` ends before the
lease can be over, which was given later than it was asked for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import orjson

from mq.client.machine import clock
from mq.daemons.controller.etcd import Etcd, EtcdError, NoLease

log = logging.getLogger(__name__)

# Between two looks of one that does not lead whether nobody does.
_LOOK_SECONDS = 0.5
# Of the lease that is not used: clocks do not run alike.
_MARGIN = 0.1


class Leadership:
    """Leads, or follows who does. ``on_lead`` is awaited before `leads` is true, and may raise
    EtcdError: then another may try; ``on_leading`` is called when it is."""

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
        """`prefix` is of this group's keys, and ends in "/"; `kind` is what leads, for people;
        `details` is what else the others are to know of who leads."""
        self._etcd = etcd
        self._key = f"{prefix}leader"
        self._members = f"{prefix}{kind}s/"
        self._kind = kind
        self._details = details
        self._seconds = seconds
        self._on_lead = on_lead
        self._on_leading = on_leading
        self._lease = 0
        self._created = 0  # the revision that made the key, if it is ours
        self._until = 0.0
        self._ready = False
        self._stands_back = False  # it could not begin, and lets others go first
        self.leader = ""  # address of who leads, as far as is known
        self.leader_details: Mapping[str, str] = {}
        self.controllers: tuple[str, ...] = (address,)  # addresses of all that live
        self.elections = 0  # that this one has won
        self.address = address

    @property
    def leads(self) -> bool:
        """Whether this controller leads, surely, at this moment."""
        return self._ready and clock.monotonic() < self._until

    @property
    def may_lead(self) -> bool:
        """Whether this controller leads, or has led and does not know yet that another does."""
        return self._ready

    @property
    def fence(self) -> Mapping[str, Mapping[str, int]]:
        """What must still be so where the leader writes."""
        return {self._key: {"created": self._created}}

    async def work(self) -> None:
        """Try to lead, and go on while it can. A task."""
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
            await asyncio.sleep(self._seconds / 3 if waits else _LOOK_SECONDS)

    async def give_up(self) -> None:
        """Let another lead at once, instead of when the lease is over."""
        await self._leave(f"this {self._kind} stops")

    async def _leave(self, why: str) -> None:
        lease, self._lease = self._lease, 0
        self._lose(why)
        if not lease:
            return
        try:
            await self._etcd.revoke(lease)
        except EtcdError as error:
            log.warning("the lease is not given back: %s", error)

    def doubt(self) -> None:
        """A write has shown that another may lead: nothing is answered until that is clear."""
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
            await self._begin()
        await self._look_around()

    async def _try(self) -> None:
        asked = clock.monotonic()
        await self._be_there()
        found = await self._etcd.get(self._key)
        if found is not None and found.lease != self._lease:
            self.leader_details = _read(found.value)
            self.leader = self.leader_details.get("address", "")
            await self._look_around()
            return
        self.leader = ""
        if found is not None:
            # Ours: its making was not confirmed, or etcd was away. We keep its lease alive, so
            # nobody else could ever lead.
            self._created = found.created
        else:
            free = {self._key: {"created": 0}}
            done = await self._etcd.put_if(self._key, self._value(), free, self._lease)
            if not done.succeeded:
                return
            self._created = done.revision
        self._until = asked + self._seconds - _MARGIN
        await self._begin()

    async def _be_there(self) -> None:
        """Have a lease that has just begun, under which the others find this controller."""
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

    async def _look_around(self) -> None:
        start = len(self._members)
        found = await self._etcd.pairs(self._members)
        self.controllers = tuple(sorted(pair.key[start:] for pair in found))

    async def _begin(self) -> None:
        self._stands_back = False
        try:
            await self._on_lead()
        except EtcdError as error:
            # It may be that only this one cannot. Under its lease no other could ever lead.
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
            log.warning("this %s leads no more: %s", self._kind, why)
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
