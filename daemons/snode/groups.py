"""The subscription groups as known by a snode, and their creation at every enode.

The groups of an enode are read from it (GET_ALL_SUBSCRIPTIONGROUP_CONFIG) when it is found and each
time that the snode registers. A group that no enode has is created here for the first client that
names it, and then at every master, with its retry topic: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, then
CREATE_RETRY_TOPIC, or an ordinary topic at a broker that does not support the snode dialect.
Requests that an enode does not accept now are retried.
"""

import asyncio
import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from mq.client.errors import BrokerError, MQError, RouteNotFound, TopicNotExist
from mq.client.machine import clock
from mq.daemons.dispatch import Overloaded
from mq.daemons.snode.config import SnodeSettings
from mq.daemons.snode.enodes import LATER, Enodes
from mq.protocol import names
from mq.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper, TopicConfig
from mq.protocol.codes import Dialect, RequestCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import Permission
from mq.protocol.headers.snode import CreateRetryTopicRequestHeader
from mq.protocol.headers.topic import CreateTopicRequestHeader

log = logging.getLogger(__name__)

GROUPS_SETTING = "maxAutoCreatedGroups"
# Seconds before failed requests to an enode are retried: at first, and after many failures.
RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0
# Groups created concurrently at an enode.
_AT_ONCE = 16


# Failures that are logged once per enode.
_READING = "cannot read the groups of enode {}"
_MAKING = "cannot create groups at enode {}"


class _Pause(NamedTuple):
    """The retry pause of an enode with failed requests: its duration, and its end by the monotonic
    clock.
    """

    address: str
    seconds: float
    until: float


