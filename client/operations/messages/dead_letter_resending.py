"""Dead letters are sent once more, and never twice.

A message that is resent carries where its dead letter lies, in the property MQ_RESENT_FROM, and
keeps its unique id. So the copy itself is the mark: whoever wants to resend a dead letter first
asks the brokers of the original topic for messages of that unique id, and finds the copy whoever
has sent it from wherever, also when the answer to the send was lost. The copy goes to the broker
that the letter lies on: a broker that is away is out of the routes, and nobody would miss what it
has, but one that can give the letter can be asked for the copy, too. Who resends holds the locks of
`dead_letter_locks`, so that no other does.
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
    from mq.client.producer import Producer
    from mq.protocol.message import Message, StoredMessage

_UNVERIFIED = (
    "topic {0} holds no message with the id and the content of the letter: the original is deleted "
    "or not indexed, or the letter was never in {0}. To send it anyway, check it and use: "
    "mq dlq resend --unverified"
)
_INDEX_SECONDS = 5.0  # a broker indexes a message just after it has stored it


class Resent(NamedTuple):
    """What became of the letter with these two ids, which was sent to `topic`.

    `result`: sent, before (it had been sent already), failed. `copy_id` is the copy's offset id.
    With `only_elsewhere` it has failed as just its own broker takes no copy: see `any_broker`.
    """

    message_id: str
    offset_id: str
    topic: str | None
    result: str
    copy_id: str | None = None
    reason: str = ""
    only_elsewhere: bool = False


class _OnlyElsewhere(ClientError):
    """The broker of a letter takes no copy of it; another one might."""


class Resending:
    """Sends letters to the topics that they come from."""

    def __init__(
        self,
        admin: "Admin",
        producer: "Producer",
        *,
        any_broker: bool = False,
        unverified: bool = False,
    ) -> None:
        """`producer` must not try again by itself: a message might be stored twice.

        With `unverified` letters are sent whose topic does not hold the original message.
        With `any_broker` a copy that cannot go to the broker of its letter goes to another one; and
        may be sent again later, while that one is away.
        """
        self._admin = admin
        self._producer = producer
        self._any_broker = any_broker
        self._unverified = unverified
        self._turns = count()
        self._limit = asyncio.Semaphore(IN_FLIGHT)
        # The letter that was sent last and its content, by the broker that has the copy.
        self._last: dict[str, tuple[StoredMessage, bytes]] = {}

    async def run(self, letters: "Iterable[StoredMessage]") -> list[Resent]:
        """Send them; a result for each, in their order."""
        return await asyncio.gather(*(self._one(letter) for letter in letters))

    async def _one(self, letter: "StoredMessage") -> Resent:
        try:
            return await self._resend(letter)
        finally:
            letter.body = b""  # decompressed, it can be much larger than the page it came in

    async def run_all(
        self, letters: Letters, ids: list[str] | None, limit: int | None
    ) -> list[Resent]:
        """Send all letters, or those of the ids; of those that had not been sent, `limit` at most.

        Raises NotFound for an id that no letter has.
        """
        results: list[Resent] = []
        wanted = set(ids or ())
        left = limit
        async for page in letters.pages():
            if ids:
                page = [item for item in page if wanted & {item.message_id, item.offset_id}]
            while page and left != 0:  # `left` is of those that had not been sent before
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
            return Resent(*what, "failed", None, "it does not tell its original topic")
        async with self._limit:
            content = content_of(letter)
            if letter.body_error:
                return Resent(*what, "failed", None, letter.body_error)
            try:
                # It has to be there: a broker may not make it in place of the one that is gone, and
                # while name servers do not know it nobody can be asked for a copy.
                await self._admin.session.route(topic)
                original, before = await related(self._admin, letter, content)
                if before is not None:
                    return Resent(*what, "before", before.offset_id)
                if not original and not self._unverified:
                    return Resent(*what, "failed", None, _UNVERIFIED.format(topic))
                queue = await self._queue(topic, letter)
                sent = await self._producer.send(_copy(letter, topic), queue)
                copy_id = sent.offset_message_id
            except OperationError as error:  # the session lets nobody send there
                return Resent(*what, "failed", None, error.message)
            except (MQError, ValueError) as error:
                found = await self._stored_nevertheless(letter, content, error)
                if found is None:
                    elsewhere = isinstance(error, _OnlyElsewhere)
                    return Resent(*what, "failed", None, str(error), elsewhere)
                copy_id = found
        # The last 16 digits of an offset id are the position in the log, the others the broker.
        self._last[copy_id[:-16]] = letter, content
        return Resent(*what, "sent", copy_id)

    async def _queue(self, topic: str, letter: "StoredMessage") -> MessageQueue | None:
        """Where the copy goes; None for wherever the producer likes. Raises MQError."""
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
        """The offset id of the copy, if it was stored before the error."""
        if isinstance(error, ClientError | RouteNotFound | ValueError):
            return None
        with suppress(MQError):
            await asyncio.sleep(1)
            found = (await related(self._admin, letter, content)).copy
            return None if found is None else found.offset_id
        return None

    async def confirm(self) -> str | None:
        """Wait until a look-up finds what was sent; returns a warning if it does not.

        Brokers index messages in their order, so the last one of each stands for the others.
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
