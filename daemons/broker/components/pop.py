"""Pop service: composes the components of pop consumption, their requests and tasks."""

import contextlib
from collections.abc import Collection
from functools import partial
from pathlib import Path

from mq.daemons.broker.components.clients import Clients
from mq.daemons.broker.components.delivery import Delivery
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.failover.acting.pop_revival import ActingCheckPoints
from mq.daemons.broker.groups.request_modes import RequestModes
from mq.daemons.broker.offsets.offset_table import NotFlushed
from mq.daemons.broker.pop.ack_batching import AckBatcher
from mq.daemons.broker.pop.ack_handlers import AckHandlers
from mq.daemons.broker.pop.assignment_handlers import AssignmentHandlers, QueuesOf
from mq.daemons.broker.pop.check_points import PopCheckPoints
from mq.daemons.broker.pop.order import OrderedPops
from mq.daemons.broker.pop.peek_handlers import PeekHandlers
from mq.daemons.broker.pop.pop_handlers import PopHandlers
from mq.daemons.broker.pop.pop_requests import PopRequests
from mq.daemons.broker.pop.popped_records import PoppedRecords
from mq.daemons.broker.pop.popper import Popper
from mq.daemons.broker.pop.revival import Revival
from mq.daemons.broker.pop.waiters import Waiters
from mq.daemons.broker.pull.queue_reader import QueueReader
from mq.daemons.broker.pull.subscriptions import Subscriptions
from mq.daemons.broker.roles import is_slave, may_act_as_master
from mq.daemons.broker.stores import Stores
from mq.daemons.dispatch import Handler
from mq.daemons.request_codes import handlers_of


class PopService:
    """Serves groups that pop."""

    def __init__(
        self,
        settings: BrokerSettings,
        stores: Stores,
        clients: Clients,
        delivery: Delivery,
        reader: QueueReader,
        subscriptions: Subscriptions,
        queues_of: QueuesOf,
    ) -> None:
        store, topics, groups = stores.messages, stores.topics, stores.groups
        self._offsets = offsets = stores.offsets
        writer = delivery.writer
        folder: Path = store.root / "config"
        host = delivery.transactions.host
        kind = ActingCheckPoints if may_act_as_master(settings) else PopCheckPoints
        self.points = kind(settings, store, writer, offsets, topics, groups, host, stores.aside)
        self.revival = Revival(self.points, writer, offsets, topics, groups)
        self.order = OrderedPops(folder / "consumerOrderInfo.json")
        self.order.start(offsets.query, store.end_offset)
        self._pops = pops = Popper(
            settings, store, topics, offsets, reader, self.points, self.order
        )
        waiters = Waiters(pops, topics, settings)
        requests = PopRequests(settings, topics, groups, subscriptions)
        records = PoppedRecords(settings, reader)
        self._pop = PopHandlers(settings, requests, records, reader, pops, waiters, groups)
        self._peek = PeekHandlers(requests, records, reader, pops, waiters)
        gathering = AckBatcher(self.points, store.appender)
        self._ack = AckHandlers(topics, store, offsets, self.points, gathering, self.order, waiters)
        self.modes = RequestModes(folder / "messageRequestMode.json")
        self._assignment = AssignmentHandlers(
            settings, self.modes, topics, groups, clients.consumers, queues_of
        )
        groups.on_deleted.append(waiters.end_group)
        offsets.on_topic_removed.append(self._forget_topic)
        offsets.on_group_removed.append(self._forget_group)
        offsets.on_queues_cleared.append(self._forget_queues)
        # Offsets are saved before the messages in flight of ordered pops, here too: see
        # `OrderedPops.save`. So check points that would advance a new group of the same name have
        # ended by then.
        save_order = partial(self.order.save, offsets.save_now)
        offsets.before_removals_are_saved += [self.points.deleted_groups.write_ends, save_order]
        if not is_slave(settings):
            self.points.start()

    def _forget_topic(self, topic: str) -> None:
        """Forget the messages in flight of a deleted topic: a new topic of that name has other
        messages at their offsets.
        """
        self.points.forget_topic(topic)
        self._pops.forget_topic(topic)
        self.order.forget_topic(topic)

    def _forget_group(self, group: str) -> None:
        """As `_forget_topic`, for a group that was deleted with its offsets."""
        self.points.forget_group(group)
        self._pops.forget_group(group)
        self.order.forget_group(group)

    def _forget_queues(self, cleared: Collection[tuple[str, int]]) -> None:
        """As `_forget_topic`, for queues, by topic and id, that restart."""
        self.points.forget_queues(cleared)
        self._pops.forget_queues(cleared)
        self.order.forget_queues(cleared)

    def handlers(self) -> dict[int, Handler]:
        return handlers_of(self._pop, self._peek, self._ack, self._assignment)

    async def run(self) -> None:
        """Redeliver messages that are not acknowledged in time, until cancelled."""
        await self.revival.run()

    async def save(self) -> None:
        """Save the messages in flight of ordered queues. Raises OSError."""
        with contextlib.suppress(NotFlushed):  # already reported
            await self.order.save(self._offsets.save_now)

    async def close(self) -> None:
        """Answer the pops that have taken messages, and drop suspended ones."""
        await self._pop.close()
