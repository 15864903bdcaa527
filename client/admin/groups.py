"""Administrative calls for producer and consumer groups."""

from __future__ import annotations  # bodies and headers are loaded only when a call needs them

from collections.abc import Iterable, Sequence

from mq.client.admin.base import AdminBase, read
from mq.client.errors import ConsumerNotOnline, MQError, RouteNotFound
from mq.protocol import bodies, headers
from mq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.names import retry_topic

# A broker forwards these requests to a client and waits for its answer (DefaultMQAdminExtImpl).
_RELAYED_SECONDS = 15.0
_OR_NO_GROUP = frozenset(
    (int(ResponseCode.SUCCESS), int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST))
)


class GroupAdmin(AdminBase):
    """Groups: settings, members, progress."""

    async def update_subscription_group(
        self, address: str, config: bodies.SubscriptionGroupConfig
    ) -> None:
        """Create or change a consumer group on the broker at `address`."""
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._ask(address, code, config.encode())

    async def update_subscription_groups(
        self, address: str, configs: Sequence[bodies.SubscriptionGroupConfig]
    ) -> None:
        """Create or change several groups at once. Requires a broker of release 5."""
        body = bodies.SubscriptionGroupList(group_config_list=list(configs))
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        await self._ask(address, code, body.encode())

    async def set_message_request_mode(
        self, address: str, topic: str, group: str, mode: bodies.MessageRequestMode, share: int = 0
    ) -> None:
        """Let `group` pull or pop `topic`, with `share` queues per member. Requires release 5."""
        body = bodies.SetMessageRequestModeRequestBody(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=share
        )
        await self._ask(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body.encode())

    async def export_pop_records(self, address: str, *, timeout: float | None = None) -> None:
        """Let the broker at `address` write its unacknowledged popped messages to its log, where
        older releases find them. Requires release 5.4.
        """
        await self._ask(address, RequestCode.POP_ROLLBACK, timeout=timeout)

    async def delete_subscription_group(
        self, address: str, group: str, *, clean_offset: bool = False
    ) -> None:
        """Delete a consumer group from the broker at `address`; with `clean_offset` also its
        offsets.
        """
        header = headers.DeleteSubscriptionGroupRequestHeader(
            group_name=group,
            clean_offset=clean_offset,
            remove_offset=clean_offset or None,  # the name in 4.9
        )
        await self._ask(address, header)

    async def subscription_groups(self, address: str) -> bodies.SubscriptionGroupWrapper:
        """Return the settings of every consumer group on the broker at `address`."""
        response = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return read(bodies.SubscriptionGroupWrapper.decode, response.body, address)

    async def subscription_group(
        self, address: str, group: str
    ) -> bodies.SubscriptionGroupConfig | None:
        """Return a consumer group's settings on the broker at `address` (5.x); None if it has none.

        A broker that lets clients create groups (autoCreateSubscriptionGroup) creates the group.
        """
        header = headers.GetSubscriptionGroupConfigRequestHeader(group=group)
        response = await self._ask(address, header, accept=_OR_NO_GROUP)
        if response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            return None
        return read(bodies.SubscriptionGroupConfig.decode, response.body, address)

    async def consumer_connection(self, address: str, group: str) -> bodies.ConsumerConnection:
        """Return the connected members of `group` at the broker at `address`, and their
        subscriptions.

        Raises ConsumerNotOnline if there is none.
        """
        header = headers.GetConsumerConnectionListRequestHeader(consumer_group=group)
        response = await self._ask(address, header)
        connection = read(bodies.ConsumerConnection.decode, response.body, address)
        if not connection.connection_set:
            raise ConsumerNotOnline(f"no consumer of group {group} is connected", address)
        return connection

    async def group_connection(self, group: str) -> bodies.ConsumerConnection:
        """Call `consumer_connection` at a broker that has the group's retry topic.

        Without such a topic, the first broker that knows members answers.
        """
        try:
            address = await self._any_broker_of(retry_topic(group))
        except RouteNotFound:
            return await self._connection_at_any(group)
        return await self.consumer_connection(address, group)

    async def _connection_at_any(self, group: str) -> bodies.ConsumerConnection:
        absent: MQError = ConsumerNotOnline(f"no consumer of group {group} is connected", "")
        for address in await self._every_broker():
            try:
                return await self.consumer_connection(address, group)
            except ConsumerNotOnline as error:
                absent = error
        raise absent

    async def producer_connection(self, address: str, group: str) -> bodies.ProducerConnection:
        """Return the producers of `group` connected to the broker at `address`.

        Raises NoneThere if there is none.
        """
        header = headers.GetProducerConnectionListRequestHeader(producer_group=group)
        response = await self._ask(address, header)
        return read(bodies.ProducerConnection.decode, response.body, address)

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Return the client ids of the members of `group` that the broker at `address` knows.

        Raises NoneThere if there is none.
        """
        header = headers.GetConsumerListByGroupRequestHeader(consumer_group=group)
        response = await self._ask(address, header)
        body = read(bodies.GetConsumerListByGroupResponseBody.decode, response.body, address)
        return body.consumer_id_list

    async def consume_stats(
        self, address: str, group: str, topic: str | None = None
    ) -> bodies.ConsumeStats:
        """Return the progress of `group` at the broker at `address`, of all topics or the given
        one.
        """
        header = headers.GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        response = await self._ask(address, header)
        return read(bodies.ConsumeStats.decode, response.body, address)

    async def whole_consume_stats(
        self, group: str, topic: str | None = None
    ) -> bodies.ConsumeStats:
        """Return the combined `consume_stats` of the brokers that have the group's retry topic, or
        of all brokers if there is no such topic.
        """
        try:
            addresses = await self._brokers_of(retry_topic(group))
        except RouteNotFound:
            addresses = await self._every_broker()
        parts = await self.session.all([self.consume_stats(a, group, topic) for a in addresses])
        whole = parts[0]
        for part in parts[1:]:
            whole.offset_table.update(part.offset_table)
            whole.consume_tps += part.consume_tps
        return whole

    async def consumer_running_info(
        self, address: str, group: str, client_id: str, *, stacks: bool = False
    ) -> bodies.ConsumerRunningInfo:
        """Return a consumer's own status report, requested through the broker at `address`."""
        header = headers.GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=stacks
        )
        response = await self._ask(address, header, timeout=_RELAYED_SECONDS)
        return read(bodies.ConsumerRunningInfo.decode, response.body, address)

    async def consumer_status(
        self, address: str, topic: str, group: str, client_id: str | None = None
    ) -> bodies.GetConsumerStatusBody:
        """Return the offsets of consumers of `group`, requested through the broker at `address`."""
        header = headers.GetConsumerStatusRequestHeader(
            topic=topic, group=group, client_addr=client_id
        )
        response = await self._ask(address, header, timeout=_RELAYED_SECONDS)
        return read(bodies.GetConsumerStatusBody.decode, response.body, address)

    async def reset_offset(
        self,
        address: str,
        topic: str,
        group: str,
        timestamp: int,
        *,
        force: bool = True,
        for_cpp: bool = False,
    ) -> dict[bodies.MessageQueue, int]:
        """Move `group` to its offsets at `timestamp` (ms; -1: the end) in `topic`, and return them.

        Without `force` offsets are only moved back. `for_cpp` notifies consumers in the format that
        C++ clients read. Raises ConsumerNotOnline if no member is connected.
        """
        header = headers.ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp=timestamp, is_force=force
        )
        request = Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header.encode())
        if for_cpp:
            request.language = LanguageCode.CPP
        response = await self.session.call(address, request, _RELAYED_SECONDS)
        return read(bodies.ResetOffsetBody.decode, response.body, address).offset_table

    async def reset_queue(
        self, address: str, topic: str, group: str, queue_id: int, offset: int
    ) -> None:
        """Move `group` to an offset of one queue, whether members are connected or not (5.x
        brokers).

        An older broker ignores the queue id: it would reset the whole topic.
        """
        header = headers.ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp=0, queue_id=queue_id, offset=offset
        )
        await self._ask(address, header, timeout=_RELAYED_SECONDS)

    async def lock_queues(
        self, address: str, group: str, client_id: str, queues: Iterable[bodies.MessageQueue]
    ) -> set[bodies.MessageQueue]:
        """Lock queues of the broker at `address` for one client; returns those that it holds
        now.
        """
        body = bodies.LockBatchRequestBody(
            consumer_group=group, client_id=client_id, mq_set=set(queues)
        )
        response = await self._ask(address, RequestCode.LOCK_BATCH_MQ, body.encode())
        return read(bodies.LockBatchResponseBody.decode, response.body, address).lock_ok_mq_set

    async def unlock_queues(
        self, address: str, group: str, client_id: str, queues: Iterable[bodies.MessageQueue]
    ) -> None:
        """Release locks of queues at the broker at `address`."""
        body = bodies.UnlockBatchRequestBody(
            consumer_group=group, client_id=client_id, mq_set=set(queues)
        )
        await self._ask(address, RequestCode.UNLOCK_BATCH_MQ, body.encode())
