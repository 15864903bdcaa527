"""Registration, heartbeats, commits and removal of consumers (methods 15, 16 and 18)."""

import logging

from mq.daemons.tube.broker.access import RequestError, refuse_later
from mq.daemons.tube.broker.consumers import Consumer, TooManyConsumers, partition_name
from mq.daemons.tube.broker.offsets import TooManyOffsets
from mq.daemons.tube.broker.serving import Serving, client_id, group_name
from mq.daemons.tube.rpc import Answer, Call
from mq.protocol.tube.codes import UNDEFINED, Code, OpType, ReadStatus
from mq.protocol.tube.errors import IllegalName, MalformedText
from mq.protocol.tube.messages import (
    CommitOffsetRequestC2B,
    CommitOffsetResponseB2C,
    HeartBeatRequestC2B,
    HeartBeatResponseB2C,
    RegisterRequestC2B,
    RegisterResponseB2C,
)
from mq.protocol.tube.names import MAX_SESSION_KEY, check_filter_items
from mq.protocol.tube.strings import Partition

log = logging.getLogger(__name__)


class Registrations:
    """Answers these; the order of checks is BrokerServiceServer's."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def timed_out(self, consumer: Consumer) -> None:
        """Discard the pending part of an expired consumer: its messages are read again."""
        key = consumer.topic, consumer.partition
        self._serving.offsets.commit(consumer.group, key, consumed=False)
        log.info("consumer %s of %s has expired", consumer.client_id, consumer.name)

    # 15 ---------------------------------------------------------------------------------------

    def register(self, call: Call) -> Answer | None:
        """Register a consumer at a partition, or unregister it."""
        try:
            return self._register(call.message, call.peer)
        except RequestError as denied:
            answer = RegisterResponseB2C(
                success=False, errCode=denied.code, errMsg=str(denied), currOffset=-1
            )
            return refuse_later(call, denied, answer)

    def _register(self, message: RegisterRequestC2B, peer: str) -> RegisterResponseB2C:
        serving = self._serving
        self._need_start()
        serving.access.check(message.authInfo, produces=False)
        client = client_id(message.clientId)
        topic = serving.need_topic(message.topicName)
        group = group_name(message.groupName)
        key = group, topic.name, message.partitionId
        if message.opType == OpType.REGISTER:
            return self._come(message, client, key, peer)
        if message.opType == OpType.UNREGISTER:
            return self._go(message, client, key)
        raise RequestError(Code.BAD_REQUEST, f"Invalid request:{message.opType}")

    def _come(
        self, message: RegisterRequestC2B, client: str, key: tuple[str, str, int], peer: str
    ) -> RegisterResponseB2C:
        serving = self._serving
        group, name, partition = key
        other = serving.consumers.get(*key)
        if other is not None and other.client_id != client:
            raise self._occupied(other)
        try:
            filters = check_filter_items(message.filterCondStr)
        except IllegalName as error:
            raise RequestError(Code.BAD_REQUEST, str(error)) from None
        serving.access.check_rights(group, name, filters)
        store = serving.need_store(serving.topics[name], partition)
        requested = message.currOffset if message.HasField("currOffset") else -1
        status = message.readStatus if message.readStatus in tuple(ReadStatus) else 1
        store.write_cached()
        bounds = store.min_index, store.max_index
        try:
            consumer = serving.consumers.register(
                client,
                key,
                peer,
                filters,
                message.qryPriorityId if message.HasField("qryPriorityId") else UNDEFINED,
                (message.sessionKey[:MAX_SESSION_KEY], message.sessionTime),
            )
            try:  # last: a refused client must not change offsets
                offset = serving.offsets.register(
                    group, (name, partition), status, requested, bounds
                )
            except TooManyOffsets:
                serving.consumers.remove(consumer)
                raise
        except (TooManyConsumers, TooManyOffsets) as many:
            raise RequestError(Code.SERVICE_UNAVAILABLE, str(many)) from None
        log.info("consumer %s has %s from %d on", client, partition_name(*key), offset)
        return RegisterResponseB2C(
            success=True,
            errCode=Code.SUCCESS,
            errMsg="OK!",
            currOffset=offset,
            maxOffset=store.max_index,
        )

    def _occupied(self, other: Consumer) -> RequestError:
        """Return the error for a client if another one has the partition; an expired one is
        removed.
        """
        if self._serving.consumers.is_over(other):
            self._serving.consumers.remove(other)
            self.timed_out(other)
            text = f"[Duplicated Register] Remove Invalid Consumer Register {other.client_id}#"
        else:
            text = f"[Duplicated Register] Partition {self._serving.broker_id}#"
            return RequestError(
                Code.PARTITION_OCCUPIED,
                f"{text}{other.name} has been registered by {other.client_id}",
            )
        return RequestError(Code.PARTITION_OCCUPIED, f"{text}{other.name}")

    def _go(
        self, message: RegisterRequestC2B, client: str, key: tuple[str, str, int]
    ) -> RegisterResponseB2C:
        serving = self._serving
        group, topic, partition = key
        consumer = serving.consumers.get(*key)
        if consumer is None:
            raise RequestError(
                Code.HB_NO_NODE, f"UnRegistered Consumer {client}, you have to register firstly!"
            )
        if consumer.client_id != client:
            raise RequestError(
                Code.DUPLICATE_PARTITION,
                f"[Duplicated Request]Partition {consumer.name} has been consumed by "
                f"{consumer.client_id};Current consumer {client}, broker={serving.host}",
            )
        consumed = message.readStatus == ReadStatus.NORMAL
        serving.offsets.commit(group, (topic, partition), consumed=consumed)
        serving.consumers.remove(consumer)
        log.info("consumer %s leaves %s", client, consumer.name)
        return RegisterResponseB2C(success=True, errCode=Code.SUCCESS, errMsg="OK!", currOffset=-1)

    # 16 ---------------------------------------------------------------------------------------

    def heartbeat(self, call: Call) -> Answer | None:
        """Renew a consumer's registrations; the answer lists those that it does not have."""
        try:
            return self._heartbeat(call.message)
        except RequestError as denied:
            answer = HeartBeatResponseB2C(success=False, errCode=denied.code, errMsg=str(denied))
            return refuse_later(call, denied, answer)

    def _heartbeat(self, message: HeartBeatRequestC2B) -> HeartBeatResponseB2C:
        serving = self._serving
        self._need_start()
        serving.access.check(message.authInfo, produces=False)
        client = client_id(message.clientId)
        group = group_name(message.groupName)
        priority = message.qryPriorityId if message.HasField("qryPriorityId") else UNDEFINED
        failures = []
        for text in message.partitionInfo:
            try:
                partition = Partition.parse(text)
            except MalformedText:
                continue  # DataConverterUtil.convertPartitionInfo leaves them out
            consumer = serving.consumers.get(group, partition.topic, partition.partition_id)
            if consumer is None:
                failures.append(f"{Code.HB_NO_NODE:d}:{partition}")
            elif consumer.client_id != client:
                failures.append(f"{Code.DUPLICATE_PARTITION:d}:{partition}")
            elif not serving.consumers.renew(consumer):
                failures.append(f"{Code.HB_NO_NODE:d}:{partition}")
            else:
                consumer.priority = priority
        return HeartBeatResponseB2C(
            success=True,
            errCode=Code.SUCCESS,
            errMsg="OK!",
            hasPartFailure=bool(failures),
            failureInfo=failures,
            requireAuth=False,
        )

    # 18 ---------------------------------------------------------------------------------------

    def commit(self, call: Call) -> CommitOffsetResponseB2C:
        """Commit the pending part, or discard it."""
        try:
            return self._commit(call.message, call.host)
        except RequestError as denied:
            return CommitOffsetResponseB2C(
                success=False, errCode=denied.code, errMsg=str(denied), currOffset=-1
            )

    def _commit(self, message: CommitOffsetRequestC2B, host: str) -> CommitOffsetResponseB2C:
        serving = self._serving
        self._need_start()
        client = client_id(message.clientId)
        group = group_name(message.groupName)
        partition = message.partitionId
        topic, store = serving.need_partition(message.topicName, partition)
        consumer = serving.consumers.get(group, topic.name, partition)
        if consumer is None:
            raise RequestError(Code.UNAUTHORIZED, "The partition not registered by consumers")
        if consumer.client_id != client:
            raise RequestError(
                Code.UNAUTHORIZED,
                f"The partition has been registered by other consumer: {consumer.client_id}",
            )
        serving.access.check_origin(consumer.address, host)
        consumed = not message.HasField("lastPackConsumed") or message.lastPackConsumed
        offset = serving.offsets.commit(group, (topic.name, partition), consumed=consumed)
        return CommitOffsetResponseB2C(
            success=True,
            errCode=Code.SUCCESS,
            errMsg="OK!",
            currOffset=offset,
            maxOffset=store.max_index,
        )

    def _need_start(self) -> None:
        if not self._serving.is_started:
            raise RequestError(Code.SERVICE_UNAVAILABLE, "StoreService temporary unavailable!")
