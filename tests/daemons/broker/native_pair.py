"""Two brokers that get the same bytes, one of which serves sends natively."""

import asyncio
import json
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mq.client.machine import clock, random_ids
from mq.daemons.broker.transactions.native_halves import NativeHalves
from mq.daemons.channel import Channel
from mq.protocol.codes import Dialect, RequestCode, ResponseCode
from mq.protocol.command_reader import CommandReader
from mq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from mq.protocol.headers.transaction import pack_halves
from mq.protocol.message_id import decode_offset_id
from tests.daemons.broker.harness import Harness
from tests.daemons.written import Written, connected

NOW = 1_700_000_000_000  # the time of both
FIELDS = {
    **{"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1699999999999"},
    **{"h": "0", "i": "", "j": "0", "k": "false", "l": "16", "m": "false"},
}
HEADER = {"code": 310, "flag": 0, "language": "JAVA", "opaque": 7, "version": 409}


#: Offsets of a message in the log and in its queue.
Place = tuple[int, int]
#: The input, each on the connection with a number; None if its peer disconnects.
Pieces = Sequence[tuple[int, bytes | None]]


def plain(**fields: str) -> bytes:
    """A send as clients write it."""
    return framed({**HEADER, "extFields": FIELDS | fields})


def alone(**fields: str) -> bytes:
    """The same without blanks, as of a client that waits for each reply."""
    return framed({**HEADER, "extFields": FIELDS | fields}, blanks=False)


def framed(header: Mapping[str, object], body: bytes = b"", *, blanks: bool = True) -> bytes:
    """A request with a header in JSON."""
    text = json.dumps(header, separators=None if blanks else (",", ":")).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


# The names of a send's fields in the first version of its header.
WORDS = {
    letter.wire: word.wire
    for letter in SendMessageRequestHeaderV2.FIELDS
    for word in SendMessageRequestHeader.FIELDS
    if letter.name == word.name
}


def in_words(header: Mapping[str, object]) -> dict[str, object]:
    """A send in the first version of its header."""
    fields = header["extFields"]
    assert isinstance(fields, dict)
    named = {WORDS.get(name, name): value for name, value in fields.items()}
    return {**header, "code": 10, "extFields": named}


