"""Dead letters: what groups have failed to consume, why, and sending it once more, never twice.

A message that is resent carries where its dead letter lies, in the property MQ_RESENT_FROM, and
keeps its unique id. So the copy itself is the mark: whoever wants to resend a dead letter first
asks the brokers of the original topic for messages of that unique id, and finds the copy whoever
has sent it from wherever, also when the answer to the send was lost. The copy goes to the broker
that the letter lies on: a broker that is away is out of the routes, and nobody would miss what it
has, but one that can give the letter can be asked for the copy, too. Who resends holds the locks of
`dead_letter_locks`, so that no other does.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from mq.client.errors import ClientError, MQError, RouteNotFound
from mq.client.operations.errors import NextStep, NotFound, OperationError
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.lines import message_again
from mq.client.operations.messages.reading import Reader
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import restore_body
from mq.protocol.names import dead_letter_topic
from mq.protocol.properties import PropertyKey

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.producer import Producer
    from mq.protocol.message import Message, StoredMessage

MARK = "MQ_RESENT_FROM"  # the offset id of the dead letter that a message is a copy of

USED_UP = "retries used up"
EARLY = "given up early"  # by the listener, or by a consumer whose own limit is below the group's

_DEFAULT_LIMIT = 16  # retryMaxTimes of a group that is not known any more
_INDEX_SECONDS = 5.0  # a broker indexes a message just after it has stored it
_IN_FLIGHT = 16
# Of a compressed body that is looked at or sent, several at once: no producer sends as much.
MOST_DECOMPRESSED = 16 * 1024 * 1024


def origin_topic(letter: "StoredMessage") -> str | None:
    """The topic that the message was sent to; None for one that does not tell."""
    properties = letter.properties
    return properties.get(PropertyKey.RETRY_TOPIC) or properties.get(PropertyKey.DLQ_ORIGIN_TOPIC)


def cause(letter: "StoredMessage", limit: int) -> str:
    """Why it is among the dead letters; `limit` is how often its group retries."""
    own = letter.properties.get(PropertyKey.MAX_RECONSUME_TIMES, "")
    if own.isdecimal():
        limit = int(own)
    return USED_UP if letter.reconsume_times >= limit else EARLY


async def retry_limit(admin: "Admin", group: str) -> int:
    """How often brokers let a group retry a message."""
    with suppress(MQError):
        route = await admin.session.route(dead_letter_topic(group))
        for broker in route.broker_datas:
            address = next(iter(broker.broker_addrs.values()))
            table = (await admin.subscription_groups(address)).subscription_group_table
            if group in table:
                return table[group].retry_max_times
    return _DEFAULT_LIMIT


class NoLetters(NotFound):
    """A group has no dead letters, if there is such a group."""


class Letters:
    """The dead letters of a group."""

    def __init__(self, admin: "Admin", group: str) -> None:
        self.group = group
        self.topic = dead_letter_topic(group)
        self.failures: list[str] = []  # queues that could not be read
        self.count = 0  # how many there are, as far as queues could be asked
        self.sizes: dict[str, int] = {}  # of the bodies that were read, by offset id
        self._admin = admin

    async def read(
        self,
        newest: int | None = None,
        *,
        ids: Collection[str] | None = None,
        keep: int | None = None,
    ) -> "list[StoredMessage]":
        """The letters, oldest first: all, or about the `newest` of each queue; of `ids` only those.

        Their bodies are as they are stored. With `keep` they are decompressed, and so many bytes
        of each are kept; with 0 none is. `sizes` has how many there were.

        Raises NoLetters for a group that has no dead letters, and MQError where no broker answers.
        """
        letters = []
        async for page in self.pages(newest):
            for letter in page:
                if ids and not {letter.message_id, letter.offset_id} & set(ids):
                    continue
                if keep:
                    restore_body(letter, MOST_DECOMPRESSED)
                self.sizes[letter.offset_id] = len(letter.body)
                if keep is not None:
                    letter.body = letter.body[:keep]
                letters.append(letter)
        letters.sort(key=lambda letter: letter.store_timestamp)
        return letters if newest is None else letters[-newest:] if newest else []

    async def pages(self, newest: int | None = None) -> "AsyncIterator[list[StoredMessage]]":
        """The letters, a few at a time, those of each queue oldest first; their bodies as they are
        stored. Raises as `read`."""
        reader = Reader(self._admin.session, Choice(self.topic), decompress=False)
        try:
            spans, self.failures = await reader.spans()
        except RouteNotFound:
            raise self.none() from None
        self.count = sum(span.end - span.next for span in spans)
        for span in spans:
            if newest is not None:
                span.next = max(span.next, span.end - newest)
            try:
                async for messages, _ in reader.batches(span):
                    yield messages
            except MQError as error:
                self.failures.append(f"{span.name}: {error}")

    def none(self) -> NoLetters:
        """The error for a group without dead letters."""
        return NoLetters(
            f"consumer group {self.group} has no dead letters", hint=NextStep.LIST_DEAD_LETTERS
        )


@dataclass(frozen=True, slots=True)
class GroupLetters:
    """The dead letters of a group: how many, and of the newest of them why and from where.

    `topics` are names and counts, the most frequent first; times are in ms since 1970.
    """

    group: str
    messages: int
    retries_used_up: int
    given_up_early: int
    topics: tuple[tuple[str, int], ...]
    oldest: int | None
    newest: int | None

    @property
    def topics_text(self) -> str:
        return ", ".join(f"{topic} ({count})" for topic, count in self.topics)


async def groups_with_letters(
    admin: "Admin", groups: Iterable[str], scan: int
) -> tuple[list[GroupLetters], list[str]]:
    """Those of the groups that have dead letters, by name, and what could not be read.

    Of each the newest `scan` letters are read.
    """
    found: list[GroupLetters] = []
    failures: list[str] = []
    for group in sorted(groups):
        letters, failed = await letters_of(admin, group, scan)
        failures += [f"{group}: {reason}" for reason in failed]
        if letters is not None:
            found.append(letters)
    return found, failures


async def letters_of(
    admin: "Admin", group: str, scan: int
) -> tuple[GroupLetters | None, list[str]]:
    """The dead letters of a group; None where there are none, or none can be read."""
    letters = Letters(admin, group)
    try:
        found = await letters.read(scan, keep=0)
    except (MQError, NotFound) as error:
        return None, [str(error)]
    if not letters.count:
        return None, letters.failures
    limit = await retry_limit(admin, group) if found else _DEFAULT_LIMIT
    causes = Counter(cause(letter, limit) for letter in found)
    topics = Counter(origin_topic(letter) or "?" for letter in found)
    return GroupLetters(
        group,
        letters.count,
        causes[USED_UP],
        causes.total() - causes[USED_UP],
        tuple(topics.most_common()),
        found[0].store_timestamp if found else None,
        found[-1].store_timestamp if found else None,
    ), letters.failures


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as `mq dlq show` gives it. `resent_as` is the offset id of the copy that it was
    resent as; `store_time` in ms since 1970."""

    message_id: str
    offset_id: str
    origin_topic: str | None
    origin_message_id: str | None
    tries: int
    cause: str
    store_time: int
    resent_as: str | None
    tags: str | None
    keys: str | None
    message: "StoredMessage"


