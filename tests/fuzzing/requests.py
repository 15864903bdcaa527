"""Requests of every code to a broker in this process: no handler may fail unexpectedly.

An input is a script: the code, the form of the header, a value for each field of the code's header,
and the body. Replies are searched for the name of an exception, which a peer gets if a handler
fails with an unhandled error.
"""

import asyncio
import json
import re
import shutil
import struct
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.channel import Channel
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.command import JSON, ROCKETMQ, Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.errors import LocalProtocolError
from mq.protocol.frame import encode
from mq.protocol.versions import CURRENT_VERSION
from tests.fuzzing.targets import BY_NUMBER

# A reply with one of these is an unhandled error.
UNFORESEEN = re.compile(r"^(?!RemoteProtocolError)[A-Za-z_]*(Error|Exception|error): ")
WORDS = [
    *("", "0", "1", "-1", "3", "7", "2147483647", "-2147483648", "9223372036854775807", "1e3"),
    *("true", "false", "null", "T", "TBW102", "%RETRY%g", "%DLQ%g", "g", "broker-a", "*", "A || B"),
    *("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "DefaultCluster"),
    *("127.0.0.1:10911", "7F00000100002A9F0000000000000000", "TAGS\x01A\x02KEYS\x01k\x02"),
    *(
        "DELAY\x013\x02",
        "TRAN_MSG\x01true\x02",
        "TIMER_DELAY_MS\x011\x02",
        "\ud800",
        "é",
        "x" * 300,
    ),
]
NUMBERS = ["0", "1", "2", "-1", "3", "8", "32", "1700000000000", "2147483647", "-2147483648"]
VALUES = {
    "i32": NUMBERS[:7] + NUMBERS[8:],
    "i64": [*NUMBERS, "9223372036854775807", "-9223372036854775808"],
    "bool": ["false", "true"],
    "float": ["0", "0.5", "1e308", "NaN", "-Infinity"],
}
BODIES = [
    b"",
    b"{}",
    b"[]",
    b"hello",
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T",'
    b'"subString":"*"}]}],"producerDataSet":[{"groupName":"p"}]}',
    b'{"topicConfigList":[{"topicName":"T","readQueueNums":1,"writeQueueNums":1,"perm":6}]}',
    b"maxMessageSize=4194304\n",
    b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"T","brokerName":"broker-a","queueId":0}]}',
]
MOST_WAITED = 100  # ms for an answer
RESTART_AFTER = 20_000  # inputs: topics and groups they make pile up


class Transport(asyncio.Transport):
    """Keeps what the daemon writes."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 4711), "sockname": ("127.0.0.1", 10911)})
        self.written = bytearray()
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever full here."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close


class Script:
    """Reads choices from the bytes of an input; zeros after its end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1] if self.position <= len(self.data) else 0

    def text(self) -> str:
        length = self.byte() % 32
        self.position += length
        return self.data[self.position - length : self.position].decode("utf-8", "replace")

    def rest(self) -> bytes:
        return self.data[self.position :]


def command_of(data: bytes, codes: list[int]) -> Command:
    """The request that an input stands for."""
    script = Script(data)
    code = codes[script.byte() % len(codes)]
    form = script.byte()
    header = BY_NUMBER.get(code)
    fields = {}
    for field in header.FIELDS if header is not None else ():
        choice = script.byte()
        if choice < 180:
            words = WORDS if field.kind == "text" else VALUES[field.kind]
            fields[field.wire] = words[choice % len(words)]
        elif choice < 200:
            fields[field.wire] = WORDS[choice % len(WORDS)]
        elif choice < 230:
            fields[field.wire] = script.text()
    if form & 64:
        fields[script.text()] = script.text()
    choice = script.byte()
    body = script.rest() if choice >= 128 else BODIES[choice % len(BODIES)]
    return Command(code, fields, body, opaque=1, serialization=ROCKETMQ if form & 1 else JSON)


def frame_of(command: Command) -> bytes:
    """Return a frame as a peer may write it, including text that is not Unicode."""
    if command.serialization == ROCKETMQ:
        return encode(command)
    header = json.dumps(
        {
            "code": command.code,
            "language": "JAVA",
            "version": CURRENT_VERSION,
            "opaque": command.opaque,
            "flag": 0,
            "extFields": dict(command.fields),
        }
    ).encode()
    body = bytes(command.body)
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


class Daemon:
    """A daemon, a connection to it, and an event loop to run both."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.inputs = 0
        self.loop = asyncio.new_event_loop()
        self.root = Path()
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        self.parts = AsyncExitStack()
        shm = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.daemon: Broker | NameServer
        if self.kind == "namesrv":
            self.daemon = NameServer(
                NamesrvSettings.load(
                    None, {"listenPort": "0", "kvConfigPath": str(self.root / "kv.json")}
                )
            )
        else:
            settings = {
                "listenPort": "0",
                "brokerName": "broker-a",
                "storePathRootDir": str(self.root / "store"),
                "mappedFileSizeCommitLog": str(64 << 20),
                "mappedFileSizeConsumeQueue": "20000",
            }
            self.daemon = Broker(BrokerSettings.load(None, settings))
        await self.parts.enter_async_context(self.daemon)
        self.codes = sorted(
            {
                *self.daemon.listener.dispatcher.handlers,
                *(code for code in self.daemon.listener.dispatcher.direct if isinstance(code, int)),
            }
        )

    async def _stop(self) -> None:
        await self.parts.aclose()
        shutil.rmtree(self.root, ignore_errors=True)

    def close(self) -> None:
        self.loop.run_until_complete(self._stop())
        self.loop.close()

    def run(self, data: bytes) -> None:
        """Send the request of an input, and raise AssertionError for an unexpected error."""
        self.inputs += 1
        if self.inputs % RESTART_AFTER == 0:
            self.loop.run_until_complete(self._stop())
            self.loop.run_until_complete(self._start())
        self.loop.run_until_complete(self._ask(data))

    async def _ask(self, data: bytes) -> None:
        try:
            request = frame_of(command_of(data, self.codes))
        except (LocalProtocolError, UnicodeEncodeError):
            return  # the binary header cannot carry it
        listener, transport = self.daemon.listener, Transport()
        channel = Channel(listener, listener.dispatcher)
        channel.connection_made(transport)
        channel.data_received(request)
        for _ in range(4):
            await asyncio.sleep(0)
        for _ in range(MOST_WAITED):  # answers that are computed in steps, or in a thread
            if transport.written or transport.closing or not self.daemon.listener.dispatcher.tasks:
                break
            await asyncio.sleep(0.001)
        channel.connection_lost(None)
        for reply in CommandReader().receive(bytes(transport.written)):
            remark = reply.remark or ""
            assert not UNFORESEEN.match(remark), f"{reply.code} {remark}"
        assert not self.daemon.tasks.failures, self.daemon.tasks.failures
