"""A consumer's requests to brokers: registration, heartbeats, messages, commits."""

from mq.client.errors import BadAnswer
from mq.client.tube.decoding import GetAnswer, decode_get_answer
from mq.client.tube.membership import Membership, accepted
from mq.client.tube.message import ConsumedOffset
from mq.client.tube.options import ConsumeFrom
from mq.client.tube.partitions import RegisteredPartition
from mq.protocol.tube.codes import UNDEFINED, Method, OpType, ReadStatus
from mq.protocol.tube.errors import MalformedRpc
from mq.protocol.tube.messages import (
    CommitOffsetRequestC2B,
    CommitOffsetResponseB2C,
    GetMessageRequestC2B,
    HeartBeatRequestC2B,
    HeartBeatResponseB2C,
    RegisterRequestC2B,
    RegisterResponseB2C,
)
from mq.protocol.tube.strings import BrokerInfo, Partition

_FIRST_STATUS = {
    ConsumeFrom.FIRST: ReadStatus.NORMAL,
    ConsumeFrom.LATEST: ReadStatus.FROM_MAX,
    ConsumeFrom.LATEST_ALWAYS: ReadStatus.FROM_MAX_ALWAYS,
}


class BrokerCalls:
    """The requests of one consumer to brokers.

    All raise ConnectError, RequestTimeout, BadAnswer, and TubeError if a broker refuses.
    """

    def __init__(self, member: Membership) -> None:
        self._member = member
        self._registered: set[str] = set()  # keys of partitions that were registered before

    async def register(self, partition: Partition, offset: int = UNDEFINED) -> ConsumedOffset:
        """Register a partition, and start at an offset, if one is given.

        The first time that this consumer registers it, the broker is told where a new group starts.
        Later it is the group's committed offset, as in Java (RmtDataCache.bookPartition); the C++
        client requests the end each time, and skips messages that arrived while it was away if
        nothing was committed.
        """
        member, key = self._member, str(partition.key)
        status = ReadStatus.NORMAL
        if key not in self._registered:
            status = _FIRST_STATUS[member.options.consume_from]
        request = self._registration(OpType.REGISTER, partition, status)
        request.qryPriorityId = member.flow.priority
        request.filterCondStr.extend(member.subscription.filter_items(partition.topic))
        if offset >= 0:
            request.currOffset = offset
        address = partition.broker.address
        answer = await member.ask(
            address, Method.CONSUMER_REGISTER_C2B, request, RegisterResponseB2C
        )
        accepted(answer.success, answer, address)
        self._registered.add(key)
        return ConsumedOffset(
            answer.currOffset if answer.HasField("currOffset") else UNDEFINED,
            answer.maxOffset if answer.HasField("maxOffset") else UNDEFINED,
        )

    async def unregister(self, partition: Partition, *, consumed: bool) -> None:
        """Unregister a partition; with `consumed` the last received messages are committed.

        As in Java; the C++ client never commits them.
        """
        status = ReadStatus.NORMAL if consumed else ReadStatus.FROM_MAX
        request = self._registration(OpType.UNREGISTER, partition, status)
        address = partition.broker.address
        answer = await self._member.ask(
            address, Method.CONSUMER_REGISTER_C2B, request, RegisterResponseB2C
        )
        accepted(answer.success, answer, address)

    def _registration(
        self, kind: OpType, partition: Partition, status: ReadStatus
    ) -> RegisterRequestC2B:
        member = self._member
        return RegisterRequestC2B(
            opType=kind,
            clientId=member.client_id,
            groupName=member.group,
            topicName=partition.topic,
            partitionId=partition.partition_id,
            readStatus=status,
            authInfo=member.identity.for_broker(),
        )

    async def heartbeat(
        self, broker: BrokerInfo, held: list[RegisteredPartition]
    ) -> HeartBeatResponseB2C:
        """Keep partitions alive; the answer lists those that this consumer has lost."""
        member = self._member
        request = HeartBeatRequestC2B(
            clientId=member.client_id,
            groupName=member.group,
            readStatus=ReadStatus.NORMAL,
            partitionInfo=[str(one.partition) for one in held],
            qryPriorityId=member.flow.priority,
            authInfo=member.identity.for_broker(),
        )
        address = broker.address
        answer = await member.ask(
            address, Method.CONSUMER_HEARTBEAT_C2B, request, HeartBeatResponseB2C
        )
        accepted(answer.success, answer, address)
        return answer

    async def get(self, partition: Partition, *, consumed: bool, limited: bool) -> GetAnswer:
        """Request messages; `consumed` says whether the previous ones are. Refusals are returned.

        `limited` leaves the rate limit of the group to this client.
        """
        member = self._member
        request = GetMessageRequestC2B(
            clientId=member.client_id,
            partitionId=partition.partition_id,
            groupName=member.group,
            topicName=partition.topic,
            lastPackConsumed=consumed,
            manualCommitOffset=False,
            escFlowCtrl=limited,
        )
        address = partition.broker.address
        data = await member.ask_bytes(address, Method.GET_MESSAGES_C2B, request)
        topic = partition.topic
        try:
            return decode_get_answer(data, topic, member.subscription.wanted(topic))
        except MalformedRpc as error:
            raise BadAnswer(str(address), str(error)) from None

    async def commit(self, partition: Partition, *, consumed: bool) -> ConsumedOffset:
        """Commit the last received messages, or have them redelivered if not `consumed`."""
        member = self._member
        request = CommitOffsetRequestC2B(
            clientId=member.client_id,
            topicName=partition.topic,
            partitionId=partition.partition_id,
            groupName=member.group,
            lastPackConsumed=consumed,
        )
        address = partition.broker.address
        answer = await member.ask(
            address, Method.CONSUMER_COMMIT_C2B, request, CommitOffsetResponseB2C
        )
        accepted(answer.success, answer, address)
        return ConsumedOffset(
            answer.currOffset if answer.HasField("currOffset") else UNDEFINED,
            answer.maxOffset if answer.HasField("maxOffset") else UNDEFINED,
        )
