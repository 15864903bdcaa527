"""A client and its masters: registration, heartbeats, and the choice of the master.

  registering     each master once, from the current one on; 450 and 455 end it at once
  heartbeat       every `heartbeat_interval`, the first after half of it
    411           register again, at the same master
    standby       register again, from the next master on
    no answer     the next heartbeat goes to the next master, which returns one of these two if
                  it is another (Java's failover; the first C++ client keeps asking a dead master)
    any other     counted; after `heartbeat_failures` in a row the interval is the long one
  not registered  it registers instead of a heartbeat, from the current master on

If a heartbeat is not answered it is unknown whether the master received it: its content is sent
again.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable

from mq.client.errors import ConnectError, MQError, RequestTimeout
from mq.client.tube.errors import GroupForbidden, NotRegistered, StandbyMaster
from mq.client.tube.masters import Masters
from mq.client.tube.membership import Member, Membership, accepted
from mq.client.tube.partitions import PartitionTable
from mq.client.tube.rebalancing import Event, Rebalancing
from mq.protocol.tube.codes import UNDEFINED, Method
from mq.protocol.tube.messages import (
    CloseRequestC2M,
    CloseResponseM2C,
    HeartRequestC2M,
    HeartResponseM2C,
    RegisterRequestC2M,
    RegisterResponseM2C,
)
from mq.protocol.tube.strings import (
    Address,
    PartitionKey,
    RequiredPartitions,
    SubscribeInfo,
)

log = logging.getLogger(__name__)


class MasterLink(ABC):
    """The common part of all kinds of clients."""

    def __init__(
        self, member: Member, masters: Masters, on_beat: Callable[[], None] = lambda: None
    ) -> None:
        """`on_beat` is called before each heartbeat."""
        self._client = member
        self._masters = masters
        self._on_beat = on_beat
        self.is_registered = False
        self.failures = 0  # consecutive ones

    @abstractmethod
    async def _register_at(self, master: Address) -> None: ...

    @abstractmethod
    async def _beat_at(self, master: Address) -> None: ...

    @abstractmethod
    async def _close_at(self, master: Address) -> None: ...

    async def register(self) -> None:
        """Register at the first master that accepts. Raises the error of the last one.

        Raises GroupForbidden as soon as one returns it.
        """
        failure: MQError | None = None
        for _ in range(len(self._masters)):
            master = self._masters.current
            try:
                await self._register_at(master)
            except GroupForbidden:
                raise
            except MQError as error:
                log.info("%s: not registered: %s", self._client.client_id, error)
                failure = error
                self._masters.advance()
            else:
                self.is_registered = True
                return
        assert failure is not None
        raise failure

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        options = self._client.client_options
        await asyncio.sleep(options.heartbeat_interval / 2)
        while True:
            try:
                await self.beat()
            except Exception:
                self.failures += 1
                log.exception("heartbeat to the master failed")
            often = self.failures < options.heartbeat_failures
            await asyncio.sleep(
                options.heartbeat_interval if often else options.heartbeat_interval_after_failures
            )

    async def beat(self) -> None:
        """Send one heartbeat, or register if that is due. Failures are logged and counted."""
        self._on_beat()
        if not self.is_registered:
            await self._register_again()
            return
        try:
            await self._beat_at(self._masters.current)
        except (NotRegistered, StandbyMaster) as error:
            self._failed(error)
            self.is_registered = False
            if isinstance(error, StandbyMaster):
                self._masters.advance()
            await self._register_again()
        except (ConnectError, RequestTimeout) as error:
            self._failed(error)
            self._masters.advance()
        except MQError as error:
            self._failed(error)
        else:
            self.failures = 0

    def _failed(self, error: MQError) -> None:
        self.failures += 1
        log.warning(
            "%s: heartbeat %d in a row failed: %s", self._client.client_id, self.failures, error
        )

    async def _register_again(self) -> None:
        try:
            await self.register()
        except MQError as error:
            self.failures += 1
            log.warning("%s: not registered again: %s", self._client.client_id, error)
        else:
            self.failures = 0

    async def close(self) -> None:
        """Unregister at the master. Raises its error."""
        await self._close_at(self._masters.current)


class ConsumerLink(MasterLink):
    """The common part of both kinds of consumers."""

    def __init__(
        self,
        member: Membership,
        masters: Masters,
        table: PartitionTable,
        on_beat: Callable[[], None],
    ) -> None:
        super().__init__(member, masters, on_beat)
        self._member = member
        self._table = table

    @abstractmethod
    def report_soon(self) -> None:
        """Report the owned partitions to the master with the next heartbeat."""

    async def _close_at(self, master: Address) -> None:
        member = self._member
        request = CloseRequestC2M(clientId=member.client_id, groupName=member.group)
        if (certificate := member.identity.for_master()) is not None:
            request.authInfo.CopyFrom(certificate)
        answer = await member.ask(master, Method.CONSUMER_CLOSE_C2M, request, CloseResponseM2C)
        accepted(answer.success, answer, master)


class GroupLink(ConsumerLink):
    """The link of a consumer whose partitions the master assigns (methods 4 and 5)."""

    def __init__(
        self,
        member: Membership,
        masters: Masters,
        table: PartitionTable,
        rebalancing: Rebalancing,
        on_beat: Callable[[], None],
    ) -> None:
        super().__init__(member, masters, table, on_beat)
        self._rebalancing = rebalancing
        rebalancing.start_offset = self._start_offset
        # no member has partitions yet: this one may set the starting offsets
        self._not_allocated = True
        self._has_connected = False
        self._unreported = 0

    def connected(self) -> None:
        """Record that partitions were taken: from now on the group's own offsets apply."""
        self._has_connected = True

    def report_soon(self) -> None:
        self._unreported = self._member.options.report_interval

    def _start_offset(self, key: str) -> int:
        bound = self._member.options.bound
        if bound is None or self._has_connected or not self._not_allocated:
            return UNDEFINED
        return bound.offsets.get(key, UNDEFINED)

    def _held(self) -> list[str]:
        member = self._member
        return [
            str(SubscribeInfo(member.client_id, member.group, held.partition))
            for held in self._table
        ]

    async def _register_at(self, master: Address) -> None:
        member, flow = self._member, self._member.flow
        bound = member.options.bound
        request = RegisterRequestC2M(
            clientId=member.client_id,
            groupName=member.group,
            hostName=member.host,
            topicList=member.subscription.topics,
            subscribeInfo=self._held(),
            topicCondition=member.subscription.conditions,
            requireBound=bound is not None,
            sessionTime=member.subscription.since,
            groupFlowCheckId=flow.group_id,
            defFlowCheckId=flow.default_id,
            qryPriorityId=flow.priority,
            authInfo=member.identity.for_master(),
        )
        if bound is not None:
            offsets = [(PartitionKey.parse(key), at) for key, at in sorted(bound.offsets.items())]
            request.sessionKey = bound.session_key
            request.selectBig = bound.select_big
            request.totalCount = bound.source_count
            request.requiredPartition = str(RequiredPartitions(tuple(offsets)))
            request.notAllocated = self._not_allocated
        answer = await member.ask(
            master, Method.CONSUMER_REGISTER_C2M, request, RegisterResponseM2C
        )
        accepted(answer.success, answer, master)
        self._rebalancing.registered()
        self._learn(answer)

    async def _beat_at(self, master: Address) -> None:
        member, flow, results = self._member, self._member.flow, self._rebalancing.results
        result = results[0] if results else None
        if self._rebalancing.has_changed:
            self._rebalancing.has_changed = False
            self.report_soon()
        reports = result is not None or self._unreported + 1 > member.options.report_interval
        request = HeartRequestC2M(
            clientId=member.client_id,
            groupName=member.group,
            reportSubscribeInfo=reports,
            subscribeInfo=self._held() if reports else (),
            event=result,
            defFlowCheckId=flow.default_id,
            groupFlowCheckId=flow.group_id,
            qryPriorityId=flow.priority,
            authInfo=member.identity.for_master(),
        )
        self._unreported = 0 if reports else self._unreported + 1
        try:
            answer = await member.ask(
                master, Method.CONSUMER_HEARTBEAT_C2M, request, HeartResponseM2C
            )
            accepted(answer.success, answer, master)
        except MQError:
            if reports:
                self.report_soon()
            raise
        if result is not None:
            results.popleft()
        self._learn(answer)
        if answer.HasField("event") and answer.event.rebalanceId > 0:
            self._rebalancing.offer(Event.of(answer.event))

    def _learn(self, answer: RegisterResponseM2C | HeartResponseM2C) -> None:
        """Apply the common parts of both answers: rules, tokens, whether partitions were assigned.

        Rules are applied if the answer has a number for them. (The C++ client drops those of the
        group if only the default ones are there; Java keeps rules that were switched off.)
        """
        flow = self._member.flow
        if answer.HasField("notAllocated") and not answer.notAllocated:
            self._not_allocated = False
        if answer.HasField("defFlowCheckId"):
            flow.update_default(answer.defFlowCheckId, answer.defFlowControlInfo)
        if answer.HasField("groupFlowCheckId"):
            flow.update_group(answer.groupFlowCheckId, answer.groupFlowControlInfo)
        if answer.HasField("qryPriorityId"):
            flow.priority = answer.qryPriorityId
        if answer.HasField("authorizedInfo"):
            self._member.identity.learn(answer.authorizedInfo)
