"""The common part of `Consumer` and `LitePullConsumer`: membership in a consumer group."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from mq.client.consumer.options import MemberOptions
from mq.client.namespace import with_namespace
from mq.client.offsets.offset_store import Offsets
from mq.client.offsets.starting_offset import StartingOffset
from mq.client.options import DEFAULT_INTERVALS, ClientOptions, refuse
from mq.client.pull.consume_hooks import ConsumeHooks
from mq.client.pull.filter_classes import FilterUploads
from mq.client.pull.process_queue import ProcessQueue
from mq.client.pull.subscription import Subscriptions
from mq.client.reader.reader import Reader
from mq.client.reader.settings import ReaderSettings
from mq.client.snode.sessions import session_for
from mq.client.transport.heartbeat import Heartbeats
from mq.client.transport.session import Session
from mq.client.transport.tasks import Closing
from mq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    MessageQueue,
)
from mq.protocol.message import StoredMessage
from mq.protocol.names import check_group


class Member(ABC):
    """One member of a group: its session, subscriptions, heartbeats and the reader of its queues.

    A derived class sets `ordered` and similar attributes before this constructor runs, and `reader`
    after it.
    """

    consume_type: ClassVar[ConsumeType]
    ordered = False
    broadcasting = False
    concurrency = 1  # concurrent calls of a listener
    reader: Reader

    def __init__(
        self,
        session: Session | str | Sequence[str],
        group: str,
        subscriptions: Mapping[str, str],
        options: MemberOptions,
        client: ClientOptions | None,
        keywords: dict[str, Any],
        *,
        retries: bool,
    ) -> None:
        """`keywords` are the remaining ones: fields of `ClientOptions`.

        With `retries` it subscribes to the group's retry topic, too. Raises what the derived
        classes document, and TypeError for an unknown keyword.
        """
        self.session, self._client = session_for(session, client, keywords)
        refuse(self, keywords)
        self._owns_session = self.session is not session
        self.namespace = namespace = self._client.namespace
        self.group = check_group(with_namespace(namespace, check_group(group)))
        self.subscriptions = Subscriptions(
            self.group,
            subscriptions,
            options.expression_type,
            namespace=namespace,
            retries=retries,
        )
        self.started = 0.0  # seconds since 1970
        self._consume_from = options.consume_from
        self._heartbeats = Heartbeats(
            self.session,
            self._describe,
            replicas=True,
            interval=self._client.intervals.heartbeats,
        )
        self._uploads = FilterUploads(
            self.session,
            self.group,
            self.subscriptions.filters,
            self._client.intervals.heartbeats,
        )
        self._background: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        self._close_once = Closing()
        self._changing = asyncio.Lock()  # serializes open and close
        self._is_open = False

    async def _join(self) -> None:
        """Register with brokers, and its classes with filter servers; starts the periodic
        updates.
        """
        await self._heartbeats.beat()
        self._background.append(self.session.keep_task(self._heartbeats.run()))
        if self.subscriptions.filters:
            await self._uploads.upload()
            self._background.append(self.session.keep_task(self._uploads.run()))

    def _make_reader(
        self,
        options: MemberOptions,
        offsets: Offsets,
        settings: ReaderSettings,
        hooks: ConsumeHooks | None,
    ) -> Reader:
        return Reader(
            self.session,
            self.group,
            self.subscriptions,
            offsets,
            StartingOffset(self.session, options.consume_from, options.begin),
            settings,
            heartbeat=self._heartbeats.beat_at,
            on_ready=self._enqueue,
            on_failure=self._fail,
            on_assigned=options.on_assigned,
            hooks=hooks,
        )

    @property
    def _commit_interval(self) -> float | None:
        """Seconds between commits, if configured; None keeps the reader's default."""
        intervals = self._client.intervals
        return None if intervals is DEFAULT_INTERVALS else intervals.offsets

    async def open(self) -> None:
        """Join the group and start to pull. Safe to call again.

        It waits for a close that is running, and a later close waits for it: otherwise the member
        could stay in the group with no way to end it.
        """
        await self._close_once.settle()
        async with self._changing:
            if not self._is_open:
                await self._begin()
                self._is_open = True

    @abstractmethod
    async def _begin(self) -> None:
        """Join the group and start to pull."""

    @abstractmethod
    async def close(self) -> None:
        """Stop pulling, commit, leave the group."""

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this member owns now, including the group's retry queue."""
        return sorted(self.reader.held)

    @abstractmethod
    def _enqueue(self, held: ProcessQueue, messages: list[StoredMessage]) -> None:
        """Accept pulled messages of a queue."""

    @abstractmethod
    def _fail(self, error: BaseException) -> None:
        """Handle an error in a reader's task that must end the program."""

    def _describe(self) -> HeartbeatData:
        return describe_member(
            self.session,
            self.group,
            self.subscriptions,
            self.consume_type,
            MessageModel.BROADCASTING if self.broadcasting else MessageModel.CLUSTERING,
            self._consume_from,
        )


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
