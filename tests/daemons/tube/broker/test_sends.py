"""Sends: the answers, in the original's order of checks, and the stored messages."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.machine import files
from mq.daemons.tube.broker.app import Broker
from mq.daemons.tube.broker.sends import Successes
from mq.protocol.tube.codes import Method
from mq.protocol.tube.errors import RemoteFailure
from mq.protocol.tube.messages import SendMessageResponseB2P
from mq.protocol.tube.payload import checksum
from mq.protocol.tube.rpc import encode_response
from tests.daemons.tube.broker.harness import Client, bodies, run, serving


def test_a_message_is_stored_and_its_place_told(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        first = await client.send(b"one", checkSum=checksum(b"one"))
        second = await client.send(b"two", partitionId=2)
        other = await client.send(b"three", partitionId=10_001)
        for answer in (first, second, other):
            assert (answer.success, answer.errCode) == (True, 200)
            assert answer.errMsg == str(answer.messageId)
        assert [a.appendOffset for a in (first, second, other)] == [0, 28, 0]
        assert first.messageId < second.messageId < other.messageId
        store = broker.serving.stores.get("demo", 10_001)
        assert store is not None and store.messages == 1

    run(tmp_path, check)


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"clientId": " "}, 400, "Request miss necessary clientId data!"),
        ({"clientId": "x" * 1025}, 400, "1025 characters"),
        ({"topicName": "__offset_history__"}, 403, "does not allow producers"),
        ({"topicName": "other"}, 403, "other not existed"),
        ({"topicName": "?"}, 400, "is not legal"),
        ({"partitionId": 3}, 403, "demo-3 not existed"),
        ({"partitionId": 20_000}, 403, "demo-20000 not existed"),
        ({"partitionId": -1}, 403, "demo--1 not existed"),
        ({"data": b""}, 400, "data length is zero!"),
        ({"data": bytes(1024 * 1024 + 10 * 1024 + 1)}, 400, "allowed max length is 1058816"),
        ({"checkSum": 5}, 403, "Checksum msg data failure: 5 of demo"),
    ],
)
def test_what_cannot_be_taken_is_refused(
    tmp_path: Path, changes: dict[str, Any], code: int, text: str
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        answer = await client.send(**({"data": b"x"} | changes))
        assert (answer.success, answer.errCode) == (False, code)
        assert text in answer.errMsg
        assert sum(store.messages for store in broker.serving.stores) == 0
        assert sum(broker.sends.refused.values()) == 1

    run(tmp_path, check)


def test_the_largest_message_is_taken(tmp_path: Path) -> None:
    async def check(_: Broker, client: Client) -> None:
        assert (await client.send(bytes(1024 * 1024 + 10 * 1024))).success

    run(tmp_path, check)


def test_sends_that_the_master_has_stopped_are_refused(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        broker.serving.writes.set_by_master(True)
        assert (await client.send(b"x")).errCode == 503
        broker.serving.writes.set_by_master(False)
        assert (await client.send(b"x")).success

    run(tmp_path, check)


def test_a_request_that_lacks_a_field_is_an_exception(tmp_path: Path) -> None:
    async def check(_: Broker, client: Client) -> None:
        with pytest.raises(RemoteFailure, match="InvalidProtocolBuffer"):
            await client.send(b"x", topicName=None)

    run(tmp_path, check)


def test_errors_of_the_disk_are_told_and_stop_sends_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pwrite(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def check(broker: Broker, client: Client) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(files, "pwrite", pwrite)
            codes = [(await client.send(b"x")).errCode for _ in range(5)]
        assert codes == [419, 419, 419, 419, 503]
        assert broker.serving.writes.report == -1
        broker.serving.writes.set_by_master(True)
        broker.serving.writes.set_by_master(False)
        assert (await client.send(b"y")).success

    run(tmp_path, check)


def test_a_write_that_fails_counts_once_however_many_messages_are_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pwrite(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def check(broker: Broker, client: Client) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(files, "pwrite", pwrite)
            answers = await asyncio.gather(*(client.send(b"x") for _ in range(20)))
        assert {answer.errCode for answer in answers} == {419}
        assert broker.serving.writes.errors == broker.serving.stores.get("demo", 0).failures  # type: ignore[union-attr]
        assert (await client.send(b"y")).success

    run(tmp_path, check)


@pytest.mark.parametrize("mode", ["sync", "os", "memory"])
def test_what_was_answered_is_there_behind_a_restart(tmp_path: Path, mode: str) -> None:
    async def main() -> None:
        async with serving(tmp_path, flushMode=mode) as (_, client):
            answers = await asyncio.gather(*(client.send(b"%d" % n) for n in range(50)))
            assert all(answer.success for answer in answers)
        async with serving(tmp_path, flushMode=mode) as (_, client):
            await client.register()
            assert bodies(await client.get()) == [b"%d" % n for n in range(50)]

    asyncio.run(main())


def test_sends_that_come_together_are_answered_by_few_fsyncs(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> int:
        await asyncio.gather(*(client.send(b"%d" % n) for n in range(200)))
        return broker.flusher.flushes

    assert run(tmp_path, check, flushMode="sync") < 100


@given(
    serial=st.integers(0, (1 << 32) - 1),
    message_id=st.integers(1 << 40, (1 << 63) - 1),
    now=st.integers(0, 1 << 43),
    at_index=st.integers(0, (1 << 63) - 1),
)
def test_the_answer_is_protobufs(serial: int, message_id: int, now: int, at_index: int) -> None:
    answer = SendMessageResponseB2P(
        success=True, errCode=200, errMsg=str(message_id), requireAuth=False,
        messageId=message_id, appendTime=now, appendOffset=at_index,
    )  # fmt: skip
    frame = encode_response(serial, Method.SEND_MESSAGE_P2B, answer.SerializeToString())
    successes = Successes()
    for _ in range(2):
        assert successes.frame(serial, message_id, now, at_index) == frame
