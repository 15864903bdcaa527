"""Resends dead letters, and never resends one twice.

A resent message contains the offset id of its dead letter, in the property MQ_RESENT_FROM, and
keeps its unique id. So the copy itself is the mark: before a resend the brokers of the original
topic are queried for messages with that unique id, which finds any copy, whoever sent it, even if
the answer to the send was lost. The copy is sent to the broker that stores the dead letter: a
broker that is down is missing from the routes, so its copies would not be found, but a broker that
returns the dead letter can be queried for the copy, too. A resend holds the locks of
`dead_letter_locks`, so that there is only one at a time.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from mq.client.errors import ClientError, MQError, RouteNotFound
from mq.client.operations.errors import OperationError
from mq.client.operations.messages.dead_letter_copies import (
    MARK,
    content_of,
    origin_topic,
    related,
)
from mq.client.operations.messages.dead_letters import IN_FLIGHT, Letters, check_ids
from mq.client.operations.messages.lines import message_again
from mq.protocol.bodies import MessageQueue
from mq.protocol.properties import PropertyKey

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.producer.producer import Producer
    from mq.protocol.message import Message, StoredMessage

_UNVERIFIED = (
    "topic {0} holds no message with the id and the content of the letter: the original is deleted "
    "or not indexed, or the letter was never in {0}. To send it anyway, check it and use: "
    "mq dlq resend --unverified"
)
_INDEX_SECONDS = 5.0  # brokers index messages shortly after storing them


class Resent(NamedTuple):
    """The result for one dead letter, given by its two ids and the target topic.

    `result` is sent, before (it had already been sent) or failed. `copy_id` is the copy's offset
    id. `only_elsewhere` means that only the dead letter's own broker did not accept the copy: see
    `any_broker`.
    """

    message_id: str
    offset_id: str
    topic: str | None
    result: str
    copy_id: str | None = None
    reason: str = ""
    only_elsewhere: bool = False


class _OnlyElsewhere(ClientError):
    """The broker of a dead letter does not accept the copy; another one might."""


class Resending:
    """Sends dead letters to their original topics."""

    def __init__(
        self,
        admin: "Admin",
        producer: "Producer",
        *,
        any_broker: bool = False,
        unverified: bool = False,
    ) -> None:
        """`producer` must not retry by itself: a message could be stored twice.

        With `unverified`, dead letters are sent even if their topic does not contain the original
        message. With `any_broker`, a copy that the broker of its dead letter does not accept is
        sent to another one; it may be sent again later, while that one is down.
        """
        self._admin = admin
        self._producer = producer
        self._any_broker = any_broker
        self._unverified = unverified
        self._turns = count()
        self._limit = asyncio.Semaphore(IN_FLIGHT)
        # The last dead letter that was sent and its content, by the broker that has the copy.
        self._last: dict[str, tuple[StoredMessage, bytes]] = {}

    async def run(self, letters: "Iterable[StoredMessage]") -> list[Resent]:
        """Resend dead letters; returns a result for each, in order."""
        return await asyncio.gather(*(self._one(letter) for letter in letters))

    async def _one(self, letter: "StoredMessage") -> Resent:
        try:
            return await self._resend(letter)
        finally:
            letter.body = b""  # decompressed, it can be much larger than its page

    async def run_all(
        self, letters: Letters, ids: list[str] | None, limit: int | None
    ) -> list[Resent]:
        """Resend all dead letters, or those with the ids; at most `limit` of those not sent before.

        Raises NotFound for an id that no dead letter has.
        """
        results: list[Resent] = []
        wanted = set(ids or ())
        left = limit
        async for page in letters.pages():
            if ids:
                page = [item for item in page if wanted & {item.message_id, item.offset_id}]
            while page and left != 0:  # `left` counts dead letters that were not sent before
                part, page = (page, []) if left is None else (page[:left], page[left:])
                done = await self.run(part)
                results += done
                if left is not None:
                    left -= sum(item.result != "before" for item in done)
            if left == 0:
                return results
        check_ids(ids, (name for item in results for name in (item.message_id, item.offset_id)))
        return results

    async def _resend(self, letter: "StoredMessage") -> Resent:
        topic = origin_topic(letter)
        what = (letter.message_id, letter.offset_id, topic)
        if topic is None:
            return Resent(*what, "failed", None, "it does not name its original topic")
        async with self._limit:
            content = content_of(letter)
            if letter.body_error:
                return Resent(*what, "failed", None, letter.body_error)
            try:
                # The topic must exist: a broker could create it in place of a deleted one, and
                # while name servers do not know it, no broker can be queried for a copy.
                await self._admin.session.route(topic)
                original, before = await related(self._admin, letter, content)
                if before is not None:
                    return Resent(*what, "before", before.offset_id)
                if not original and not self._unverified:
                    return Resent(*what, "failed", None, _UNVERIFIED.format(topic))
                queue = await self._queue(topic, letter)
                sent = await self._producer.send(_copy(letter, topic), queue)
                copy_id = sent.offset_message_id
            except OperationError as error:  # the session does not permit sending there
                return Resent(*what, "failed", None, error.message)
            except (MQError, ValueError) as error:
                found = await self._stored_nevertheless(letter, content, error)
                if found is None:
                    elsewhere = isinstance(error, _OnlyElsewhere)
                    return Resent(*what, "failed", None, str(error), elsewhere)
                copy_id = found
        # The last 16 digits of an offset id are the physical offset, the others the broker.
        self._last[copy_id[:-16]] = letter, content
        return Resent(*what, "sent", copy_id)

    async def _queue(self, topic: str, letter: "StoredMessage") -> MessageQueue | None:
        """Return the queue for the copy; None lets the producer choose. Raises MQError."""
        queues = await self._producer.prepare(topic)
        here = [queue for queue in queues if queue.broker_name == letter.broker_name]
        if here:
            return here[next(self._turns) % len(here)]
        if self._any_broker:
            return None
        raise _OnlyElsewhere(
            f"broker {letter.broker_name}, where the dead letter lies, takes no messages of topic "
            f"{topic} now"
        )

    async def _stored_nevertheless(
        self, letter: "StoredMessage", content: bytes, error: Exception
    ) -> str | None:
        """Return the offset id of the copy, if it was stored before the error."""
        if isinstance(error, ClientError | RouteNotFound | ValueError):
            return None
        with suppress(MQError):
            await asyncio.sleep(1)
            found = (await related(self._admin, letter, content)).copy
            return None if found is None else found.offset_id
        return None

    async def confirm(self) -> str | None:
        """Wait until the copies are found by queries; returns a warning if they are not.

        Brokers index messages in order, so the last one of each broker represents the others.
        """
        deadline = asyncio.get_running_loop().time() + _INDEX_SECONDS
        for letter, content in self._last.values():
            while (await related(self._admin, letter, content)).copy is None:
                if asyncio.get_running_loop().time() > deadline:
                    return (
                        f"what was sent to {origin_topic(letter)} cannot be looked up (has its "
                        "broker messageIndexEnable=false?): another resend would send it once more"
                    )
                await asyncio.sleep(0.05)
        return None


def _copy(letter: "StoredMessage", topic: str) -> "Message":
    copy = message_again(topic, letter.body, letter.flag, letter.properties)
    copy.system[PropertyKey.UNIQUE_KEY] = letter.message_id
    copy.system[MARK] = letter.offset_id
    return copy
