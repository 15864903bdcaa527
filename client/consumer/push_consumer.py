"""Consumers to which snodes push messages as soon as brokers have stored them."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Unpack, cast

from mq.client.consumer.consumer import Consumer
from mq.client.consumer.options import ConsumeKeywords, ConsumeOptions
from mq.client.consumer.requests import ConsumerRequests, serve_also
from mq.client.errors import ClientError
from mq.client.machine import clock
from mq.client.options import ClientOptions
from mq.client.pull.subscription import TAG
from mq.client.snode.session import SnodeSession
from mq.client.transport.session import Session
from mq.protocol.bodies import ConsumeType, HeartbeatData, MessageQueue
from mq.protocol.codes import SnodeCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.snode import PushMessageHeader
from mq.protocol.message import decode_record
from mq.protocol.names import RETRY_PREFIX

log = logging.getLogger(__name__)


class PushConsumer(Consumer):
    """A `Consumer` that connects to snodes, which push the messages sent through them.

        async with PushConsumer("127.0.0.1:9876", "billing", {"Orders": "*"}) as consumer:
            async for message in consumer:
                ...

    Push only reduces latency: messages that are not pushed are pulled, in the same order, without
    gaps or duplicates. The members of a group can be push and pull consumers. Messages of SQL92
    subscriptions and of the retry topic are always pulled. Offsets are stored at the brokers, which
    is how snodes detect a slow consumer; `broadcasting` is not supported.
    """

    consume_type = ConsumeType.CONSUME_PUSH

    def __init__(
        self,
        session: Session | str | Sequence[str],
        group: str,
        subscriptions: Mapping[str, str],
        options: ConsumeOptions | None = None,
        *,
        client: ClientOptions | None = None,
        **keywords: Unpack[ConsumeKeywords],
    ) -> None:
        """See `Consumer`. A given session must be one that connects to snodes.

        Also raises ClientError for `broadcasting` and for a custom store of `offsets`.
        """
        given = cast("dict[str, Any]", keywords)
        given["snode"] = True
        super().__init__(session, group, subscriptions, options, client=client, **given)
        self._member.complete = self._add_queues
        self._beat_due = False
        self._lost_at = -inf  # by the monotonic clock

    def _check(self, options: ConsumeOptions) -> None:
        if options.broadcasting or options.offsets is not None:
            raise ClientError(
                "a PushConsumer keeps its offsets at the brokers: use a Consumer for broadcasting, "
                "or with offsets of your own"
            )

    def _make_requests(self) -> ConsumerRequests:
        requests = super()._make_requests()
        requests.handlers[SnodeCode.PUSH_MESSAGE] = self._pushed
        return requests

    async def _begin(self) -> None:
        serve_also(self.session, SnodeCode.PUSH_MESSAGE)
        self.reader.on_change = self._changed
        if isinstance(self.session, SnodeSession):
            self.session.on_lost.append(self._lost)
        await super()._begin()

    async def _close(self, grace: float) -> None:
        if isinstance(self.session, SnodeSession) and self._lost in self.session.on_lost:
            self.session.on_lost.remove(self._lost)
        await super()._close(grace)

    def _pushed(self, request: Command, address: str) -> None:
        """Accept a pushed message (ClientRemotingProcessor.processPushMessage)."""
        header = PushMessageHeader.decode(request.fields)
        queue = MessageQueue(header.topic, header.enode_name or "", header.queue_id)
        try:
            message = decode_record(request.body, check_crc=True)
        except RemoteProtocolError as error:
            log.warning("%s: %s pushed a damaged message: %s", queue, address, error,
                        extra={"failure": "pushed messages"})  # fmt: skip
            self.reader.pull_soon(queue)
            return
        if (message.topic, message.queue_id, message.queue_offset) == (
            *(header.topic, header.queue_id),
            header.queue_offset,
        ):
            self.reader.offer(queue, message)

    def _lost(self) -> None:
        """Handle the end of a connection by a snode, which has evicted this client, perhaps as a
        slow consumer.
        """
        now = clock.monotonic()
        if now - self._lost_at >= 1.0:  # otherwise the heartbeats' check each second suffices
            self._lost_at = now
            self._changed()

    def _changed(self) -> None:
        """Schedule a heartbeat after the assigned queues changed: snodes push only messages of
        these.
        """
        if not self._beat_due:  # once for all topics of a rebalance
            self._beat_due = True
            self.session.keep_task(self._send_heartbeat())

    async def _send_heartbeat(self) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            self._beat_due = False
        if self._closing:
            return
        try:
            await self._member.heartbeats.beat()
        except Exception:
            log.exception("group %s: cannot report changed queues to the snodes", self.group)

    def _add_queues(self, heartbeat: HeartbeatData) -> None:
        """Add the queues whose messages are to be pushed."""
        queues: dict[str, set[MessageQueue]] = defaultdict(set)
        for queue in self.reader.held:
            queues[queue.topic].add(queue)
        for consumer in heartbeat.consumer_data_set:
            for subscription in consumer.subscription_data_set:
                topic = subscription.topic
                wanted = subscription.expression_type == TAG and not topic.startswith(RETRY_PREFIX)
                subscription.message_queue_set = queues[topic] if wanted else set()
