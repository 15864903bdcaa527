"""Sending the messages of a file of JSON lines.

Lines are read in order and shared out to the queues that they go to; each queue has one batch on
its way and the next one collected. The state that a cut import goes on from is keyed by what was
read: for each queue that lines come from, the last of its lines that is stored, and where they go.
The latter must not change: a broker that has left the routes meanwhile would give its lines to
another queue, for which their order, and what of them is stored, means nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from zlib import crc32

from mq.client.operations.errors import BadData, NextStep, OperationError
from mq.client.operations.messages import resumable
from mq.client.operations.messages.lines import Line, MalformedLine, message_again
from mq.client.operations.messages.rate import Rate
from mq.client.operations.messages.resumable import SAVE_SECONDS, unreadable
from mq.client.operations.messages.sending import BATCH_MESSAGES, Target, Targets, check_same
from mq.protocol.properties import PropertyKey

if TYPE_CHECKING:
    from mq.protocol.message import Message

_BATCH_BYTES = 1024 * 1024  # collected for a queue at most
# As many sources stand for the lines that name no queue; it can be divided evenly among all usual
# numbers of queues.
_SPREAD = 240


class Done(NamedTuple):
    """How far the lines from one queue have come: the last that is stored, and where they go."""

    line: int
    to: str


class _Lane:
    """What waits for a target queue, and what is on its way there."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.done: dict[str, int] = {}  # the last line that is stored, by its source
        self._waiting: list[Message] = []
        self._bytes = 0
        self._last: dict[str, int] = {}  # likewise, of those that wait
        self._flight: asyncio.Task[None] | None = None

    async def put(self, message: "Message", source: str, line: int) -> None:
        self._waiting.append(message)
        self._bytes += len(message.body)
        self._last[source] = line
        if len(self._waiting) >= BATCH_MESSAGES or self._bytes >= _BATCH_BYTES:
            await self.start()

    async def start(self) -> None:
        """Wait for what is on its way, and send what waits. Raises MQError of the former."""
        await self.land()
        if self._waiting:
            batch, self._waiting, self._bytes = self._waiting, [], 0
            last, self._last = self._last, {}
            self._flight = asyncio.ensure_future(self._send(batch, last))

    async def land(self) -> None:
        flight, self._flight = self._flight, None
        if flight is not None:
            await flight

    async def _send(self, batch: "list[Message]", last: dict[str, int]) -> None:
        await self.target.send(batch)
        self.done.update(last)


class Importer:
    """Sends the lines of a file to a topic, or each to its own."""

    def __init__(
        self,
        targets_of: Callable[[str], Awaitable[Targets]],
        *,
        source: str,
        topic: str | None,
        new_ids: bool,
        rate: Rate,
        done: dict[str, Done],
        save: Callable[[dict[str, Done]], None],
        step: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`targets_of` finds the targets of a topic. `done` is the state of a cut import, by
        source. `save` gets that every few seconds; `step` is told the bytes that were read.
        """
        self._targets_of = targets_of
        self._source = source
        self._topic = topic
        self._new_ids = new_ids
        self._rate = rate
        self._done = done
        self._save = save
        self._step = step
        self._topics: dict[str, Targets] = {}
        self._sources: dict[str, Target] = {}
        self._lanes: dict[str, _Lane] = {}

    async def run(self, file: BinaryIO) -> None:
        """Send all lines. Raises BadData for a line that is wrong, MQError of a broker.

        After a wrong line all lines before it are sent; `save` tells what was sent until then.
        """
        due = time.monotonic() + SAVE_SECONDS
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    await self._one(number, line)
                self._step(len(line))
                if time.monotonic() >= due:
                    self.save()
                    due = time.monotonic() + SAVE_SECONDS
        except OperationError:
            await self._flush()
            raise
        except BaseException:
            await asyncio.gather(
                *(lane.land() for lane in self._lanes.values()), return_exceptions=True
            )
            raise
        await self._flush()

    async def _one(self, number: int, text: bytes) -> None:
        try:
            line = Line(text)
            topic = self._topic or line.topic
            message = message_again(
                topic, line.body, line.flag, line.properties, new_id=self._new_ids
            )
            if not line.body:
                raise MalformedLine("an empty body, which no broker takes")
        except MalformedLine as error:
            raise BadData(
                f"{self._source}, line {number}: {error}", hint=NextStep.CORRECT_THE_LINE
            ) from None
        source = _source(topic, line, number)
        target = self._sources.get(source)
        if target is None:
            target = self._sources[source] = await self._target(topic, line, source, number)
        before = self._done.get(source)
        if before is not None and number <= before.line:
            return  # sent by the import that was cut
        name = f"{topic}:{target.name}"
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(target)
        await self._rate.wait(1)
        await lane.put(message, source, number)

    async def _target(self, topic: str, line: Line, source: str, number: int) -> Target:
        """Where the lines of a source go. Raises Unavailable if they went elsewhere before."""
        targets = self._topics.get(topic)
        if targets is None:
            targets = self._topics[topic] = await self._targets_of(topic)
        if line.queue_id is None:
            target = targets.any(_turn(line, number))
        else:
            target = targets.of(line.broker_name, line.queue_id)
        before = self._done.get(source)
        check_same(target, None if before is None else before.to, source)
        return target

    async def _flush(self) -> None:
        for act in (_Lane.start, _Lane.land):
            ended = await asyncio.gather(
                *(act(lane) for lane in self._lanes.values()), return_exceptions=True
            )
            for error in ended:
                if error is not None:
                    raise error

    def save(self) -> None:
        """Save how far each source has come."""
        done = dict(self._done)
        for lane in self._lanes.values():
            for source, line in lane.done.items():
                done[source] = Done(line, lane.target.name)
        self._save(done)

    def targets(self) -> list[Target]:
        """The queues that got messages."""
        return [target for targets in self._topics.values() for target in targets.all()]


def _source(topic: str, line: Line, number: int) -> str:
    if line.queue_id is None:
        return f"{topic}:any queue, {_turn(line, number)} of {_SPREAD}"
    return f"{topic}:{line.broker_name}:{line.queue_id}"


def _turn(line: Line, number: int) -> int:
    """Lines that name no queue go by turns, but those of one sharding key keep their order."""
    key = line.properties.get(PropertyKey.SHARDING_KEY)
    return (number - 1 if key is None else crc32(key.encode())) % _SPREAD


def load_state(path: Path, asked: dict[str, Any]) -> dict[str, Done]:
    """The state of a cut import of the same; empty where there is none. Raises BadData."""
    try:
        return {
            source: Done(int(values["line"]), str(values["to"]))
            for source, values in resumable.load(path, asked, "an import").items()
        }
    except (LookupError, ValueError, TypeError) as error:
        raise unreadable(f"{path} is not the state of an import: {error!r}") from None


def save_state(path: Path, asked: dict[str, Any], done: dict[str, Done]) -> None:
    """Raises CannotWrite."""
    resumable.save(path, asked, {source: item._asdict() for source, item in done.items()})
