"""Sending the messages of a file of JSON lines.

Lines are read in order and shared out to the queues that they go to; each queue has one batch on
its way and the next one collected. How far each queue has come, in lines of the file, is the state
that a cut import goes on from.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from mq.cli import local_files
from mq.cli.errors import CommandError
from mq.cli.message_choice import Rate, unreadable
from mq.cli.message_lines import Line, MalformedLine, message_again
from mq.cli.message_sending import BATCH_MESSAGES, Target, Targets
from mq.cli.status import Status

if TYPE_CHECKING:
    from mq.protocol.message import Message

SAVE_SECONDS = 5.0
_BATCH_BYTES = 1024 * 1024  # collected for a queue at most


class _Lane:
    """What waits for a target queue, and what is on its way there."""

    def __init__(self, target: Target, done: int) -> None:
        self.target = target
        self.done = done  # the last line that is stored
        self._waiting: list[Message] = []
        self._bytes = 0
        self._last = done
        self._flight: asyncio.Task[None] | None = None

    async def put(self, message: "Message", line: int) -> None:
        self._waiting.append(message)
        self._bytes += len(message.body)
        self._last = line
        if len(self._waiting) >= BATCH_MESSAGES or self._bytes >= _BATCH_BYTES:
            await self.start()

    async def start(self) -> None:
        """Wait for what is on its way, and send what waits. Raises MQError of the former."""
        await self.land()
        if self._waiting:
            batch, self._waiting, self._bytes = self._waiting, [], 0
            self._flight = asyncio.ensure_future(self._send(batch, self._last))

    async def land(self) -> None:
        flight, self._flight = self._flight, None
        if flight is not None:
            await flight

    async def _send(self, batch: "list[Message]", last: int) -> None:
        await self.target.send(batch)
        self.done = last


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
        done: dict[str, int],
        save: Callable[[dict[str, int]], None],
        step: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`targets_of` finds the targets of a topic. `done` is the state of a cut import: the last
        line that is stored, by queue. `save` gets that every few seconds; `step` is told the bytes
        that were read.
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
        self._lanes: dict[str, _Lane] = {}

    async def run(self, file: BinaryIO) -> None:
        """Send all lines. Raises CommandError for a line that is wrong, MQError of a broker.

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
        except CommandError:
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
            raise CommandError(
                f"{self._source}, line {number}: {error}",
                hint="the lines before it are sent; correct it and go on with --resume",
                status=Status.BAD_DATA,
            ) from None
        targets = self._topics.get(topic)
        if targets is None:
            targets = self._topics[topic] = await self._targets_of(topic)
        target = targets.of(line.broker_name, line.queue_id)
        name = f"{topic}:{target.queue.broker_name}:{target.queue.queue_id}"
        if number <= self._done.get(name, 0):
            return  # sent by the import that was cut
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(target, self._done.get(name, 0))
        await self._rate.wait(1)
        await lane.put(message, number)

    async def _flush(self) -> None:
        for act in (_Lane.start, _Lane.land):
            ended = await asyncio.gather(
                *(act(lane) for lane in self._lanes.values()), return_exceptions=True
            )
            for error in ended:
                if error is not None:
                    raise error

    def save(self) -> None:
        """Save the last line that is stored, by queue."""
        self._save({**self._done, **{name: lane.done for name, lane in self._lanes.items()}})

    def targets(self) -> list[Target]:
        """The queues that got messages."""
        return [target for targets in self._topics.values() for target in targets.all()]


def load_state(path: Path, asked: dict[str, Any]) -> dict[str, int]:
    """The state of a cut import of the same; empty where there is none. Raises CommandError."""
    import orjson

    try:
        state = orjson.loads(path.read_bytes())
        lines = {str(name): int(line) for name, line in state["lines"].items()}
        same = state["asked"] == asked
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise unreadable(f"{path} is not the state of an import: {error!r}") from None
    if not same:
        raise unreadable(f"{path} is of another import: {state['asked']}")
    return lines


def save_state(path: Path, asked: dict[str, Any], lines: dict[str, int]) -> None:
    """Raises CommandError."""
    import orjson

    content = orjson.dumps({"asked": asked, "lines": lines}, option=orjson.OPT_INDENT_2)
    local_files.replace(path, content)
