"""Consumption from TubeMQ with partitions that the program selects (ClientBalanceConsumer)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Unpack

from mq.client.errors import BadAnswer, ClientError, MQError
from mq.client.tube.consumer import TubeReader
from mq.client.tube.errors import for_code
from mq.client.tube.master_link import ConsumerLink
from mq.client.tube.masters import Masters
from mq.client.tube.membership import Membership, Topics, accepted
from mq.client.tube.options import TubeConsumerKeywords, TubeConsumerOptions
from mq.client.tube.partitions import PartitionTable
from mq.client.tube.service import TubeService
from mq.protocol.tube.codes import UNDEFINED, Code, Method
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.messages import (
    ClientSubRepInfo,
    GetPartMetaRequestC2M,
    GetPartMetaResponseM2C,
    HeartRequestC2MV2,
    HeartResponseM2CV2,
    OpsTaskInfo,
    RegisterRequestC2MV2,
    RegisterResponseM2CV2,
)
from mq.protocol.tube.names import partition_ids
from mq.protocol.tube.strings import (
    Address,
    BrokerInfo,
    Partition,
    PartitionKey,
    TopicMeta,
    TopicPartitions,
    brokers_by_id,
)

log = logging.getLogger(__name__)

#: The shortest time between two queries of the metadata (partMetaInfoCheckPeriodMs).
METADATA_SECONDS = 10.0
#: The shortest time until a partition that another client has, or whose broker refused our tokens,
#: is requested again (CFG_MIN_META_QUERY_WAIT_PERIOD_MS).
REFUSED_SECONDS = 5.0
#: Java reports its partitions every `report_interval` heartbeats times this, changed or not.
_REPORT_FACTOR = 10

_CONNECT_TRIES = 2
_CONNECT_PAUSE_SECONDS = 1.0


class Metadata:
    """The existing partitions, as the master last reported them."""

    def __init__(self, *, tls: bool) -> None:
        self._tls = tls
        self._brokers: dict[int, BrokerInfo] = {}
        self._topics: tuple[TopicMeta, ...] = ()
        self.broker_id: int = UNDEFINED  # of the list of brokers
        self.topic_id: int = UNDEFINED  # of the list of topics
        self.partitions: dict[str, tuple[Partition, bool]] = {}

    def take(
        self,
        answer: RegisterResponseM2CV2 | HeartResponseM2CV2 | GetPartMetaResponseM2C,
        master: Address,
    ) -> None:
        """Apply the lists in an answer. Raises BadAnswer if they cannot be parsed."""
        try:
            if answer.HasField("brokerConfigId") and answer.brokerConfigId != self.broker_id:
                self._brokers = brokers_by_id(answer.brokerConfigList, tls=self._tls)
                self.broker_id = answer.brokerConfigId
            if not isinstance(answer, RegisterResponseM2CV2) and answer.HasField("topicMetaInfoId"):
                if answer.topicMetaInfoId != self.topic_id and answer.topicMetaInfoList:
                    self._topics = tuple(map(TopicMeta.parse, answer.topicMetaInfoList))
                    self.topic_id = answer.topicMetaInfoId
        except MalformedText as error:
            raise BadAnswer(str(master), str(error)) from None
        self.partitions = dict(self._expanded())

    def _expanded(self) -> list[tuple[str, tuple[Partition, bool]]]:
        """Return each partition of each topic at a known broker, with whether it is readable."""
        return [
            (str(partition.key), (partition, place.subscribable))
            for topic in self._topics
            for place in topic.brokers
            if (broker := self._brokers.get(place.broker_id)) is not None
            for number in partition_ids(place.stores, place.partitions)
            for partition in (Partition(broker, topic.topic, number),)
        ]


class BalanceLink(ConsumerLink):
    """The link of a consumer that balances itself (methods 20 to 22)."""

    def __init__(
        self,
        member: Membership,
        masters: Masters,
        table: PartitionTable,
        place: tuple[int, int],
        on_beat: Callable[[], None],
    ) -> None:
        """`place` is the number of members of the group, and the index of this one."""
        super().__init__(member, masters, table, on_beat)
        self._source_count, self._node_id = place
        self.metadata = Metadata(tls=member.options.tls is not None)
        self._reported: frozenset[str] = frozenset()
        self._unreported = 0
        self.asked = -inf  # when the partitions were last fetched, in the loop's seconds

    def report_soon(self) -> None:
        """Do nothing: changes are always reported."""

    def _report(self, report: ClientSubRepInfo, *, is_new: bool = False) -> frozenset[str] | None:
        """Report the known metadata and, if changed, the owned partitions; returns the latter.

        To a master that `is_new` they are always reported, because it may not know them.
        """
        report.brokerConfigId = self.metadata.broker_id
        report.topicMetaInfoId = self.metadata.topic_id
        keys = frozenset(held.key for held in self._table)
        self._unreported += 1
        most = self._member.options.report_interval * _REPORT_FACTOR
        report.reportSubInfo = keys != self._reported or (
            bool(keys) and (is_new or self._unreported >= most)
        )
        if not report.reportSubInfo:
            return None
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for held in self._table:
            one = held.partition
            by_topic.setdefault(one.topic, []).append((one.broker.broker_id, one.partition_id))
        for topic, places in sorted(by_topic.items()):
            report.partSubInfo.append(str(TopicPartitions(topic, tuple(sorted(places)))))
        return keys

    def _was_reported(self, keys: frozenset[str] | None) -> None:
        if keys is not None:
            self._reported = keys
            self._unreported = 0

    def _rules(self) -> OpsTaskInfo:
        flow = self._member.flow
        rules = OpsTaskInfo()
        if flow.default_id >= 0:
            rules.defFlowCheckId = flow.default_id
        if flow.group_id >= 0:
            rules.groupFlowCheckId = flow.group_id
        if flow.priority >= 0:
            rules.qryPriorityId = flow.priority
        return rules

    async def _register_at(self, master: Address) -> None:
        member = self._member
        request = RegisterRequestC2MV2(
            clientId=member.client_id,
            groupName=member.group,
            hostName=member.host,
            sourceCount=self._source_count,
            nodeId=self._node_id,
            topicList=member.subscription.topics,
            topicCondition=member.subscription.conditions,
            opsTaskInfo=self._rules(),
            authInfo=member.identity.for_master(),
        )
        keys = self._report(request.subRepInfo, is_new=True)
        answer = await member.ask(
            master, Method.CONSUMER_REGISTER_V2_C2M, request, RegisterResponseM2CV2
        )
        accepted(answer.errCode == Code.SUCCESS, answer, master)
        self._was_reported(keys)
        self._learn(answer, master)

    async def _beat_at(self, master: Address) -> None:
        member = self._member
        request = HeartRequestC2MV2(
            clientId=member.client_id,
            groupName=member.group,
            opsTaskInfo=self._rules(),
            authInfo=member.identity.for_master(),
        )
        keys = self._report(request.subRepInfo)
        answer = await member.ask(
            master, Method.CONSUMER_HEARTBEAT_V2_C2M, request, HeartResponseM2CV2
        )
        accepted(answer.errCode == Code.SUCCESS, answer, master)
        self._was_reported(keys)
        self._learn(answer, master)

    async def ask_metadata(self) -> None:
        """Query the partitions. Raises the error of the master."""
        member, master = self._member, self._masters.current
        request = GetPartMetaRequestC2M(
            clientId=member.client_id,
            groupName=member.group,
            brokerConfigId=self.metadata.broker_id,
            topicMetaInfoId=self.metadata.topic_id,
            authInfo=member.identity.for_master(),
        )
        answer = await member.ask(
            master, Method.CONSUMER_GET_PART_META_C2M, request, GetPartMetaResponseM2C
        )
        accepted(answer.errCode == Code.SUCCESS, answer, master)
        self.metadata.take(answer, master)
        self.asked = asyncio.get_running_loop().time()

    def _learn(self, answer: RegisterResponseM2CV2 | HeartResponseM2CV2, master: Address) -> None:
        flow, rules = self._member.flow, answer.opsTaskInfo
        if answer.HasField("authorizedInfo"):
            self._member.identity.learn(answer.authorizedInfo)
        if rules.HasField("defFlowCheckId"):
            flow.update_default(rules.defFlowCheckId, rules.defFlowControlInfo)
        if rules.HasField("groupFlowCheckId"):
            flow.update_group(rules.groupFlowCheckId, rules.groupFlowControlInfo)
        if rules.HasField("qryPriorityId"):
            flow.priority = rules.qryPriorityId
        self.metadata.take(answer, master)
        if isinstance(answer, HeartResponseM2CV2) and answer.HasField("topicMetaInfoId"):
            self.asked = asyncio.get_running_loop().time()


class TubeBalanceConsumer(TubeReader):
    """A member of a group whose members select their partitions. An async context manager.

        async with TubeBalanceConsumer(masters, "reports", ["orders"], node=(3, 0)) as consumer:
            for key in sorted(await consumer.partitions())[0::3]:
                await consumer.connect(key)
            async for message in consumer:
                ...

    Like `TubeConsumer`, except for the partitions: `partitions` lists them, `connect` and
    `disconnect` select them. `node` is the number of members of the group, and the index of this
    one from 0 on; the master refuses a second member with that index, and members with a different
    count. Without it nothing is checked. Bound consumption is not supported.
    """

    kind = "Balance"

    _link: BalanceLink

    def __init__(
        self,
        masters: str | Sequence[str],
        group: str,
        topics: Topics,
        options: TubeConsumerOptions | None = None,
        *,
        node: tuple[int, int] | None = None,
        service: TubeService | None = None,
        **keywords: Unpack[TubeConsumerKeywords],
    ) -> None:
        """See the class. Raises ClientError for invalid arguments."""
        if node is not None and not 0 <= node[1] < node[0]:
            raise ClientError(f"invalid index {node[1]} of {node[0]} members: they count from 0 on")
        self._place = node or (UNDEFINED, UNDEFINED)
        super().__init__(masters, group, topics, options, service=service, **keywords)
        if self._options.bound is not None:
            raise ClientError("a consumer that chooses its partitions is not bound")
        self._asking: asyncio.Lock = asyncio.Lock()
        self._changing: dict[str, asyncio.Lock] = {}  # serializes changes of a partition
        self._refused: dict[str, float] = {}

    def _make_link(self) -> ConsumerLink:
        return BalanceLink(self._member, self._masters, self._table, self._place, self._expire)

    async def partitions(self) -> dict[str, bool]:
        """Return the partitions of the topics by key, each with whether it is readable now.

        The master is queried at most every ten seconds. Partitions that are no longer readable are
        given back. Raises the errors of the query.
        """
        self._check_running()
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._link.asked >= METADATA_SECONDS:
                await self._link.ask_metadata()
        known = self._link.metadata.partitions
        closed = [held.key for held in self._table if not known.get(held.key, (None, False))[1]]
        if closed:
            log.warning("partitions are no longer readable: %s", ", ".join(closed))
            await asyncio.gather(*map(self._disconnect, closed))
        return {key: subscribable for key, (_, subscribable) in known.items()}

    async def connect(self, key: str, offset: int = UNDEFINED) -> None:
        """Start to read a partition at an offset; by default at the group's committed offset.

        Does nothing if it is read already. Raises TubeError: NothingToRead (404) for a partition
        that `partitions` did not return, 422 for one that is not readable, 410 for one that another
        client has, 421 for a retry that is too early after that; and the errors of the broker.
        """
        self._check_running()
        name = str(self._key(key))
        async with self._changing.setdefault(name, asyncio.Lock()):
            if name not in self._table:
                await self._connect(name, offset)

    def _key(self, key: str) -> PartitionKey:
        try:
            return PartitionKey.parse(key)
        except MalformedText as error:
            raise for_code(Code.BAD_REQUEST, str(error)) from None

    async def _connect(self, key: str, offset: int) -> None:
        found = self._link.metadata.partitions.get(key)
        if found is None:
            raise for_code(Code.NOT_FOUND, f"{key} is not among the partitions of the topics")
        partition, subscribable = found
        if not subscribable:
            raise for_code(Code.PARTITION_UNSUBSCRIBABLE, f"{key} may not be read now")
        now = asyncio.get_running_loop().time()
        if now - self._refused.get(key, now - REFUSED_SECONDS) < REFUSED_SECONDS:
            text = f"{key} was refused less than {REFUSED_SECONDS:g} s ago"
            raise for_code(Code.CLIENT_HIGH_FREQUENCY_REQUEST, text)
        for attempt in range(1, _CONNECT_TRIES + 1):
            if self._state != "running":
                raise for_code(Code.CLIENT_STOPPED, "the consumer is closed")
            try:
                await self._handing.take(partition, offset)
            except MQError as error:
                code = getattr(error, "code", None)
                if code in (Code.PARTITION_OCCUPIED, Code.CERTIFICATE_FAILURE):
                    self._refused[key] = asyncio.get_running_loop().time()
                    raise
                if attempt == _CONNECT_TRIES:
                    raise
                log.warning("%s was not registered, try %d: %s", key, attempt, error)
                await asyncio.sleep(_CONNECT_PAUSE_SECONDS)
            else:
                self._refused.pop(key, None)
                return

    async def disconnect(self, key: str) -> None:
        """Stop reading a partition. Does nothing if it is not read.

        Unconfirmed messages are waited for as when a master takes the partition away.
        """
        self._check_running()
        await self._disconnect(str(self._key(key)))

    async def _disconnect(self, name: str) -> None:
        async with self._changing.setdefault(name, asyncio.Lock()):
            await self._handing.give_back([name], self._options.rebalance_wait)
