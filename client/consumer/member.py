"""Membership in a consumer group: a part of `Consumer` and `LitePullConsumer`."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from mq.client.consumer.options import MemberOptions
from mq.client.machine import clock
from mq.client.namespace import with_namespace
from mq.client.offsets.offset_store import Offsets
from mq.client.offsets.starting_offset import StartingOffset
from mq.client.options import DEFAULT_INTERVALS, ClientOptions
from mq.client.pull.consume_hooks import ConsumeHooks
from mq.client.pull.filter_classes import FilterUploads
from mq.client.pull.process_queue import ProcessQueue
from mq.client.pull.subscription import Subscriptions
from mq.client.reader.reader import Reader
from mq.client.reader.settings import ReaderSettings
from mq.client.transport.heartbeat import Heartbeats
from mq.client.transport.session import Session
from mq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
)
from mq.protocol.message import StoredMessage
from mq.protocol.names import check_group


class Member:
    """One member of a group: its session, subscriptions, heartbeats and filter classes.

    Its owner decides when it joins and leaves, and registers its end with `keep`.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Mapping[str, str],
        options: MemberOptions,
        client: ClientOptions,
        consume_type: ConsumeType,
        *,
        owns_session: bool,
        retries: bool,
        broadcasting: bool = False,
    ) -> None:
        """With `retries` it subscribes to the group's retry topic, too; with `owns_session` it
        closes the session. Raises IllegalName and what `Subscriptions` raises.
        """
        self.session = session
        self.client = client
        self.namespace = namespace = client.namespace
        self.group = check_group(with_namespace(namespace, check_group(group)))
        self.subscriptions = Subscriptions(
            self.group,
            subscriptions,
            options.expression_type,
            namespace=namespace,
            retries=retries,
        )
        self.consume_type = consume_type
        #: Completes each heartbeat before it is sent.
        self.complete: Callable[[HeartbeatData], None] = lambda heartbeat: None
        self.started = 0.0  # seconds since 1970
        self._owns_session = owns_session
        self._broadcasting = broadcasting
        self._options = options
        interval = client.intervals.heartbeats
        self.heartbeats = Heartbeats(session, self.describe, replicas=True, interval=interval)
        self._uploads = FilterUploads(session, self.group, self.subscriptions.filters, interval)
        self._background: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Open the session. The member joins its group later, with `join`."""
        await self.session.open()
        self.started = clock.time()

    async def join(self) -> None:
        """Register with brokers, and its classes with filter servers; starts the periodic
        updates.
        """
        await self.heartbeats.beat()
        self.keep(self.heartbeats.run())
        if self.subscriptions.filters:
            await self._uploads.upload()
            self.keep(self._uploads.run())

    def keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task until `cancel`."""
        self._background.append(self.session.keep_task(coroutine))

    def cancel(self) -> None:
        """Cancel the periodic updates."""
        for task in self._background:
            task.cancel()
        self._background = []

    async def leave(self) -> None:
        """Unregister at the brokers that received heartbeats."""
        await self.heartbeats.unregister(consumer_group=self.group)

    async def close(self) -> None:
        """Close the session if the member owns it."""
        if self._owns_session:
            await self.session.close()

    def make_reader(
        self,
        offsets: Offsets,
        settings: ReaderSettings,
        hooks: ConsumeHooks | None,
        *,
        on_ready: Callable[[ProcessQueue, list[StoredMessage]], None],
        on_failure: Callable[[BaseException], None],
    ) -> Reader:
        """Return a reader of the member's queues; see `Reader`."""
        options = self._options
        return Reader(
            self.session,
            self.group,
            self.subscriptions,
            offsets,
            StartingOffset(self.session, options.consume_from, options.begin),
            settings,
            heartbeat=self.heartbeats.beat_at,
            on_ready=on_ready,
            on_failure=on_failure,
            on_assigned=options.on_assigned,
            hooks=hooks,
        )

    @property
    def commit_interval(self) -> float | None:
        """Seconds between commits, if configured; None keeps the reader's default."""
        intervals = self.client.intervals
        return None if intervals is DEFAULT_INTERVALS else intervals.offsets

    def describe(self) -> HeartbeatData:
        """Return the member's heartbeat."""
        heartbeat = describe_member(
            self.session,
            self.group,
            self.subscriptions,
            self.consume_type,
            MessageModel.BROADCASTING if self._broadcasting else MessageModel.CLUSTERING,
            self._options.consume_from,
        )
        self.complete(heartbeat)
        return heartbeat


def describe_member(
    session: Session,
    group: str,
    subscriptions: Subscriptions,
    consume_type: ConsumeType,
    model: MessageModel,
    consume_from: ConsumeFromWhere,
) -> HeartbeatData:
    """Return the heartbeat of a client that is a member of one consumer group."""
    return HeartbeatData(
        client_id=session.client_id,
        producer_data_set=[],
        consumer_data_set=[
            ConsumerData(
                group_name=group,
                consume_type=consume_type,
                message_model=model,
                consume_from_where=consume_from,
                subscription_data_set=list(subscriptions.data.values()),
                unit_mode=session.unit_name is not None,
            )
        ],
    )
