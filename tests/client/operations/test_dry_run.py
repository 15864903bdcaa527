"""Dry-run sessions: requests other than reads are recorded and answered, but not sent."""

import asyncio

import pytest

from mq.client.operations.changes import Changes
from mq.client.operations.dry_run import answer, dry_session
from mq.client.producer.producer import Producer
from mq.protocol import headers
from mq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers import SUBJECTS
from mq.protocol.message import Message
from mq.protocol.requests import READ
from tests.cli.pairs import running_pair


def test_a_producer_in_a_dry_run_stores_nothing() -> None:
    changes = Changes()

    async def send(name_server: str) -> None:
        async with dry_session(changes, name_server) as session:
            async with Producer(session, "dry") as producer:
                await producer.send(Message("TBW102", b"never stored", keys=["k"]))

    with running_pair() as standalone:
        asyncio.run(send(standalone.name_server_address))
    (change,) = changes.kept
    assert change.request == "SEND_MESSAGE_V2"
    assert (change.header["topic"], change.header["producerGroup"]) == ("TBW102", "dry")
    assert change.body == "never stored"


@pytest.mark.parametrize("code", [code for code in RequestCode if code.kind is not READ])
def test_what_is_no_read_is_answered_and_not_sent(code: RequestCode) -> None:
    answered = answer(Changes(), "a:1", Command(code, {"queueId": "3"}))
    assert answered is not None
    assert answered.code == 0
    for name in (name for names in SUBJECTS.values() for name in names):
        header = getattr(headers, name)
        if code in header.ANSWERS:
            header.decode(answered.fields)


def test_a_code_that_no_row_has_is_not_sent() -> None:
    changes = Changes()
    assert answer(changes, "a:1", Command(99_999, {})) is not None
    assert [change.request for change in changes.kept] != []


def test_a_pull_commits_no_offset() -> None:
    pull = Command(RequestCode.PULL_MESSAGE, {"sysFlag": "7", "commitOffset": "5"})
    assert answer(Changes(), "a:1", pull) is None
    assert pull.fields["sysFlag"] == "6"


def test_a_body_that_is_no_text_is_shown_in_base64() -> None:
    changes = Changes()
    changes.request("a:1", Command(10, {}, b"\xff\x00"))
    assert changes.kept[0].body == "/wA="


def test_who_locks_queues_in_a_dry_run_has_them() -> None:
    queues = {MessageQueue("topic", "broker-a", number) for number in range(3)}
    body = LockBatchRequestBody(consumer_group="g", client_id="c", mq_set=queues).encode()
    changes = Changes()
    answered = answer(changes, "a:1", Command(RequestCode.LOCK_BATCH_MQ, {}, body))
    assert answered is not None and len(changes.kept) == 1
    assert LockBatchResponseBody.decode(answered.body).lock_ok_mq_set == queues