def in_binary(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """A request with a header in RocketMQ's binary form; numbers are cut to their size."""
    fields = b""
    for name, value in header["extFields"].items():
        one, other = (str(text).encode(errors="replace") for text in (name, value))
        fields += struct.pack(">h", len(one)) + one + struct.pack(">i", len(other)) + other
    numbers = [header[name] for name in ("code", "opaque", "flag")]
    code, opaque, flag = (number if isinstance(number, int) else 0 for number in numbers)
    head = struct.pack(">HbhII", code & 0xFFFF, 0, 409, opaque & 0xFFFFFFFF, flag & 0xFFFFFFFF)
    text = head + struct.pack(">ii", 0, len(fields)) + fields
    return struct.pack(">ii", 4 + len(text) + len(body), 1 << 24 | len(text)) + text + body


def ended(places: Sequence[Place], group: str, how: str) -> bytes:
    """A request that ends halves."""
    (physical, offset), *more = places
    fields = {"producerGroup": group, "tranStateTableOffset": str(offset), "msgId": "id"}
    fields |= {"commitLogOffset": str(physical), "commitOrRollback": how}
    header = {**HEADER, "code": RequestCode.END_TRANSACTION, "extFields": fields}
    return framed(header, pack_halves(more))


def places_in(replies: bytes, wanted: Callable[[int], bool] = lambda opaque: True) -> list[Place]:
    """The positions of the messages in the replies to these requests."""
    places = []
    for reply in CommandReader().receive(replies):
        if reply.code == ResponseCode.SUCCESS and "msgId" in reply.fields and wanted(reply.opaque):
            first = int(reply.fields["queueOffset"])
            for number, text in enumerate(reply.fields["msgId"].split(",")):
                places.append((decode_offset_id(text).offset, first + number))
    return places


# The queues are known from here on, and sends to them may be served natively.
TO_EACH_QUEUE = b"".join(plain(e=str(queue)) for queue in range(3)) + plain()

# Files roll in the middle of the input; a slot of the index holds several keys.
SMALL = {"mappedFileSizeCommitLog": "20000", "maxHashSlotNum": "50", "maxIndexNum": "40"}


class OneBroker:
    """A broker that gets bytes, and uses its native path or not."""

    def __init__(self, root: Path, is_native: bool, settings: Mapping[str, str] = SMALL) -> None:
        self._root = root
        self._settings = settings
        self._is_native = is_native
        self._seen = 0  # position in the log
        self.taken = 0  # calls that served a request

    async def start(self) -> None:
        self._broker = await Harness(self._root, self._settings).__aenter__()
        defer = self._broker.services.sends.native.defer
        taking = (self._bulk, defer) if self._is_native else (None, None)
        self._broker.listener.dispatcher.serve_bulk(*taking)
        if not self._is_native:
            self._broker.delivery.transactions.native.leave_to_python()

    def _bulk(self, data: bytes, position: int, channel: Channel) -> int:
        bulk = self._broker.services.sends.native.bulk
        assert bulk is not None, "the native path has failed"
        behind = bulk(data, position, channel)
        self.taken += behind > position
        return behind

    def together(self) -> list[int]:
        """Record how many sends of several connections each call serves from now on."""
        sends, taken = self._broker.services.sends.native, list[int]()
        take = sends._take_each

        def counted(alone: Any, begin: int) -> int:
            taken.append(take(alone, begin))
            return taken[-1]

        sends._take_each = counted  # type: ignore[assignment, method-assign]
        return taken

    @property
    def is_taking(self) -> bool:
        """Whether the native path has not failed."""
        return self._broker.services.sends.native.bulk is not None

    async def stop(self) -> None:
        await self._broker.__aexit__()

    async def take(self, data: list[bytes], relayed: bool = False) -> tuple[object, ...]:
        """The replies to these bytes, in so many pieces, and what they have stored; `relayed` by a
        snode.
        """
        channel, transport = connected(self._broker.listener, Written())
        channel.dialect = Dialect.SNODE if relayed else Dialect.ORDINARY
        try:
            for piece in data:
                if not transport.closed:
                    channel.data_received(piece)
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            channel.connection_lost(None)  # the listener waits for it when it closes
        return (self._anywhere(transport.data), transport.closed, *self._stored())

    async def take_together(self, data: Pieces) -> tuple[Pieces, tuple[object, ...]]:
        """The same for input of one iteration of the loop, on connections with these numbers; and
        the order in which it is served.
        """
        made = {
            number: connected(self._broker.listener, Written())
            for number in {number for number, _ in data}
        }
        served, defer = list[tuple[int, bytes | None]](), list[tuple[int, bytes | None]]()
        sends, lost = self._broker.services.sends.native, set[int]()
        try:
            for number, piece in data:
                channel, transport = made[number]
                before = dict(sends._alone)
                if piece is None:
                    lost.add(number)
                    channel.connection_lost(None)
                elif not transport.closed:
                    channel.data_received(piece)
                if any(sends._alone.get(one) is not frame for one, frame in before.items()):
                    served += defer
                    defer.clear()
                (defer if channel in sends._alone else served).append((number, piece))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            for number in made.keys() - lost:
                made[number][0].connection_lost(None)
        # A disconnected peer gets a reply if its request was not deferred until then.
        kept = [made[number][1] for number in sorted(made.keys() - lost)]
        answers = [(self._anywhere(one.data), one.closed) for one in kept]
        return served + defer, (answers, *self._stored())

    def _anywhere(self, replies: bytes) -> bytes:
        """Without its own folder: damage also creates requests for the settings."""
        return replies.replace(str(self._root).encode(), b"ROOT")

    def _stored(self) -> tuple[object, ...]:
        store = self._broker.stores.messages
        stored, self._seen = self._log_from(self._seen), store.log.written
        ends = {(one.topic, one.queue_id): (one.readable, one.put_bytes) for one in store.queues}
        index = store.key_index
        assert index is not None
        items = [(file.count, file.used_slots, file.end_offset) for file in index.files]
        return stored, ends, items, store.appender.publisher.messages

    def _log_from(self, start: int) -> bytes:
        log = self._broker.stores.messages.log
        return b"".join(
            bytes(file.view[max(0, start - file.start) : max(0, log.written - file.start)])
            for file in log.files
        )

    def files(self) -> dict[str, bytes]:
        """Queues and index, as written."""
        store = self._root / "store"
        folders = (store / "consumequeue", store / "commitlog")
        found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
        index = [path.read_bytes() for path in sorted((store / "index").iterdir())]
        named = {str(path.relative_to(store)): path.read_bytes() for path in found}
        return named | {f"index {number}": data for number, data in enumerate(index)}


class Pair:
    """Two brokers, one of which serves sends natively, with a stopped clock."""

    def __init__(self, root: Path, settings: Mapping[str, str] = SMALL) -> None:
        self.brokers = [
            OneBroker(root / f"{native:d}", native, settings) for native in (True, False)
        ]
        self._runner = asyncio.Runner()
        for broker in self.brokers:
            broker._root.mkdir(parents=True)
            self._runner.run(broker.start())

    def compare(self, data: list[bytes], relayed: bool = False) -> bytes:
        """The replies of both, which must be equal, like the data that they store."""
        run = self._runner.get_loop().run_until_complete  # Runner.run takes longer than a broker
        ours, theirs = (run(broker.take(data, relayed)) for broker in self.brokers)
        assert ours == theirs
        replies = ours[0]
        assert isinstance(replies, bytes)
        return replies

    def compare_together(self, data: Pieces) -> bytes:
        """The replies of both to input on so many connections at once, likewise. Deferred sends are
        served after later ones of other connections: Python gets them in the same order.
        """
        run = self._runner.get_loop().run_until_complete
        order, ours = run(self.brokers[0].take_together(data))
        _, theirs = run(self.brokers[1].take_together(order))
        assert ours == theirs
        answers = ours[0]
        assert isinstance(answers, list)
        return b"".join(data for data, _ in answers)

    def close(self) -> None:
        for broker in self.brokers:
            self._runner.run(broker.stop())
        self._runner.close()


def stand_still(patch: Callable[[object, str, object], None]) -> None:
    """Make clock and random numbers equal for both brokers: `patch` sets an attribute."""
    patch(clock, "milliseconds", lambda: NOW)
    # Of the queues for a message that names none.
    patch(random_ids, "randrange", lambda *bounds: bounds[-1] - 1)


def counting(name: str, taken: Counter[str]) -> Callable[..., object]:
    """A method of `NativeHalves` that counts its successful calls."""
    method = getattr(NativeHalves, name)

    def call(self: NativeHalves, *given: object) -> object:
        done = method(self, *given)
        taken[name] += done is not None
        return done

    return call
