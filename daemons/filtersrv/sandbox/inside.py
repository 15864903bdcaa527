"""The program of a sandbox: it confines itself, then loads one class and matches messages.

  python -c "…; from mq.daemons.filtersrv.sandbox.inside import main; main()" MEMORY CPU ROOT PPID

Imports fail once it is confined, so all modules that filters may use are imported here.
"""

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
import typing  # noqa: F401
import zlib  # noqa: F401
from encodings import ascii, idna, latin_1, utf_8, utf_16  # noqa: F401

import orjson  # noqa: F401

from mq.daemons.filtersrv.sandbox import frames
from mq.daemons.filtersrv.sandbox.confinement import NotConfined, confine
from mq.daemons.filtersrv.sandbox.filter_class import BadClass, Match, describe, load
from mq.daemons.filtersrv.sandbox.frames import Status
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.record_codec import decode_record

_IN, _OUT = 0, 1


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
