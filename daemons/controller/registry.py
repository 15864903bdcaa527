"""The replica sets of a controller: the new leader reads them from etcd, and only the leader
changes them.

  change   one at a time: the next state is computed from the present one, written, and then
           becomes valid; until then replies have the present state
  fence    each write is compared with the leader's key and with the last state of the set
  doubt    if it is unknown whether a write was executed, all sets are read again before the next

So two overlapping leaders cannot both change a set, and every state in a reply has been written.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from mq.daemons.controller.etcd import Etcd, EtcdError
from mq.daemons.controller.leadership import Leadership
from mq.daemons.controller.replica_set import ReplicaSet
from mq.daemons.dispatch import Refused
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

# Limit of replica sets: any client can request a first id.
MOST_SETS = 10_000
MOST_NAME = 255

# Computes the next state of a set, which is None if there is none. Returning the same object
# changes nothing, None deletes the set. Raises Refused.
Step = Callable[[ReplicaSet | None], ReplicaSet | None]


class Registry:
    """All replica sets by name, below a prefix of etcd's keys that ends in "/"."""

    def __init__(self, etcd: Etcd, prefix: str, leadership: Leadership) -> None:
        self._etcd = etcd
        self._prefix = prefix
        self._leadership = leadership
        self._sets: dict[str, ReplicaSet] = {}
        self._is_known = False
        self._lock = asyncio.Lock()
        self.writes = 0

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[ReplicaSet]:
        return iter(list(self._sets.values()))

    async def load(self) -> None:
        """Read all sets, which a new leader must do. Raises EtcdError."""
        async with self._lock:
            await self._load()

    async def load_if_needed(self) -> None:
        """Read the sets again if a write has left their state uncertain. Raises EtcdError."""
        if not self._leadership.leads or self._is_known:
            return
        async with self._lock:
            if not self._is_known:  # still necessary: a change in progress may have read them
                await self._load()

    @property
    def is_in_doubt(self) -> bool:
        """Whether this controller must ask etcd before it replies: for the sets, or whether it
        still leads. If it knows that it does not lead, another one replies.
        """
        return self._leadership.may_lead and not (self._leadership.leads and self._is_known)

    def check_leads(self) -> None:
        """Raises Refused if another controller must be asked."""
        if not (self._leadership.leads and self._is_known):
            raise Refused(
                ResponseCode.CONTROLLER_NOT_LEADER, "The controller is not in leader state"
            )

    def get(self, name: str) -> ReplicaSet | None:
        """The current state of a set. Raises Refused if another controller leads."""
        self.check_leads()
        return self._sets.get(name)

    async def change(self, name: str, step: Step) -> ReplicaSet | None:
        """Apply a step to a set; returns the set when it has been written.

        Raises Refused if the step does, if another controller leads, and if etcd has not confirmed
        the write, which may have been executed then.
        """
        async with self._lock:
            self.check_leads()
            kept = self._sets.get(name)
            wanted = step(kept)
            if wanted is kept:
                return kept
            if kept is None and (len(self._sets) >= MOST_SETS or not 0 < len(name) <= MOST_NAME):
                raise Refused(
                    ResponseCode.CONTROLLER_INVALID_REQUEST,
                    f"{name[:MOST_NAME]!r} is not registered: a name has 1 to {MOST_NAME} "
                    f"characters, and there are at most {MOST_SETS} replica sets",
                )
            try:
                changed = await self._write(name, kept, wanted)
            except EtcdError as error:
                log.error("%s", error, extra={"failure": "etcd"})
                await self._load_again()
                raise Refused(
                    ResponseCode.SYSTEM_ERROR, f"the change of {name} is not confirmed: {error}"
                ) from None
            except BaseException:
                # it was not awaited to its end, so it may have been executed
                self._is_known = False
                raise
            if changed is None and wanted is not None:
                self._leadership.doubt()
                await self._load_again()
                raise Refused(
                    ResponseCode.CONTROLLER_NOT_LEADER, "The controller is not in leader state"
                )
            self.writes += 1
            return changed

    async def _write(
        self, name: str, kept: ReplicaSet | None, wanted: ReplicaSet | None
    ) -> ReplicaSet | None:
        """Write a state; returns it with its version, None if it is deleted or not written."""
        key = self._prefix + name
        unchanged = {key: {"changed": kept.version if kept is not None else 0}}
        value = None if wanted is None else wanted.encode()
        done = await self._etcd.put_if(key, value, {**self._leadership.fence, **unchanged})
        if not done.succeeded:
            if wanted is None:
                raise EtcdError("another controller has changed it")
            return None
        if wanted is None:
            del self._sets[name]
            return None
        changed = self._sets[name] = replace(wanted, version=done.revision)
        return changed

    async def _load_again(self) -> None:
        try:
            await self._load()
        except EtcdError as error:
            log.error("cannot read the replica sets: %s", error, extra={"failure": "etcd"})

    async def _load(self) -> None:
        self._is_known = False
        found = {}
        for pair in await self._etcd.pairs(self._prefix):
            try:
                kept = ReplicaSet.decode(pair.value, pair.changed)
            except ValueError as error:
                raise EtcdError(f"the key {pair.key} is malformed: {error}") from None
            found[kept.name] = kept
        self._sets = found
        self._is_known = True
