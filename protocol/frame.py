"""Frames: the byte layout of a command.

    length i32 | serialization i8, header length i24 | header | body

``length`` counts the bytes after it. The header is a JSON object, or RocketMQ's binary form:

    code i16 | language i8 | version i16 | opaque i32 | flag i32
    | remark length i32, remark | extFields length i32, extFields
    where extFields repeats: name length i16, name | value length i32, value
"""

import contextlib
import struct

import orjson

from mq.protocol.codes import LanguageCode
from mq.protocol.command import JSON, ROCKETMQ, Command, command_from_header
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError

# The Java peer refuses longer frames (NettyDecoder, frameMaxLength 16 MiB). A longer prefix comes
# from a broken or hostile peer, which could exhaust our memory.
MAX_FRAME = 16 * 1024 * 1024

PREFIX = struct.Struct(
    ">i"  # length: bytes that follow this field
    "I"  # serialization << 24 | header length
)
BINARY_HEAD = struct.Struct(
    ">h"  # code
    "b"  # language
    "h"  # version
    "i"  # opaque
    "i"  # flag
)
HEADER_LENGTH = 0xFFFFFF  # the bits of the header length in the second number

INT = struct.Struct(">i")
SHORT = struct.Struct(">h")

_LANGUAGE_NAMES = {int(code): code.name for code in LanguageCode}


def encode(command: Command) -> bytes:
    """Write a whole frame, including its length.

    Unpaired surrogates in the remark become question marks, because a remark repeats text of a
    peer. Raises LocalProtocolError if the frame is longer than peers accept, or a field cannot be
    encoded.
    """
    if command.serialization == ROCKETMQ:
        header = _encode_binary_header(command)
    else:
        header = _encode_json_header(command)
    length = 4 + len(header) + len(command.body)
    if length > MAX_FRAME:
        raise LocalProtocolError(f"a frame of {length} bytes is over the limit of {MAX_FRAME}")
    return b"".join(
        (
            PREFIX.pack(length, command.serialization << 24 | len(header)),
            header,
            command.body,
        )
    )


def header_start(code: int) -> bytes:
    """Return the start of a request's header whose fields are in order, as most clients write
    it.
    """
    return b'{"code":%d,' % code


def decode(frame: bytes) -> Command:
    """Read a frame without its length field.

    Raises RemoteProtocolError if it is not a command.
    """
    if len(frame) < 4:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes has no room for its header")
    (word,) = struct.unpack_from(">I", frame)
    end = 4 + (word & HEADER_LENGTH)
    if end > len(frame):
        raise RemoteProtocolError(f"a header of {end - 4} bytes in a frame of {len(frame)}")
    serialization = word >> 24
    header = decode_header(frame[4:end], serialization)
    return command_from_header(header, frame[end:], serialization)


def decode_header(header: bytes, serialization: int) -> dict[str, object]:
    """Read the header of a frame, in either form, into the keys of its JSON form.

    Raises RemoteProtocolError if it has neither form.
    """
    if serialization == JSON:
        try:
            values = orjson.loads(header)
        except ValueError as error:
            raise RemoteProtocolError(f"header is not JSON: {error}") from None
        if type(values) is not dict:
            raise RemoteProtocolError("header is not a JSON object")
        return values
    if serialization == ROCKETMQ:
        try:
            return _decode_binary_header(header)
        except (struct.error, UnicodeDecodeError) as error:
            raise RemoteProtocolError(f"broken binary header: {error}") from None
    raise RemoteProtocolError(f"unknown serialization {serialization}")


def _encode_json_header(command: Command) -> bytes:
    header: dict[str, object] = {
        "code": command.code,
        "extFields": command.fields,
        "flag": command.flag,
        "language": _LANGUAGE_NAMES.get(command.language, "OTHER"),
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if not command.fields:
        del header["extFields"]
    if command.remark is not None:
        header["remark"] = command.remark
    try:
        return orjson.dumps(header)
    except TypeError as error:
        if command.remark is not None and not _is_sendable(command.remark):
            header["remark"] = _sendable(command.remark)
            with contextlib.suppress(TypeError):
                return orjson.dumps(header)
        raise LocalProtocolError(f"a header that cannot be sent: {error}") from None


def _is_sendable(text: str) -> bool:
    return _sendable(text) == text


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _encode_binary_header(command: Command) -> bytes:
    remark = (command.remark or "").encode("utf-8", "replace")
    fields = bytearray()
    for name, value in command.fields.items():
        try:
            raw_name = name.encode()
            raw_value = value.encode()
        except UnicodeEncodeError as error:
            raise LocalProtocolError(f"a header that cannot be sent: {error}") from None
        fields += SHORT.pack(len(raw_name))
        fields += raw_name
        fields += INT.pack(len(raw_value))
        fields += raw_value
    try:
        head = BINARY_HEAD.pack(
            command.code, command.language, command.version, command.opaque, command.flag
        )
    except struct.error as error:
        # Codes over 32767 (POP and related ones) do not fit the i16 of this form: Java truncates
        # them.
        raise LocalProtocolError(f"the binary header cannot carry this command: {error}") from None
    return b"".join((head, INT.pack(len(remark)), remark, INT.pack(len(fields)), fields))


def _decode_binary_header(header: bytes) -> dict[str, object]:
    code, language, version, opaque, flag = BINARY_HEAD.unpack_from(header)
    remark, position = _text(header, BINARY_HEAD.size, INT)
    (length,) = INT.unpack_from(header, position)
    position += 4
    end = position + length
    if length < 0 or end > len(header):
        raise RemoteProtocolError(f"extFields of {length} bytes do not fit the header")
    fields: dict[str, str] = {}
    while position < end:
        name, position = _text(header, position, SHORT)
        value, position = _text(header, position, INT)
        fields[name] = value
    if position != end:
        raise RemoteProtocolError("extFields run over their length")
    return {
        "code": code,
        "language": language,
        "version": version,
        "opaque": opaque,
        "flag": flag,
        "remark": remark or None,
        "extFields": fields,
    }


def _text(header: bytes, position: int, length_field: struct.Struct) -> tuple[str, int]:
    (length,) = length_field.unpack_from(header, position)
    start = position + length_field.size
    end = start + length
    if length < 0 or end > len(header):
        raise RemoteProtocolError(f"a text of {length} bytes does not fit the header")
    return header[start:end].decode(), end
