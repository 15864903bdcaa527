"""Who sent what and what was acknowledged: senders that can lose their broker, and the audit after.

Every attempt has an id of its own, which is the body's beginning; nothing is sent twice. So after
any number of crashes each acknowledged id must be stored exactly once, an id that was sent and not
acknowledged at most once, and nothing else may be there.
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

from mq.client.errors import MQError
from mq.client.session import Session
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import decode_records

TOPIC = "ledger"
QUEUES = 4
_IN_FLIGHT = 16


def send_command(identity: str, queue_id: int, size: int) -> Command:
    """A send whose body begins with an identity."""
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
    """A process that sends until told to stop, to whatever address a file names.

    It writes a line "s ID" before each attempt and "a ID" after each acknowledgement.
    """

    def __init__(self, folder: Path, number: int, address_file: Path) -> None:
        self.ledger = folder / f"sender-{number}"
        context = multiprocessing.get_context("spawn")
        self._stop: Event = context.Event()
        self._process = context.Process(
            target=_run_sender,
            args=(self.ledger, f"p{number}", address_file, self._stop),
            daemon=True,
        )

    def start(self) -> None:
        self._process.start()

    @property
    def acknowledged(self) -> int:
        """How many messages, so far."""
        return self.ledger.read_text().count("a ") if self.ledger.exists() else 0

    def stop(self) -> None:
        self._stop.set()
        self._process.join(30)
        assert self._process.exitcode == 0, f"a sender ended with {self._process.exitcode}"


def _run_sender(ledger: Path, name: str, address_file: Path, stop: Event) -> None:
    asyncio.run(_send_until_stopped(ledger, name, address_file, stop))


async def _send_until_stopped(ledger: Path, name: str, address_file: Path, stop: Event) -> None:
    numbers = itertools.count()
    with open(ledger, "a", buffering=1) as book:  # line by line: this process is never killed
        async with Session("127.0.0.1:1", timeout=2) as session:

            async def send() -> None:
                while not stop.is_set():
                    number = next(numbers)
                    identity = f"{name}-{os.getpid()}-{number:08d}"
                    command = send_command(identity, number % QUEUES, 100 + number % 900)
                    book.write(f"s {identity}\n")
                    try:
                        answer = await session.invoke(address_file.read_text(), command)
                    except (MQError, OSError):
                        await asyncio.sleep(0.02)  # the broker is being restarted
                        continue
                    if answer.code == 0:
                        book.write(f"a {identity}\n")
                    else:
                        await asyncio.sleep(0.02)

            await asyncio.gather(*(send() for _ in range(_IN_FLIGHT)))


@dataclass
class Audit:
    """What the ledgers say against what the broker has."""

    sent: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
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

    def check(self) -> None:
        """Raise AssertionError with examples if a promise was broken."""
        for what in ("lost", "doubled", "invented"):
            found = getattr(self, what)
            assert not found, f"{len(found)} messages {what}, for example {sorted(found)[:5]}"


def audit(folder: Path, address: str) -> Audit:
    """Read every ledger and every queue."""
    result = Audit()
    for ledger in folder.glob("sender-*"):
        for line in ledger.read_text().splitlines():
            kind, _, identity = line.partition(" ")
            (result.sent if kind == "s" else result.acknowledged).add(identity)
    result.stored = asyncio.run(read_all(address))
    return result


async def read_all(address: str) -> Counter[str]:
    """The identity of every message of the topic, pulled as a consumer would."""
    found: Counter[str] = Counter()
    async with Session("127.0.0.1:1", timeout=5) as session:
        for queue_id in range(QUEUES):
            offset = await _minimum(session, address, queue_id)
            while True:
                answer = await session.invoke(address, _pull(queue_id, offset))
                if answer.code in (0, 20):
                    for message in decode_records(answer.body):
                        assert message.queue_offset >= offset
                        found[message.body.rstrip(b".").decode()] += 1
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
