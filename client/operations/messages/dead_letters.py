"""Dead letters: the messages that groups failed to consume, the reasons, and their copies.

A resent message contains the offset id of its dead letter, in the property MQ_RESENT_FROM, and
keeps its unique id: see `dead_letter_resending`.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.errors import MQError, RouteNotFound
from mq.client.operations import cluster
from mq.client.operations.errors import NextStep, NotFound
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.dead_letter_copies import content_of, origin_topic, related
from mq.client.operations.messages.reading import Reader
from mq.protocol.names import dead_letter_topic
from mq.protocol.properties import PropertyKey

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.message import StoredMessage

USED_UP = "retries used up"
EARLY = "given up early"  # by the listener, or by a consumer with a lower limit than the group's
UNSAID = "unknown"  # no broker reports how often the group retries

_DEFAULT_LIMIT = 16  # retryMaxTimes of a group that no longer exists
IN_FLIGHT = 16  # concurrent queries or sends


def cause(letter: "StoredMessage", limit: int | None) -> str:
    """Return why a message became a dead letter; `limit` is the group's number of retries, or
    None.
    """
    own = letter.properties.get(PropertyKey.MAX_RECONSUME_TIMES, "")
    if own.isdecimal():
        limit = int(own)
    if limit is None:
        return UNSAID
    return USED_UP if letter.reconsume_times >= limit else EARLY


async def retry_limit(admin: "Admin", group: str, failures: list[str]) -> int | None:
    """Return how often brokers let a group retry a message; the default for an unknown group.

    Returns None if a broker does not answer and no other one knows the group; then the reason is
    added to `failures`.
    """
    unsaid: list[MQError] = []
    try:
        route = await admin.session.route(dead_letter_topic(group))
        for address in [cluster.any_address(b) for b in route.broker_datas if b.broker_addrs]:
            try:
                table = (await admin.subscription_groups(address)).subscription_group_table
            except MQError as error:
                unsaid.append(error)
                continue
            if group in table:
                return table[group].retry_max_times
    except MQError as error:
        unsaid.append(error)
    lines = [f"it is not known how often group {group} retries: {error}" for error in unsaid]
    failures += [line for line in lines if line not in failures]
    return None if unsaid else _DEFAULT_LIMIT


class NoLetters(NotFound):
    """The group has no dead letters, or does not exist."""


class Letters:
    """The dead letters of a group."""

    def __init__(self, admin: "Admin", group: str) -> None:
        self.group = group
        self.topic = dead_letter_topic(group)
        self.failures: list[str] = []  # queues that could not be read
        self.count = 0  # the number of dead letters in the queues that answered
        self.sizes: dict[str, int] = {}  # sizes of the bodies read, by offset id
        self.contents: dict[str, bytes] = {}  # digests of truncated dead letters, by offset id
        self._admin = admin

    async def read(
        self,
        newest: int | None = None,
        *,
        ids: Collection[str] | None = None,
        keep: int | None = None,
    ) -> "list[StoredMessage]":
        """Return the dead letters, oldest first: all, or about the `newest` of each queue; with
        `ids` only those.

        Bodies are returned as stored. With `keep` they are decompressed and truncated to that many
        bytes; with 0 they are dropped. `sizes` has their full sizes. Raises NoLetters for a group
        without dead letters, and MQError if no broker answers.
        """
        letters = []
        async for page in self.pages(newest):
            for letter in page:
                if ids and not {letter.message_id, letter.offset_id} & set(ids):
                    continue
                if keep:
                    self.contents[letter.offset_id] = content_of(letter)
                self.sizes[letter.offset_id] = len(letter.body)
                if keep is not None:
                    letter.body = letter.body[:keep]
                letters.append(letter)
        letters.sort(key=lambda letter: letter.store_timestamp)
        return letters if newest is None else letters[-newest:] if newest else []

    async def pages(self, newest: int | None = None) -> "AsyncIterator[list[StoredMessage]]":
        """Yield the dead letters in batches, those of each queue oldest first; bodies are as
        stored. Raises what `read` raises.
        """
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
        """Return the error for a group without dead letters."""
        return NoLetters(
            f"consumer group {self.group} has no dead letters", hint=NextStep.LIST_DEAD_LETTERS
        )


@dataclass(frozen=True, slots=True)
class GroupLetters:
    """A summary of a group's dead letters: their number, and the reasons and topics of the newest.

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
    """Return the groups that have dead letters, by name, and a line for each failure.

    The newest `scan` dead letters of each group are read.
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
    """Return the dead letters of a group; None if there are none, or none can be read."""
    letters = Letters(admin, group)
    try:
        found = await letters.read(scan, keep=0)
    except (MQError, NotFound) as error:
        return None, [str(error)]
    if not letters.count:
        return None, letters.failures
    limit = await retry_limit(admin, group, letters.failures) if found else _DEFAULT_LIMIT
    causes = Counter(cause(letter, limit) for letter in found)
    topics = Counter(origin_topic(letter) or "?" for letter in found)
    return GroupLetters(
        group,
        letters.count,
        causes[USED_UP],
        causes[EARLY],
        tuple(topics.most_common()),
        found[0].store_timestamp if found else None,
        found[-1].store_timestamp if found else None,
    ), letters.failures


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as shown by `mq dlq show`. `resent_as` is the offset id of its copy;
    `store_time` is in ms since 1970.
    """

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
    """Return the newest `limit` dead letters of a group, or those with the ids, oldest first.

    Bodies are truncated to `keep` bytes, or returned as stored. Also returns the `Letters` with the
    failures. Raises NotFound, MQError.
    """
    letters = Letters(admin, group)
    found = of_ids(await letters.read(None if ids else limit, ids=ids, keep=keep), ids)[-limit:]
    most = await retry_limit(admin, group, letters.failures)

    async def copy_id(letter: "StoredMessage") -> str | None:
        content = letters.contents.get(letter.offset_id) or content_of(copy(letter))
        try:
            found = (await related(admin, letter, content)).copy
        except MQError as error:
            letters.failures.append(f"it is not known what was resent: {error}")
            return None
        return None if found is None else found.offset_id

    copies: list[str | None] = []
    for start in range(0, len(found), IN_FLIGHT):
        part = found[start : start + IN_FLIGHT]
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


def of_ids(letters: "list[StoredMessage]", ids: list[str] | None) -> "list[StoredMessage]":
    """Return the dead letters with these ids, or all without ids. Raises NotFound for an unknown
    id.
    """
    if not ids:
        return letters
    found = [letter for letter in letters if {letter.message_id, letter.offset_id} & set(ids)]
    check_ids(ids, (name for item in found for name in (item.message_id, item.offset_id)))
    return found


def check_ids(ids: list[str] | None, known: Iterable[str]) -> None:
    """Raise NotFound for an id that is not among the known ones."""
    missing = set(ids or ()) - set(known)
    if missing:
        raise NotFound(
            f"no dead letter has the id {', '.join(sorted(missing))}",
            hint=NextStep.SHOW_DEAD_LETTERS,
        )
