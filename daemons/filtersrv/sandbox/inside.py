"""The program of a sandbox: it confines itself, then loads one class and matches messages.

  python -c "…; from mq.daemons.filtersrv.sandbox.inside import main; main()" MEMORY CPU ROOT PPID

Imports fail once it is confined, so all modules that filters may use are imported here.
"""

import __future__

import base64  # noqa: F401
import binascii  # noqa: F401
import bisect  # noqa: F401
import collections  # noqa: F401
import dataclasses  # noqa: F401
import datetime  # noqa: F401
import decimal  # noqa: F401
import enum  # noqa: F401
import fnmatch  # noqa: F401
import fractions  # noqa: F401
import functools  # noqa: F401
import gc
import hashlib  # noqa: F401
import inspect
import ipaddress  # noqa: F401
import itertools  # noqa: F401
import json  # noqa: F401
import math  # noqa: F401
import operator  # noqa: F401
import os
import random  # noqa: F401
import re  # noqa: F401
import string  # noqa: F401
import struct  # noqa: F401
import sys
import time  # noqa: F401
import traceback
import typing  # noqa: F401
import zlib  # noqa: F401
from collections.abc import Callable
from encodings import ascii, idna, latin_1, utf_8, utf_16  # noqa: F401
from typing import Any, NamedTuple

import orjson  # noqa: F401

from mq.daemons.filtersrv.sandbox import frames
from mq.daemons.filtersrv.sandbox.confinement import NotConfined, confine
from mq.daemons.filtersrv.sandbox.frames import Status
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.record_codec import decode_record
from mq.protocol.stored_message import StoredMessage

# A source is cut out of its user's module, without the imports, so class names in annotations may
# be missing.
_ANNOTATIONS = __future__.annotations.compiler_flag
FILE = "<filter>"  # the file name of the source in tracebacks
Match = Callable[[StoredMessage], Any]

_IN, _OUT = 0, 1


class FilterContext(NamedTuple):
    """The data of a class in addition to the message (Java: FilterContext)."""

    consumer_group: str


class BadClass(Exception):
    """A class that is not usable; the text has line and reason."""


def load(group: str, name: str, source: str) -> Match:
    """Create the filter of a class. Raises BadClass."""
    space: dict[str, Any] = {"__name__": "filter", "__builtins__": __builtins__}
    try:
        exec(compile(source, FILE, "exec", _ANNOTATIONS, dont_inherit=True), space)
    except SyntaxError as error:
        raise BadClass(f"line {error.lineno}: {error.msg}") from None
    except MemoryError:
        raise
    except BaseException as error:
        raise BadClass(describe(error)) from None
    kind = space.get(name.rpartition(".")[2])
    if not isinstance(kind, type):
        raise BadClass(f"the source has no class {name.rpartition('.')[2]}")
    match = getattr(kind, "match", None)
    if not callable(match):
        raise BadClass(f"class {name} has no match(message)")
    try:
        bound: Callable[..., Any] = kind().match
        wants_context = _wants_context(bound)
    except MemoryError:
        raise
    except BaseException as error:
        raise BadClass(describe(error)) from None
    if not wants_context:
        return bound
    context = FilterContext(group)
    return lambda message: bound(message, context)


def _wants_context(match: Callable[..., Any]) -> bool:
    signature = inspect.signature(match)
    for arguments, wants in (((None,), False), ((None, None), True)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return wants
    raise TypeError("match takes (message) or (message, context)")


def describe(error: BaseException) -> str:
    """An error of the class: its line in the source, and its text."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == FILE]  # fmt: skip
    where = f"line {lines[-1]}: " if lines else ""
    try:
        text = str(error)
    except BaseException:  # raised by the class itself
        text = "an error that cannot be shown"
    return f"{where}{type(error).__name__}: {text}"


def main() -> None:
    """Serve until the filter server closes the connection, which ends this process."""
    memory, cpu_seconds, root, parent = sys.argv[1:]
    _load_codecs()
    sys.stdout = sys.stderr = _Nowhere()
    try:
        confine(int(memory), int(cpu_seconds), root, int(parent))
    except NotConfined as error:
        _answer(Status.NOT_CONFINED, frames.CONFINED, str(error))
        os._exit(0)
    _write(frames.ANSWER.pack(Status.DONE, frames.CONFINED, 0))
    try:
        _serve()
    except MemoryError:
        os._exit(frames.OUT_OF_MEMORY)


class _Nowhere:
    """Discards printed text, because the descriptor belongs to the answers."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def _load_codecs() -> None:
    """Import the modules that decompress bodies and parse dates, while imports are possible."""
    for name in ("_strptime", "lz4.frame", "zstandard"):
        try:
            __import__(name)
        except ImportError:
            continue


def _serve() -> None:
    match: Match | None = None
    while True:
        kind, number, count, length = frames.REQUEST.unpack(_read(frames.REQUEST.size))
        data = _read(length)
        try:
            if kind == frames.LOAD:
                group, name, source = frames.split_texts(data)
                match = load(group.decode(), name.decode(), source.decode())
                gc.collect()
                gc.freeze()
                _write(frames.ANSWER.pack(Status.DONE, number, 0))
            elif match is not None:
                _write(
                    frames.ANSWER.pack(Status.DONE, number, count) + _matched(match, data, count)
                )
        except (BadClass, UnicodeDecodeError) as error:
            _answer(Status.FAILED, number, str(error))


def _matched(match: Match, data: bytes, count: int) -> bytes:
    """A bit for each record. Raises BadClass if the class raises."""
    bits = bytearray(frames.bits(count))
    position = 0
    for index in range(count):
        size = int.from_bytes(data[position : position + 4], "big")
        try:
            message = decode_record(data, position)
        except RemoteProtocolError:  # damaged in the store: consumers skip it, too
            position += size
            continue
        position += size
        try:
            if match(message):
                bits[index >> 3] |= 1 << (index & 7)
        except MemoryError:
            raise
        except BaseException as error:
            raise BadClass(
                f"{describe(error)} (queue {message.queue_id}, offset {message.queue_offset})"
            ) from None
    return bytes(bits)


def _answer(status: Status, number: int, text: str) -> None:
    data = text.encode("utf-8", "replace")[: frames.MOST_TEXT]
    _write(frames.ANSWER.pack(status, number, len(data)) + data)


def _read(length: int) -> bytes:
    """Read so many bytes; ends the process if the filter server has ended."""
    parts = []
    while length:
        part = os.read(_IN, length)
        if not part:
            os._exit(0)
        parts.append(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(_OUT, view) :]
