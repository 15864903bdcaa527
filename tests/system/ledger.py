"""Ledgers of sent and acknowledged messages: senders that can lose their broker, and the final
audit.

Every attempt has its own id, with which the body starts; nothing is sent twice. So after any number
of crashes each acknowledged id must be stored exactly once, an id that was sent and not
acknowledged at most once, and nothing else may exist. A sender has lanes: the messages of a lane go
to one queue, each when the previous one was answered or given up, and are stored there in that
order.
"""

import asyncio
import itertools
import multiprocessing
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import decode_records

TOPIC = "ledger"
QUEUES = 4
_LANES = 16


class Place(NamedTuple):
    """The place of a message in the topic."""

    queue: int
    offset: int


def identity_of(body: bytes) -> str:
    """The id of a body."""
    return body.rstrip(b".").decode()


def send_command(identity: str, queue_id: int, size: int) -> Command:
    """A send whose body starts with an id."""
    fields = {
        "a": "ledger",
        "b": TOPIC,
        "c": "TBW102",
        "d": str(QUEUES),
        "e": str(queue_id),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": f"KEYS\x01{identity}",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    body = identity.encode().ljust(size, b".")
    return Command(RequestCode.SEND_MESSAGE_V2, fields, body)


class SenderProcess:
    """A process that sends, until stopped, to the address in a file.

    It writes a line "s ID" before each attempt and "a ID" after each acknowledgement. Each lane
    pauses for some seconds between two messages.
    """

    def __init__(
        self, folder: Path, number: int, address_file: Path, *, pause: float = 0.0
    ) -> None:
        self.ledger = folder / f"sender-{number}"
        self._counted = self._read = 0
        context = multiprocessing.get_context("spawn")
        self._stop: Event = context.Event()
        self._process = context.Process(
            target=_run_sender,
            args=(self.ledger, f"p{number}", address_file, pause, self._stop),
            daemon=True,
        )

    def start(self) -> None:
        self._process.start()

    @property
    def acknowledged(self) -> int:
        """The number of messages so far."""
        if self.ledger.exists():
            with open(self.ledger, "rb") as book:
                book.seek(self._read)
                text = book.read()
            self._read += len(text)
            self._counted += text.count(b"a ")
        return self._counted

    def stop(self) -> None:
        self._stop.set()
        self._process.join(30)
        assert self._process.exitcode == 0, f"a sender ended with {self._process.exitcode}"


def _run_sender(ledger: Path, name: str, address_file: Path, pause: float, stop: Event) -> None:
    asyncio.run(_send_until_stopped(ledger, name, address_file, pause, stop))


async def _send_until_stopped(
    ledger: Path, name: str, address_file: Path, pause: float, stop: Event
) -> None:
    with open(ledger, "a", buffering=1) as book:  # line by line: this process is never killed
        async with Session("127.0.0.1:1", timeout=2) as session:

            async def send(lane: int) -> None:
                for number in itertools.count():
                    if stop.is_set():
                        return
                    identity = f"{name}-{os.getpid()}-{lane:02d}-{number:08d}"
                    command = send_command(identity, lane % QUEUES, 100 + number % 900)
                    book.write(f"s {identity}\n")
                    try:
                        answer = await session.invoke(address_file.read_text(), command)
                    except (MQError, OSError):
                        await asyncio.sleep(0.02)  # the broker is being restarted
                        continue
                    if answer.code == 0:
                        book.write(f"a {identity}\n")
                        if pause:
                            await asyncio.sleep(pause)
                    else:
                        await asyncio.sleep(0.02)

            await asyncio.gather(*(send(lane) for lane in range(_LANES)))


@dataclass
class Audit:
    """Compare the ledgers with the broker's messages."""

    sent: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    places: dict[Place, str] = field(default_factory=dict)
    stored: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> set[str]:
        return self.acknowledged - self.stored.keys()

    @property
    def doubled(self) -> set[str]:
        return {identity for identity, times in self.stored.items() if times > 1}

    @property
    def invented(self) -> set[str]:
        return self.stored.keys() - self.sent

    @property
    def disordered(self) -> set[str]:
        """The messages that are stored after a later one of their lane."""
        last: dict[str, str] = {}
        found = set()
        for _, identity in sorted(self.places.items()):
            lane, _, number = identity.rpartition("-")
            if number <= last.get(lane, ""):
                found.add(identity)
            last[lane] = max(number, last.get(lane, ""))
        return found

    def check(self) -> None:
        """Raise AssertionError with examples if a promise was broken."""
        for what in ("lost", "doubled", "invented", "disordered"):
            found = getattr(self, what)
            assert not found, f"{len(found)} messages {what}, for example {sorted(found)[:5]}"


def audit(folder: Path, address: str) -> Audit:
    """Read every ledger and every queue."""
    result = Audit()
    for ledger in folder.glob("sender-*"):
        for line in ledger.read_text().splitlines():
            kind, _, identity = line.partition(" ")
            (result.sent if kind == "s" else result.acknowledged).add(identity)
    result.places = asyncio.run(read_places(address))
    result.stored = Counter(result.places.values())
    return result


async def read_all(address: str) -> Counter[str]:
    """The id of every message of the topic, pulled as by a consumer."""
    return Counter((await read_places(address)).values())


async def read_places(address: str) -> dict[Place, str]:
    """The ids by queue and offset."""
    found: dict[Place, str] = {}
    async with Session("127.0.0.1:1", timeout=5) as session:
        for queue_id in range(QUEUES):
            offset = await _minimum(session, address, queue_id)
            while True:
                answer = await session.invoke(address, _pull(queue_id, offset))
                if answer.code in (0, 20):
                    for message in decode_records(answer.body):
                        assert message.queue_offset >= offset
                        place = Place(queue_id, message.queue_offset)
                        found[place] = identity_of(message.body)
                    following = int(answer.fields["nextBeginOffset"])
                    assert following > offset, "a pull that does not move on"
                    offset = following
                elif answer.code in (17, 19, 21):  # no topic, the end, an empty queue
                    break
                else:
                    raise AssertionError(f"pull: {answer}")
    return found


async def _minimum(session: Session, address: str, queue_id: int) -> int:
    fields = {"topic": TOPIC, "queueId": str(queue_id)}
    answer = await session.invoke(address, Command(RequestCode.GET_MIN_OFFSET, fields))
    return int(answer.fields["offset"])


def _pull(queue_id: int, offset: int) -> Command:
    fields = {
        "consumerGroup": "ledger-audit",
        "topic": TOPIC,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    return Command(RequestCode.PULL_MESSAGE, fields)