class SnodeGroups:
    """The groups by name. `work` creates groups at enodes, until cancelled."""

    def __init__(self, settings: SnodeSettings, enodes: Enodes) -> None:
        self._settings = settings
        self._enodes = enodes
        built_in = {
            name: SubscriptionGroupConfig(group_name=name) for name in names.BUILT_IN_GROUPS
        }
        self.table: dict[str, SubscriptionGroupConfig] = dict(built_in)
        # Groups with consumers at this snode, by name: each enode must have them, and their retry
        # topics.
        self._used: dict[str, None] = {}
        # Of these, groups that no enode had: the enodes where this snode created them.
        self._made_here: dict[str, set[str]] = {}
        # By group and enode, the completed creation: whether with the retry topic.
        self._done: dict[str, dict[str, bool]] = {}
        self._wake = asyncio.Event()
        self._read: dict[str, tuple[bytes, SubscriptionGroupWrapper]] = {}  # by enode
        self._said: dict[str, str] = {}  # addresses of the enodes that answered last
        self._pauses: dict[str, _Pause] = {}  # by enode
        self._logged: set[str] = set()  # failures that have been logged
        enodes.on_change.append(self._wake.set)

    def find(self, name: str, *, tell: bool = True) -> SubscriptionGroupConfig | None:
        """Return the group; creates it if it is missing and may be created, else None.

        Raises Overloaded at the limit of groups.
        """
        known = self.table.get(name)
        if known is not None:
            return known
        if not (self._settings.snode.auto_create_subscription_group or names.is_system_group(name)):
            return None
        try:
            names.check_group(name)
        except names.IllegalName as error:
            log.warning("group not created: %s", error)
            return None
        most = self._settings.operation.max_auto_created_groups
        if 0 < most <= len(self.table):
            raise Overloaded(GROUPS_SETTING, f"[OVERLOAD]group {name} is new, and there are {most}")
        group = self.table[name] = SubscriptionGroupConfig(group_name=name)
        self._made_here[name] = set()
        self._wake.set()
        if tell:
            log.info("subscription group %s is new", name)
        return group

    def may_consume(self, name: str) -> bool:
        """Whether the group exists and may consume."""
        group = self.table.get(name)
        return group is not None and group.consume_enable

    # the interface RetryTopics: registering consumers need their retry topics at every enode

    def get(self, topic: str) -> TopicConfig | None:
        """None: only the enode knows whether it has a retry topic."""
        return None

    def create_all(self, topics: Sequence[TopicConfig]) -> None:
        """Request the creation of retry topics at every enode."""
        for topic in topics:
            name = (topic.topic_name or "").removeprefix(names.RETRY_PREFIX)
            if name not in self._used:
                self._used[name] = None
                self._wake.set()

    def left(self, name: str) -> None:
        """Stop the creation of a group at new enodes, because its last consumer has left."""
        self._used.pop(name, None)
        self._done.pop(name, None)
        if self._made_here.get(name):  # otherwise no enode has it yet, and it stays in the table
            del self._made_here[name]

    # at enodes --------------------------------------------------------------------------

    async def read(self) -> None:
        """Read the groups of all enodes; one that does not reply changes nothing."""
        await self._read_from(dict(self._enodes.masters))

    async def _read_from(self, masters: Mapping[str, str]) -> None:
        """Read the groups of some enodes, by name."""
        said: dict[str, str] = {}
        for name, address in masters.items():
            try:
                response = await self._enodes.call(
                    address, Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
                )
                await self._decode(name, bytes(response.body))
            except (MQError, RemoteProtocolError) as error:
                self._log_once(_READING.format(name), error)
                continue
            said[name] = address
            self._logged.discard(_READING.format(name))
        self._said = said
        self._read = {name: self._read[name] for name in self._enodes.masters if name in self._read}
        whole = said.keys() >= self._enodes.masters.keys()
        found: dict[str, SubscriptionGroupConfig] = {}
        for _, wrapper in self._read.values():
            for group, config in wrapper.subscription_group_table.items():
                found.setdefault(group, config)
        self._leave_to_administrators(whole)
        if whole:
            kept = {name: self.table[name] for name in self._made_here if name in self.table}
            built_in = {name: self.table[name] for name in names.BUILT_IN_GROUPS}
            self.table = {**built_in, **kept, **found}
        else:
            self.table.update(found)

    def _has(self, enode: str, group: str) -> bool:
        """Whether an enode has a group, according to its last reply."""
        return enode in self._read and group in self._read[enode][1].subscription_group_table

    def _leave_to_administrators(self, whole: bool) -> None:
        """Stop the creation of groups that another client has created at an enode, or that all
        enodes have. Groups that this snode created at one of them are still created at enodes
        that were absent.
        """
        for group, made_at in list(self._made_here.items()):
            have = {enode for enode in self._read if self._has(enode, group)}
            if (whole and have and have >= self._enodes.masters.keys()) or not have <= made_at:
                del self._made_here[group]

    async def _decode(self, enode: str, body: bytes) -> None:
        """Keep the reply of an enode. Decoding many groups takes a while, and mostly the reply is
        the same as the last one. Raises RemoteProtocolError.
        """
        digest = hashlib.blake2b(body).digest()
        known = self._read.get(enode)
        if known is None or known[0] != digest:
            wrapper = await asyncio.to_thread(SubscriptionGroupWrapper.decode, body)
            self._read[enode] = digest, wrapper

    async def work(self) -> None:
        """Create groups and their retry topics where they are missing, whenever one is new."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_to_wait()):
                    await self._wake.wait()
            self._wake.clear()
            await self._make_all()

    def _seconds_to_wait(self) -> float | None:
        """Seconds until an enode with failed requests is retried; None if there is none."""
        due = min((pause.until for pause in self._pauses.values()), default=None)
        return None if due is None else max(0.0, due - clock.monotonic())

    async def _make_all(self) -> None:
        """Create missing groups at enodes, except those with a retry pause."""
        masters = dict(self._enodes.masters)
        for done in self._done.values():
            for enode in done.keys() - masters:
                del done[enode]
        for enode, pause in list(self._pauses.items()):
            if masters.get(enode) != pause.address:
                del self._pauses[enode]
        now = clock.monotonic()
        due = {
            name: address
            for name, address in masters.items()
            if name not in self._pauses or self._pauses[name].until <= now
        }
        asked = {
            enode: address
            for enode, address in due.items()
            if any(self._is_to_do(group, enode) for group in self._made_here)
        }
        if asked:
            await self._read_from(asked)  # a group that an administrator has created is not changed
        todo = [
            (group, enode, group in self._used)
            for group in list({**self._made_here, **self._used})
            for enode in (asked if group in self._made_here else due)
            if self._is_to_do(group, enode)
        ]
        turn = asyncio.Semaphore(_AT_ONCE)
        results = await asyncio.gather(
            *(self._make(turn, group, enode, due[enode], used) for group, enode, used in todo)
        )
        failed = {one[1] for one, is_done in zip(todo, results, strict=True) if not is_done}
        for enode in {one[1] for one in todo} - failed:
            self._logged.discard(_MAKING.format(enode))
        self._pause(due, failed)

    def _pause(self, asked: Mapping[str, str], failed: Collection[str]) -> None:
        """Lengthen the retry pause of failed enodes, and end that of the others."""
        for enode, address in asked.items():
            before = self._pauses.pop(enode, None)
            if enode in failed:
                seconds = RETRY_SECONDS if before is None else 2 * before.seconds
                seconds = min(seconds, LONGEST_RETRY_SECONDS)
                self._pauses[enode] = _Pause(address, seconds, clock.monotonic() + seconds)

    def _log_once(self, what: str, error: Exception) -> None:
        """Log a failure at an enode once, although it is retried repeatedly."""
        if what not in self._logged:
            self._logged.add(what)
            log.warning("%s: %s", what, error)

    def _is_to_do(self, group: str, enode: str) -> bool:
        has_topic = self._done.get(group, {}).get(enode)
        return has_topic is None or (group in self._used and not has_topic)

    async def _make(
        self, turn: asyncio.Semaphore, group: str, enode: str, address: str, used: bool
    ) -> bool:
        async with turn:
            try:
                if group in self._made_here:
                    # the enode may have one that must not be changed
                    if self._said.get(enode) != address:
                        return False
                    if not self._has(enode, group):
                        self._made_here[group].add(enode)  # also if no reply arrives
                        await self._make_group(address, group)
                if used:
                    await self.make_retry_topic(address, group, enode)
            except LATER as error:
                self._log_once(_MAKING.format(enode), error)
                return False
            except BrokerError as error:  # the enode exists and refuses: retrying would not help
                log.warning("cannot create group %s at enode %s: %s", group, enode, error,
                            extra={"failure": f"making groups {enode}"})  # fmt: skip
            except MQError as error:
                self._log_once(_MAKING.format(enode), error)
                return False
        if group in self._used or group in self._made_here:  # otherwise it has left meanwhile
            self._done.setdefault(group, {})[enode] = used
        return True

    async def _make_group(self, address: str, group: str) -> None:
        config = self.table.get(group)
        if config is not None:
            body = config.encode()
            await self._enodes.call(
                address, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
            )

    async def make_retry_topic(self, address: str, group: str, enode: str) -> None:
        """Create the retry topic of a group at an enode. Raises MQError."""
        if await self._enodes.dialect(address) is Dialect.SNODE:
            header = CreateRetryTopicRequestHeader(group_name=group, enode_name=enode)
            await self._enodes.call(address, Command(SnodeCode.CREATE_RETRY_TOPIC, header.encode()))
        elif not await self._has_retry_topic(group, enode, address):
            await self._enodes.call(address, plain_retry_topic(self.queues_of(group), group))

    async def _has_retry_topic(self, group: str, enode: str, address: str) -> bool:
        """Whether an enode has the retry topic: a creation request would change an existing one. If
        name servers, which may have just started, do not know it, the enode is asked. Raises
        MQError.
        """
        topic = names.retry_topic(group)
        try:
            route = await self._enodes.session.fresh_route(topic)
        except RouteNotFound:
            pass
        else:
            if any(queues.broker_name == enode for queues in route.queue_datas):
                return True
        try:
            asked = Command(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            await self._enodes.call(address, asked)
        except TopicNotExist:
            return False
        return True

    def queues_of(self, group: str) -> int:
        """The number of queues of a group's retry topic."""
        config = self.table.get(group)
        return 1 if config is None else max(1, config.retry_queue_nums)


def plain_retry_topic(queues: int, group: str) -> Command:
    """The request that creates a group's retry topic at a broker without the snode dialect."""
    header = CreateTopicRequestHeader(
        topic=names.retry_topic(group),
        default_topic=names.DEFAULT_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=Permission.READ | Permission.WRITE,
        topic_filter_type="SINGLE_TAG",
    )
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())