async def look_at(
    admin: "Admin", group: str, ids: list[str] | None, limit: int, *, keep: int | None = None
) -> tuple[list[Letter], Letters]:
    """The newest `limit` letters of a group, or those of the ids, oldest first. Of each body `keep`
    bytes are kept, or all as it is stored.

    Returns them, and the `Letters` with what could not be read. Raises NotFound, MQError.
    """
    letters = Letters(admin, group)
    found = of_ids(await letters.read(None if ids else limit, ids=ids, keep=keep), ids)[-limit:]
    most = await retry_limit(admin, group)

    async def copy_id(letter: "StoredMessage") -> str | None:
        try:
            copy = await copy_of(admin, letter)
        except MQError as error:
            letters.failures.append(f"it is not known what was resent: {error}")
            return None
        return None if copy is None else copy.offset_id

    copies: list[str | None] = []
    for start in range(0, len(found), _IN_FLIGHT):
        part = found[start : start + _IN_FLIGHT]
        copies += await admin.session.all([copy_id(letter) for letter in part])
    letters.failures = list(dict.fromkeys(letters.failures))
    return [
        Letter(
            letter.message_id,
            letter.offset_id,
            origin_topic(letter),
            letter.properties.get(PropertyKey.ORIGIN_MESSAGE_ID),
            letter.reconsume_times,
            cause(letter, most),
            letter.store_timestamp,
            copy,
            letter.tags,
            letter.properties.get(PropertyKey.KEYS),
            letter,
        )
        for letter, copy in zip(found, copies, strict=True)
    ], letters


