"""How far a group has come: kept at the brokers, remembered here between two commits."""

from collections.abc import Iterable

from mq.client.admin.offsets import OffsetAdmin
from mq.client.caller import Caller
from mq.client.errors import MQError
from mq.protocol.bodies import MessageQueue


class OffsetStore:
    """The offsets of one group. `update` remembers, `commit` tells the brokers."""

    def __init__(self, session: Caller, group: str) -> None:
        self._session = session
        self._admin = OffsetAdmin(session)
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._begun: set[tuple[str, str]] = set()  # topic and broker with an offset of the group

    async def committed(self, queue: MessageQueue) -> int | None:
        """Ask the broker where the group goes on in `queue`; None if it never committed there."""
        address = await self._session.master_address(queue.topic, queue.broker_name)
        return await self._admin.query_consumer_offset(
            address, self._group, queue.topic, queue.queue_id
        )

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Remember that everything below `offset` is done."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        """What `update` was told last."""
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """The queue belongs to another member now."""
        self._offsets.pop(queue, None)
        self._committed.pop(queue, None)

    async def commit(self, queues: Iterable[MessageQueue]) -> list[MQError]:
        """Tell the brokers what has changed; returns what went wrong, to be tried again later.

        The first offset of a topic goes to a broker by itself, the others together after it: of
        several first ones at once a Java broker may keep one and confirm all
        (ConsumerOffsetManager.commitOffset puts a new table without a lock).
        """
        changed = {
            queue: self._offsets[queue]
            for queue in queues
            if queue in self._offsets and self._committed.get(queue) != self._offsets[queue]
        }
        places = {(queue.topic, queue.broker_name): queue for queue in changed}
        first = {queue for place, queue in places.items() if place not in self._begun}
        errors: list[MQError] = []
        for together in (first, changed.keys() - first):
            commits = [self._commit(queue, changed[queue]) for queue in together]
            errors += filter(None, await self._session.all(commits))
        return errors

    async def _commit(self, queue: MessageQueue, offset: int) -> MQError | None:
        try:
            address = await self._session.master_address(queue.topic, queue.broker_name)
            await self._admin.update_consumer_offset(
                address, self._group, queue.topic, queue.queue_id, offset
            )
        except MQError as error:
            return error
        self._committed[queue] = offset
        self._begun.add((queue.topic, queue.broker_name))
        return None
