"""Requests of consumers to a filter server. Source: DefaultRequestProcessor of 4.2.0.

Java does not answer other codes at all; here they are refused as not supported.

The records of a pull: located, selected by a class, and rewritten for consumers.

Source: DefaultRequestProcessor.messageToByteBuffer of 4.2.0. There every matching message is
decoded and encoded again. The result has the same bytes unless its body is compressed, or must be,
so only such records are rewritten here.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable
from zlib import crc32

from mq.client.errors import MQError
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Overloaded, Refused
from mq.daemons.filtersrv.broker_link import BrokerLink
from mq.daemons.filtersrv.classes import Classes, Key, NoClass, TooMany, crc_of
from mq.daemons.filtersrv.config import FiltersrvSettings
from mq.daemons.filtersrv.folder import read_class
from mq.daemons.filtersrv.sandbox.process import FilterFailed, SandboxEnded
from mq.daemons.request_codes import serves
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.compression import CompressionType, compress
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import SysFlag
from mq.protocol.headers.filtersrv import RegisterMessageFilterClassRequestHeader
from mq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from mq.protocol.names import IllegalName, check_group, check_topic
from mq.protocol.record import (
    BLANK,
    CRC_MASK,
    IPV6_BITS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SMALLEST_RECORD,
    shift,
    struct_of,
)
from mq.protocol.record_codec import decode_record, encode_record
from mq.protocol.stored_message import StoredMessage

log = logging.getLogger(__name__)

_START = struct_of("size", "magic")
_SYS_FLAG = struct_of("sys_flag").unpack_from
_BODY_LENGTH = struct_of("body_length")
_QUEUE_OFFSET = struct_of("queue_offset")

# Names of classes: Java's are packages and a class; a plain name is accepted, too.
_CLASS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_MOST_NAME = 200
# Patterns of Java sources. Each is bounded, because a peer has written the text. The first one
# occurs in hardly any Python source, so it is checked before a process is started; the second may
# be in a comment.
_PACKAGE = re.compile(rb"^[ \t]*package[ \t]+[\w.]{1,200}[ \t]*;", re.MULTILINE)
_JAVA = re.compile(rb"\bclass[ \t]+\w{1,200}[^\n:{]{0,300}\{")
_IS_JAVA = (
    "it is written in Java, but filters are Python here: a class with match(message) or "
    "match(message, context)"
)

# The broker's code for found messages, and its codes that are passed to the consumer.
_FOUND = ResponseCode.SUCCESS
_RELAYED = frozenset(
    (
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
)


def places(records: bytes | memoryview) -> list[tuple[int, int]]:
    """The start and end of each record. A blank record, the end of a log file, ends the list.

    Raises RemoteProtocolError if the bytes are not a sequence of records.
    """
    found = []
    position, end = 0, len(records)
    while position < end:
        if end - position >= BLANK.size:
            size, magic = _START.unpack_from(records, position)
            if magic == MAGIC_BLANK:
                break
            if magic in (MAGIC_V1, MAGIC_V2) and SMALLEST_RECORD <= size <= end - position:
                found.append((position, position + size))
                position += size
                continue
        raise RemoteProtocolError(f"no message record at byte {position} of {end}")
    return found


def undamaged(records: bytes | memoryview, offset: int, next_offset: int) -> tuple[bytes, int]:
    """Return the whole records of a damaged sequence pulled from `offset` on, and the offset to
    continue at.

    After a record whose size is damaged the start of the next one is unknown, so the next pull
    starts after the damaged one. `next_offset` is the broker's next offset. Consumers that pull
    from a broker do the same (`decode_undamaged`), so that no group is stuck at such a message.
    """
    view = memoryview(records)
    good: list[memoryview] = []
    position, end = 0, len(view)
    while end - position >= BLANK.size:
        size, magic = _START.unpack_from(view, position)
        if magic == MAGIC_BLANK:
            break
        if not _begins_one(view, position, size):
            last = _QUEUE_OFFSET.unpack_from(good[-1])[0] if good else offset
            return b"".join(good), min(max(offset, last) + 1, next_offset)
        if magic in (MAGIC_V1, MAGIC_V2):
            good.append(view[position : position + size])
        position += size
    return b"".join(good), next_offset


def _begins_one(view: memoryview, position: int, size: int) -> bool:
    """Whether a record of this size is followed by another one or by the end."""
    left = len(view) - position - size
    if size < SMALLEST_RECORD or left < BLANK.size:
        return size >= SMALLEST_RECORD and left == 0
    return _START.unpack_from(view, position + size)[1] in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)


class Writer:
    """Writes records for consumers. Bodies of `over` bytes or more are compressed."""

    def __init__(self, over: int, level: int) -> None:
        self._over = over
        self._level = level

    def chosen(
        self, records: bytes | memoryview, found: list[tuple[int, int]], bits: bytes
    ) -> tuple[bytes, int]:
        """The records whose bits are set, and their number. May be called in a thread."""
        view = memoryview(records)
        out: list[bytes | memoryview] = []
        count = 0
        for index, (begin, end) in enumerate(found):
            if bits[index >> 3] >> (index & 7) & 1:
                count += 1
                out.append(
                    self._rewritten(view[begin:end])
                    if self.changes(view, begin)
                    else view[begin:end]
                )
        return b"".join(out), count

    def changes_any(self, records: bytes | memoryview, found: list[tuple[int, int]]) -> bool:
        """Whether any of them must be rewritten, which takes time."""
        return any(self.changes(records, begin) for begin, _ in found)

    def changes(self, records: bytes | memoryview, begin: int) -> bool:
        """Whether the record must be rewritten."""
        (flag,) = _SYS_FLAG(records, begin)
        if flag & SysFlag.COMPRESSED:
            return True
        further = shift("body_length", flag) if flag & IPV6_BITS else 0
        (length,) = _BODY_LENGTH.unpack_from(records, begin + further)
        return bool(length >= self._over)

    def _rewritten(self, record: memoryview) -> bytes | memoryview:
        """Rewrite a record with its body as consumers get it. A damaged record does not change:
        consumers detect it by its checksum, which Java's filter server recomputes, and skip it.
        """
        try:
            message = decode_record(record, check_crc=True)
        except RemoteProtocolError:
            return record
        if message.body_error:
            return record
        return encode_record(self._for_consumers(message))

    def _for_consumers(self, message: StoredMessage) -> StoredMessage:
        flag = message.sys_flag & ~(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)
        body = message.body
        if len(body) >= self._over:
            body = compress(body, CompressionType.ZLIB, self._level)
            flag |= SysFlag.COMPRESSED
        message.body, message.sys_flag = body, flag
        message.body_crc = crc32(body) & CRC_MASK
        message._decompressed = False  # it is written as it is now
        return message


class FilterHandlers:
    """Serves uploads and pulls. ``may_upload`` raises Refused unless the sender may upload."""

    def __init__(
        self,
        settings: FiltersrvSettings,
        classes: Classes,
        broker: BrokerLink,
        may_upload: Callable[[Command, Channel], None] = lambda command, channel: None,
    ) -> None:
        self._settings = settings
        self._classes = classes
        self._broker = broker
        self._may_upload = may_upload
        own = settings.filtersrv
        self._writer = Writer(own.compress_msg_body_over_howmuch, own.zip_compress_level)
        self._in_progress: Counter[Key] = Counter()  # pulls
        self._held: Counter[Key] = Counter()  # bytes of messages that wait for a class

    @serves(RequestCode.REGISTER_MESSAGE_FILTER_CLASS)
    async def register(self, command: Command, channel: Channel) -> Command:
        """Register the class of a group for a topic, from the request or from the folder."""
        header = command.read_header(RegisterMessageFilterClassRequestHeader)
        key = _key(header.topic, header.consumer_group)
        try:
            await self._register(command, channel, header, key)
        except Refused as error:
            log.warning("refusing a class of %s from %s: %s", key, channel.remote, error.remark,
                        extra={"peer": channel.remote_address[0]})  # fmt: skip
            raise
        return command.reply(ResponseCode.SUCCESS)

    async def _register(
        self,
        command: Command,
        channel: Channel,
        header: RegisterMessageFilterClassRequestHeader,
        key: Key,
    ) -> None:
        """Register a class. Raises Refused if it is not accepted."""
        name = header.class_name
        if len(name) > _MOST_NAME or not _CLASS_NAME.fullmatch(name):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{name[:_MOST_NAME]!r} is not a class name")
        why = ""
        source: bytes | None
        if self._settings.filtersrv.client_upload_filter_class_enable:
            self._may_upload(command, channel)
            source = self._uploaded(header, bytes(command.body), key)
        else:
            source, why = await asyncio.to_thread(read_class, self._settings.sandbox, name)
        try:
            await self._classes.register(key, name, source, why)
        except TooMany as error:
            raise Overloaded("filterMaxClasses", str(error)) from None
        except (NoClass, FilterFailed, SandboxEnded, OSError) as error:
            is_java = isinstance(error, FilterFailed) and _JAVA.search(source or b"")
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"class {name} is refused: {_IS_JAVA if is_java else error}",
            ) from None
        if source is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"class {name} is missing: {why}")

    def _uploaded(
        self, header: RegisterMessageFilterClassRequestHeader, body: bytes, key: Key
    ) -> bytes:
        """The source in a request. Raises Refused if it is not accepted."""
        name, most = header.class_name, self._settings.sandbox.filter_class_max_bytes
        known = self._classes.table.get(key)
        if header.class_crc == 0 and known is not None and known.source is not None:
            return known.source  # like Java, which keeps the class then
        if len(body) > most:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"class {name} is refused: it has {len(body)} bytes, {most} are allowed "
                "(filterClassMaxBytes)",
            )
        if header.class_crc not in (0, crc_of(body)):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"class {name} is refused: its CRC is {crc_of(body)}, not {header.class_crc}",
            )
        if _PACKAGE.search(body):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"class {name} is refused: {_IS_JAVA}")
        return body

    @serves(RequestCode.PULL_MESSAGE)
    async def pull(self, command: Command, channel: Channel) -> Command:
        """Pull from the broker, and return the messages that the class matches."""
        header = command.read_header(PullMessageRequestHeader)
        key = _key(header.topic, header.consumer_group)
        kept = self._classes.table.get(key)
        if kept is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"no class of {key} is registered at this filter server"
            )
        most = self._settings.filtersrv.fs_server_async_semaphore_value
        # Each may be suspended for 19 s, and continues when its client has disconnected, so one
        # group must not use up all places.
        if self._in_progress[key] >= (most + 1) // 2 or self._in_progress.total() >= most:
            raise Overloaded(
                "fsServerAsyncSemaphoreValue", f"too many pulls of {key} are in progress"
            )
        self._in_progress[key] += 1
        try:
            found = await self._broker.pull(header)
            if channel.closed:
                raise ConnectionError(f"{channel.remote} has disconnected")
            return await self._filtered(command, key, header.queue_offset, found)
        except (MQError, RemoteProtocolError, NoClass, FilterFailed, SandboxEnded) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{key}: {error}") from None
        finally:
            self._in_progress[key] -= 1
            if not self._in_progress[key]:
                del self._in_progress[key]

    async def _filtered(self, command: Command, key: Key, offset: int, found: Command) -> Command:
        """The reply to a consumer. Raises the errors of the class."""
        if found.code != _FOUND:
            if found.code not in _RELAYED:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"{key}: the broker replied {found.code}: {found.remark}",
                )
            return command.reply(ResponseCode(found.code), _fields(found), remark=found.remark)
        fields, records = _fields(found), found.body
        try:
            spots = places(records)
        except RemoteProtocolError as error:
            log.error("%s, from offset %d: skipping records that are damaged at the broker: %s",
                      key, offset, error, extra={"failure": f"damaged {key}"})  # fmt: skip
            records, next_offset = undamaged(records, offset, int(fields["nextBeginOffset"]))
            fields["nextBeginOffset"] = str(next_offset)
            spots = places(records)
        body, count = await self._matching(key, records, spots)
        if not count:
            return command.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, fields)
        kept = self._classes.table.get(key)
        if kept is not None:
            kept.counts.messages += count
            kept.counts.bytes += len(body)
        return command.reply(_FOUND, fields, body)

    async def _matching(
        self, key: Key, records: bytes | memoryview, found: list[tuple[int, int]]
    ) -> tuple[bytes, int]:
        if not found:
            return b"", 0
        size = len(records)
        most = self._settings.sandbox.filter_held_max_bytes
        # A single pull always continues, however small the limit.
        if (self._held[key] and self._held[key] + size > most // 4) or (
            self._held.total() and self._held.total() + size > most
        ):
            raise Overloaded("filterHeldMaxBytes", f"too many messages wait for the class of {key}")
        self._held[key] += size
        try:
            whole = memoryview(records)[: found[-1][1]]
            bits = await self._classes.match(key, whole, len(found))
            if self._writer.changes_any(records, found):
                return await asyncio.to_thread(self._writer.chosen, records, found, bits)
            return self._writer.chosen(records, found, bits)
        finally:
            self._held[key] -= size
            if not self._held[key]:
                del self._held[key]


def _fields(found: Command) -> dict[str, str]:
    """The header of the reply, with the queue bounds from the broker."""
    told = PullMessageResponseHeader.decode(found.fields)
    return PullMessageResponseHeader(
        suggest_which_broker_id=0,
        next_begin_offset=told.next_begin_offset,
        min_offset=told.min_offset,
        max_offset=told.max_offset,
    ).encode()


def _key(topic: str, group: str) -> Key:
    try:
        return Key(check_topic(topic), check_group(group))
    except IllegalName as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
