"""Sends the messages of a file of JSON lines.

Lines are read in order and distributed to their target queues; each queue has one batch in flight
while the next one is collected. The state for resuming an interrupted import is keyed by the
source: for each queue that lines come from, the last of its lines that is stored, and their target.
The target must not change: if a broker had left the routes meanwhile, its lines would go to another
queue, where their order and the stored part mean nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from mq.client.operations.errors import BadData, InvalidRequest, NextStep, OperationError
from mq.client.operations.messages import resumable
from mq.client.operations.messages.delays import DelayLimits
from mq.client.operations.messages.lanes import Lane
from mq.client.operations.messages.line_source import LineSource
from mq.client.operations.messages.lines import (
    LONGEST_LINE,
    Line,
    MalformedLine,
    message_again,
    messages_of,
)
from mq.client.operations.messages.rate import Rate
from mq.client.operations.messages.resumable import unreadable
from mq.client.operations.messages.sending import (
    ITS_OWN_FAULT,
    Target,
    Targets,
    check_same,
    why_refused,
)
from mq.protocol.names import IllegalName, check_topic
from mq.protocol.properties import PropertyKey

if TYPE_CHECKING:
    from mq.protocol.message import Message

# The number of sources that represent lines without a queue; divisible by all usual numbers of
# queues.
_SPREAD = 240


class ImportProgress(NamedTuple):
    """The progress of the lines from one queue: the last stored line, and the target."""

    line: int
    to: str


class _Mark(NamedTuple):
    """The source of a message, its line, and the line up to which all are stored after it."""

    source: str
    line: int
    done: int


class _Lane(Lane[_Mark]):
    """A target queue."""

    def __init__(
        self,
        target: Target,
        failed: Callable[[], None],
        wrong: Callable[[int, str], BadData],
    ) -> None:
        """`failed` is called when a send fails, since no code may be waiting for it. `wrong`
        creates the error for a line whose message cannot be sent.
        """
        super().__init__(self._store)
        self.target = target
        self.done: dict[str, int] = {}  # the last stored line by source
        self._failed = failed
        self._wrong = wrong
        self._refused: BadData | None = None  # nothing is sent after that line

    async def _store(self, batch: "list[Message]", marks: list[_Mark]) -> None:
        if self._refused is not None:
            raise self._refused
        before = self.target.sent
        try:
            await self.target.send(batch)
        except ITS_OWN_FAULT as error:
            stored = self.target.sent - before
            self._note(marks[:stored])
            self._failed()
            self._refused = self._wrong(marks[stored].line, why_refused(error, self.target.queue))
            raise self._refused from error
        except BaseException:
            self._failed()
            raise
        self._note(marks)

    def _note(self, marks: list[_Mark]) -> None:
        self.done.update((mark.source, mark.done) for mark in marks)


class Importer:
    """Sends the lines of a file to one topic, or each line to its own topic."""

    def __init__(
        self,
        targets_of: Callable[[str], Awaitable[Targets]],
        *,
        source: str,
        topic: str | None,
        new_ids: bool,
        rate: Rate,
        can_go_on: bool = True,
        done: dict[str, ImportProgress],
    ) -> None:
        """`targets_of` finds the targets of a topic. `done` is the state of an interrupted import,
        by source; without `can_go_on` no state is kept.
        """
        self._targets_of = targets_of
        self._source = source
        self._topic = topic
        self._new_ids = new_ids
        self._rate = rate
        self._can_go_on = can_go_on
        self._done = done
        self._topics: dict[str, Targets] = {}
        self._sources: dict[str, Target] = {}
        self._lanes: dict[str, _Lane] = {}
        self._stop: Callable[[], None] = lambda: None

    async def run(self, source: LineSource) -> None:
        """Send all lines. Raises BadData for an invalid line, MQError of a broker.

        After an invalid line all lines before it have been sent, and after one that a broker
        refuses possibly some later ones; `done` returns what was sent.
        """
        self._stop = source.end
        try:
            try:
                await self._lines(source)
            except (OperationError, OSError):  # an invalid line, or the input cannot be read
                await self._flush()
                raise
            await self._flush()
        except BaseException:  # wait for the result of batches in flight
            await asyncio.gather(
                *(lane.land() for lane in self._lanes.values()), return_exceptions=True
            )
            raise

    async def _lines(self, source: LineSource) -> None:
        number = 0
        async for lines in source:
            if not lines:
                self._hurry()
            for line in lines:
                number += 1
                if line.strip():
                    await self._one(number, line)

    def _hurry(self) -> None:
        for lane in self._lanes.values():
            lane.hurry()

    async def _one(self, number: int, text: bytes) -> None:
        try:
            if len(text) > LONGEST_LINE:
                raise MalformedLine(f"longer than {LONGEST_LINE:,} bytes")
            found = [(line, self._message(line)) for line in messages_of(text)]
        except (MalformedLine, InvalidRequest, IllegalName) as error:
            raise self._wrong(number, str(error), NextStep.SEND_THE_REST) from None
        for place, (line, message) in enumerate(found, 1):
            source = _source(message.topic, line, number)
            target = self._sources.get(source)
            if target is None:
                target = await self._target(message.topic, line, source, number)
                self._sources[source] = target
            before = self._done.get(source)
            if before is not None and number <= before.line:
                continue  # sent by the interrupted import
            name = f"{message.topic}:{target.name}"
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = _Lane(target, self._stop, self._refused)
            if self._rate.pauses:
                self._hurry()
            await self._rate.wait(1)
            # Until the last message of a line is stored, only the lines before it are done.
            done = number if place == len(found) else number - 1
            if lane.add(message, _Mark(source, number, done)):
                await lane.start()

    def _refused(self, number: int, why: str) -> BadData:
        return self._wrong(number, why, NextStep.SEND_FROM_A_FILE)

    def _wrong(self, number: int, why: str, of_a_pipe: NextStep) -> BadData:
        hint = NextStep.CORRECT_THE_LINE if self._can_go_on else of_a_pipe
        return BadData(f"{self._source}, line {number}: {why}", hint=hint)

    def _message(self, line: Line) -> "Message":
        topic = self._topic or line.topic
        if not topic:
            raise MalformedLine("topic is missing")
        if topic not in self._topics:
            check_topic(topic)
        if not line.body:
            raise MalformedLine("an empty body, which no broker takes")
        message = message_again(topic, line.body, line.flag, line.properties, new_id=self._new_ids)
        if line.delay is not None:
            DelayLimits().delay(message, line.delay, int(time.time() * 1000))
        return message

    async def _target(self, topic: str, line: Line, source: str, number: int) -> Target:
        """Return the target of the lines of a source. Raises Unavailable if it was another one
        before.
        """
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

    def done(self) -> dict[str, ImportProgress]:
        """Return the progress of each source."""
        done = dict(self._done)
        for lane in self._lanes.values():
            for source, line in lane.done.items():
                done[source] = ImportProgress(line, lane.target.name)
        return done

    def targets(self) -> list[Target]:
        """Return the queues that received messages."""
        return [target for targets in self._topics.values() for target in targets.all()]


def _source(topic: str, line: Line, number: int) -> str:
    if line.queue_id is None:
        return f"{topic}:any queue, {_turn(line, number)} of {_SPREAD}"
    return f"{topic}:{line.broker_name}:{line.queue_id}"


def _turn(line: Line, number: int) -> int:
    """Assign lines without a queue in turn; lines with the same sharding key stay together."""
    key = line.properties.get(PropertyKey.SHARDING_KEY)
    return (number - 1 if key is None else crc32(key.encode())) % _SPREAD


def load_state(path: Path, asked: dict[str, Any]) -> dict[str, ImportProgress]:
    """Load the state of an interrupted run of the same import; empty if there is none. Raises
    BadData.
    """
    try:
        return {
            source: ImportProgress(int(values["line"]), str(values["to"]))
            for source, values in resumable.load(path, asked, "an import").queues.items()
        }
    except (LookupError, ValueError, TypeError) as error:
        raise unreadable(f"{path} is not the state of an import: {error!r}") from None


def save_state(path: Path, asked: dict[str, Any], done: dict[str, ImportProgress]) -> None:
    """Raises CannotWrite."""
    resumable.save(path, asked, {source: item._asdict() for source, item in done.items()})
