"""A store compared with a model: after any sends, failures and reopenings, readers get exactly its
messages.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mq.client.machine import files
from mq.daemons.tube.broker.store.errors import FlushMode
from mq.daemons.tube.broker.store.layout import HEAD, HEAD_SIZE
from mq.daemons.tube.broker.store.reading import ReadRequest, read
from mq.daemons.tube.broker.store.topic_store import FlushSettings, TopicStore
from tests.conftest import share
from tests.daemons.tube.broker.store.stores import Kept, Sender, opened

CODES = (-1, 7, -8)

SEND = st.tuples(
    st.just("send"), st.integers(0, 2), st.sampled_from(CODES), st.integers(6, 600), st.booleans()
)
# The system call that fails, its number from now on, and how. A write of data and one of the index
# make a turn.
FAIL = st.tuples(
    st.just("fail"),
    st.sampled_from([("pwrite", 0), ("pwrite", 1), ("fdatasync", 0), ("fsync", 0)]),
    st.sampled_from([errno.ENOSPC, errno.EIO]),
)
STEPS = st.lists(
    st.one_of(SEND, SEND, SEND, FAIL, st.tuples(st.just("flush")), st.tuples(st.just("reopen"))),
    min_size=4,
    max_size=40,
)


def in_partition(store: TopicStore, partition: int, codes: frozenset[int] | None) -> list[bytes]:
    """Return everything that a consumer gets."""
    found, offset = [], store.min_index
    while offset < store.max_index:
        got = read(store, ReadRequest(partition, offset, codes, 700, 28 * 4, joined=False))
        for piece in got.pieces:
            at = 0
            while at < len(piece):
                size = HEAD.unpack_from(piece, at)[0] + 4
                found.append(piece[at + HEAD_SIZE : at + size])
                at += size
        assert got.scanned
        offset += got.scanned
    return found


ONE = ("send", 0, -1, 10, True)


@example(  # the index cannot be written: the data must not keep refused records
    steps=[ONE, ("fail", ("pwrite", 1), errno.EIO), ONE, ONE, ("reopen",)], mode=FlushMode.os
)
@given(steps=STEPS, mode=st.sampled_from([FlushMode.os, FlushMode.sync]))
@settings(deadline=None, max_examples=share(200), suppress_health_check=list(HealthCheck))
def test_readers_find_what_was_promised_in_its_order(
    steps: list[tuple[Any, ...]], mode: FlushMode, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    asyncio.run(_go_through(steps, mode, folder))


async def _go_through(steps: list[tuple[Any, ...]], mode: FlushMode, folder: Path) -> None:
    kept = Kept()
    settings_ = FlushSettings(threshold=1 << 30, interval=1 << 30)
    store = opened(folder, mode, kept, settings=settings_)
    sender = Sender(store)
    sent: dict[bytes, tuple[int, int]] = {}  # partition and code
    promised: list[bytes] = []
    number = 0
    with pytest.MonkeyPatch.context() as patch:
        for step in steps:
            before = len(sender.taken)
            match step:
                case "send", partition, code, size, is_last_of_turn:
                    number += 1
                    payload = (b"%06d" % number).ljust(size, b".")
                    sent[payload] = partition, code
                    sender.send(payload, partition, code)
                    if is_last_of_turn:
                        await _turn()
                case ("flush",):
                    await _turn()
                    _flush(kept)
                case "fail", (name, count), error:
                    _fail_once(patch, name, count, error)
                case ("reopen",):
                    await _turn()
                    patch.undo()
                    promised += [payload for payload, _ in sender.taken]
                    store.close()
                    kept.clear()
                    store = opened(folder, mode, kept, settings=settings_)
                    sender = Sender(store)
            if mode is FlushMode.sync and step[0] != "flush":
                assert len(sender.taken) in (before, 0)  # nothing without an fsync
            _check(store, sent, promised + [payload for payload, _ in sender.taken])
    store.close()


def _check(store: TopicStore, sent: dict[bytes, tuple[int, int]], promised: list[bytes]) -> None:
    found = [in_partition(store, partition, None) for partition in range(3)]
    for partition, payloads in enumerate(found):
        assert payloads == sorted(set(payloads))  # in the order of sending, each once
        assert all(sent[payload][0] == partition for payload in payloads)
        for code in CODES:
            wanted = [payload for payload in payloads if sent[payload][1] == code]
            assert in_partition(store, partition, frozenset({code})) == wanted
    assert set(promised) <= {payload for payloads in found for payload in payloads}


def _flush(kept: Kept) -> None:
    wanting = list(kept)
    kept.clear()
    for store in wanting:
        upto, segments = store.flushing()
        try:
            for segment, _ in segments:
                segment.sync()
        except OSError as error:
            store.flushed(upto, segments, error)
        else:
            store.flushed(upto, segments, None)


def _fail_once(patch: pytest.MonkeyPatch, name: str, count: int, error: int) -> None:
    real = getattr(files, name)
    left = [count]

    def call(*given_: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(error, "it fails")
        return real(*given_)

    patch.setattr(files, name, call)


async def _turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
