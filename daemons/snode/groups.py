"""The subscription groups as a snode knows them, and making those that are new at every enode.

What an enode has is read from it (GET_ALL_SUBSCRIPTIONGROUP_CONFIG) when it is found and each time
that the snode registers. A group that none has is made here for the first who names it, and then at
every master, with its retry topic: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, then CREATE_RETRY_TOPIC, or
a plain topic at a broker that does not speak the dialect of snodes. What an enode does not take now
it is sent again.
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
# Before what failed at an enode is sent to it again: first, and after it has failed often.
RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0
# Groups that are made at an enode side by side.
_AT_ONCE = 16


# What is told once, of an enode.
_READING = "the groups of enode {} cannot be read now"
_MAKING = "groups cannot be made at enode {} now"


class _Pause(NamedTuple):
    """Of an enode that has not done what it was asked to: how long, and until when by the clock."""

    address: str
    seconds: float
    until: float


class SnodeGroups:
    """The groups by name. `work` makes at enodes what is to be made there, until cancelled."""

    def __init__(self, settings: SnodeSettings, enodes: Enodes) -> None:
        self._settings = settings
        self._enodes = enodes
        built_in = {
            name: SubscriptionGroupConfig(group_name=name) for name in names.BUILT_IN_GROUPS
        }
        self.table: dict[str, SubscriptionGroupConfig] = dict(built_in)
        # Groups whose consumers are here, by name: each enode is to have them, and their topics.
        self._used: dict[str, None] = {}
        # Of them, those that no enode had: the enodes where they were made from here.
        self._made_here: dict[str, set[str]] = {}
        # By group and enode, what is made there: whether with its retry topic.
        self._done: dict[str, dict[str, bool]] = {}
        self._wake = asyncio.Event()
        self._read: dict[str, tuple[bytes, SubscriptionGroupWrapper]] = {}  # by enode
        self._said: dict[str, str] = {}  # addresses of enodes that said last what they have
        self._pauses: dict[str, _Pause] = {}  # by enode
        self._told: set[str] = set()  # what fails again and again
        enodes.on_change.append(self._wake.set)

    def find(self, name: str, *, tell: bool = True) -> SubscriptionGroupConfig | None:
        """The group, made if it is new and may be; None if it may not.

        Raises Overloaded when there are enough.
        """
        known = self.table.get(name)
        if known is not None:
            return known
        if not (self._settings.snode.auto_create_subscription_group or names.is_system_group(name)):
            return None
        try:
            names.check_group(name)
        except names.IllegalName as error:
            log.warning("group not made: %s", error)
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
        """Whether the group is there, and consumption is not switched off."""
        group = self.table.get(name)
        return group is not None and group.consume_enable

    # as RetryTopics: consumers that register need theirs at every enode

    def get(self, topic: str) -> TopicConfig | None:
        """None: whether an enode has a retry topic, it knows best."""
        return None

    def create_all(self, topics: Sequence[TopicConfig]) -> None:
        """Have retry topics made at every enode."""
        for topic in topics:
            name = (topic.topic_name or "").removeprefix(names.RETRY_PREFIX)
            if name not in self._used:
                self._used[name] = None
                self._wake.set()

    def left(self, name: str) -> None:
        """The last consumer of a group has left: enodes that come are not to have it."""
        self._used.pop(name, None)
        self._done.pop(name, None)
        if self._made_here.get(name):  # else no enode has it yet, and the table says that there is
            del self._made_here[name]

    # at the enodes --------------------------------------------------------------------------

    async def read(self) -> None:
        """Take in what the enodes have; one that does not answer changes nothing."""
        await self._read_from(dict(self._enodes.masters))

    async def _read_from(self, masters: Mapping[str, str]) -> None:
        """The same of some enodes only, by name."""
        said: dict[str, str] = {}
        for name, address in masters.items():
            try:
                response = await self._enodes.call(
                    address, Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
                )
                await self._decode(name, bytes(response.body))
            except (MQError, RemoteProtocolError) as error:
                self._tell(_READING.format(name), error)
                continue
            said[name] = address
            self._told.discard(_READING.format(name))
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
        """Whether an enode has said last that it has a group."""
        return enode in self._read and group in self._read[enode][1].subscription_group_table

    def _leave_to_administrators(self, whole: bool) -> None:
        """Make no more of groups that somebody else has made at an enode, or that all have. What
        was made from here at one of them is still to be made at those that were away."""
        for group, made_at in list(self._made_here.items()):
            have = {enode for enode in self._read if self._has(enode, group)}
            if (whole and have and have >= self._enodes.masters.keys()) or not have <= made_at:
                del self._made_here[group]

    async def _decode(self, enode: str, body: bytes) -> None:
        """Keep what an enode has answered; of many groups that takes a while, and mostly it is what
        it has answered the last time. Raises RemoteProtocolError."""
        digest = hashlib.blake2b(body).digest()
        known = self._read.get(enode)
        if known is None or known[0] != digest:
            wrapper = await asyncio.to_thread(SubscriptionGroupWrapper.decode, body)
            self._read[enode] = digest, wrapper

    async def work(self) -> None:
        """Make groups and their retry topics where they are not, whenever there are new ones."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_to_wait()):
                    await self._wake.wait()
            self._wake.clear()
            await self._make_all()

    def _seconds_to_wait(self) -> float | None:
        """Until an enode is asked again that has not done what it was asked to; None without."""
        due = min((pause.until for pause in self._pauses.values()), default=None)
        return None if due is None else max(0.0, due - clock.monotonic())

    async def _make_all(self) -> None:
        """Make what is to be made at enodes, but for those that have just refused something."""
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
            await self._read_from(asked)  # an administrator may have made one: it stays as it is
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
            self._told.discard(_MAKING.format(enode))
        self._pause(due, failed)

    def _pause(self, asked: Mapping[str, str], failed: Collection[str]) -> None:
        """Ask enodes that have failed later than the last time, and the others at once."""
        for enode, address in asked.items():
            before = self._pauses.pop(enode, None)
            if enode in failed:
                seconds = RETRY_SECONDS if before is None else 2 * before.seconds
                seconds = min(seconds, LONGEST_RETRY_SECONDS)
                self._pauses[enode] = _Pause(address, seconds, clock.monotonic() + seconds)

    def _tell(self, what: str, error: Exception) -> None:
        """Say once what fails at an enode, though it is tried again and again."""
        if what not in self._told:
            self._told.add(what)
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
                    if self._said.get(enode) != address:  # it may have one that is to stay so
                        return False
                    if not self._has(enode, group):
                        self._made_here[group].add(enode)  # also where no answer comes
                        await self._make_group(address, group)
                if used:
                    await self.make_retry_topic(address, group, enode)
            except LATER as error:
                self._tell(_MAKING.format(enode), error)
                return False
            except BrokerError as error:  # it is there and does not want to: asked again, in vain
                log.warning("group %s is not made at enode %s: %s", group, enode, error,
                            extra={"failure": f"making groups {enode}"})  # fmt: skip
            except MQError as error:
                self._tell(_MAKING.format(enode), error)
                return False
        if group in self._used or group in self._made_here:  # else it has left meanwhile
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
        """Make the retry topic of a group at an enode. Raises MQError."""
        if await self._enodes.dialect(address) is Dialect.SNODE:
            header = CreateRetryTopicRequestHeader(group_name=group, enode_name=enode)
            await self._enodes.call(address, Command(SnodeCode.CREATE_RETRY_TOPIC, header.encode()))
        elif not await self._has_retry_topic(group, enode, address):
            await self._enodes.call(address, plain_retry_topic(self.queues_of(group), group))

    async def _has_retry_topic(self, group: str, enode: str, address: str) -> bool:
        """Whether it is there: a request that makes a topic changes one that is there. The enode is
        asked where name servers do not know it, which may have just started. Raises MQError."""
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
        """How many queues the retry topic of a group has."""
        config = self.table.get(group)
        return 1 if config is None else max(1, config.retry_queue_nums)


def plain_retry_topic(queues: int, group: str) -> Command:
    """The request that makes the retry topic of a group at a broker that knows no snodes."""
    header = CreateTopicRequestHeader(
        topic=names.retry_topic(group),
        default_topic=names.DEFAULT_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=Permission.READ | Permission.WRITE,
        topic_filter_type="SINGLE_TAG",
    )
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())