async def copy_of(admin: "Admin", letter: "StoredMessage") -> "StoredMessage | None":
    """The message that the letter was resent as, if it was. Raises MQError."""
    topic = origin_topic(letter)
    if topic is None:
        return None
    place = letter.offset_id
    try:
        found = await admin.find_by_unique_id(topic, letter.message_id, decompress=False)
    except RouteNotFound:
        return None
    for message in found:
        if message.properties.get(MARK) == place:
            return message
    return None


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


def of_ids(letters: "list[StoredMessage]", ids: list[str] | None) -> "list[StoredMessage]":
    """Those of the ids, or all without any. Raises NotFound for an id that none has."""
    if not ids:
        return letters
    found = [letter for letter in letters if {letter.message_id, letter.offset_id} & set(ids)]
    _check_ids(ids, (name for item in found for name in (item.message_id, item.offset_id)))
    return found


def _check_ids(ids: list[str] | None, known: Iterable[str]) -> None:
    missing = set(ids or ()) - set(known)
    if missing:
        raise NotFound(
            f"no dead letter has the id {', '.join(sorted(missing))}",
            hint=NextStep.SHOW_DEAD_LETTERS,
        )


class _OnlyElsewhere(ClientError):
    """The broker of a letter takes no copy of it; another one might."""


class Resending:
    """Sends letters to the topics that they come from."""

    def __init__(self, admin: "Admin", producer: "Producer", *, any_broker: bool = False) -> None:
        """`producer` must not try again by itself: a message might be stored twice.

        With `any_broker` a copy that cannot go to the broker of its letter goes to another one; and
        may be sent again later, while that one is away.
        """
        self._admin = admin
        self._producer = producer
        self._any_broker = any_broker
        self._turns = count()
        self._limit = asyncio.Semaphore(_IN_FLIGHT)
        self._last: dict[str, StoredMessage] = {}  # sent last, by the broker that has the copy

    async def run(self, letters: "Iterable[StoredMessage]") -> list[Resent]:
        """Send them; a result for each, in their order."""
        return await asyncio.gather(*(self._one(letter) for letter in letters))

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
        _check_ids(ids, (name for item in results for name in (item.message_id, item.offset_id)))
        return results

    async def _one(self, letter: "StoredMessage") -> Resent:
        topic = origin_topic(letter)
        what = (letter.message_id, letter.offset_id, topic)
        if topic is None:
            return Resent(*what, "failed", None, "it does not tell its original topic")
        async with self._limit:
            try:
                before = await copy_of(self._admin, letter)
                if before is not None:
                    return Resent(*what, "before", before.offset_id)
                queue = await self._queue(topic, letter)
                restore_body(letter, MOST_DECOMPRESSED)
                if letter.body_error:
                    return Resent(*what, "failed", None, letter.body_error)
                sent = await self._producer.send(_copy(letter, topic), queue)
                copy_id = sent.offset_message_id
            except OperationError as error:  # the session lets nobody send there
                return Resent(*what, "failed", None, error.message)
            except (MQError, ValueError) as error:
                found = await self._stored_nevertheless(letter, error)
                if found is None:
                    elsewhere = isinstance(error, _OnlyElsewhere)
                    return Resent(*what, "failed", None, str(error), elsewhere)
                copy_id = found
        letter.body = b""
        self._last[copy_id[:-16]] = letter  # the rest of it is the position in the broker's log
        return Resent(*what, "sent", copy_id)

    async def _queue(self, topic: str, letter: "StoredMessage") -> MessageQueue | None:
        """Where the copy goes; None for wherever the producer likes. Raises MQError."""
        # It has to be there: a broker may not make it in place of the one that is gone.
        await self._admin.session.route(topic)
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

    async def _stored_nevertheless(self, letter: "StoredMessage", error: Exception) -> str | None:
        """The offset id of the copy, if it was stored before the error."""
        if isinstance(error, ClientError | RouteNotFound | ValueError):
            return None
        with suppress(MQError):
            await asyncio.sleep(1)
            found = await copy_of(self._admin, letter)
            return None if found is None else found.offset_id
        return None

    async def confirm(self) -> str | None:
        """Wait until a look-up finds what was sent; returns a warning if it does not.

        Brokers index messages in their order, so the last one of each stands for the others.
        """
        deadline = asyncio.get_running_loop().time() + _INDEX_SECONDS
        for letter in self._last.values():
            while await copy_of(self._admin, letter) is None:
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
