"""The serialization of request headers, chosen by an option or the environment."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.credentials import AccessKey
from mq.client.errors import ClientError
from mq.client.options import SERIALIZATION_VARIABLE, ClientOptions, Serialization
from mq.client.producer.producer import Producer
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import FIRST, TOPIC, cluster, numbers
from tests.client.scripted import scripted
from tests.waiting import until

BINARY = Serialization.ROCKETMQ
CODE = int(RequestCode.GET_NAMESRV_CONFIG)


def noting(forms: list[tuple[int, int]]) -> Handler:
    def answer(request: Command, channel: Channel) -> Command:
        forms.append((request.code, request.serialization))
        return request.reply(0)

    return answer


def test_the_option_chooses_the_form_of_requests_and_answers() -> None:
    forms: list[tuple[int, int]] = []

    async def scenario() -> None:
        pop = int(RequestCode.POP_MESSAGE)
        handler = noting(forms)
        async with scripted({CODE: handler, pop: handler}) as peer:
            for form in Serialization:
                async with Session(peer, serialization=form) as session:
                    answer = await session.call(peer, Command(CODE))
                    assert answer.serialization == form
                    await session.call(peer, Command(pop))

    asyncio.run(scenario())
    # The binary form has no codes over 32767.
    assert forms == [(CODE, 0), (200050, 0), (CODE, 1), (200050, 0)]


def test_a_client_in_the_binary_form_sends_and_consumes_from_our_daemons() -> None:
    got: list[tuple[bytes, str | None, str]] = []

    async def listen(message: StoredMessage) -> None:
        got.append((message.body, message.tags, message.properties["color"]))

    async def scenario() -> None:
        client = ClientOptions(serialization=BINARY)
        async with cluster(queues=1) as there:
            async with Producer(there.address, client=client) as producer:
                for body in numbers(3):
                    sent = Message(TOPIC, body, "tag", properties={"color": "grün"})
                    assert (await producer.send(sent)).status == "SEND_OK"
                color = {"color": "grün"}
                batch = [Message(TOPIC, body, "tag", properties=color) for body in (b"3", b"4")]
                await producer.send_batch(batch)
            async with there.consumer(listener=listen, client=client):
                await until(lambda: len(got) == 5)
            lite = LitePullConsumer(
                there.address, "lite", {TOPIC: "*"}, client=client, consume_from=FIRST
            )
            async with lite:
                assert len(await lite.poll()) == 5
                await lite.commit()
                [queue] = lite.assigned
                assert await lite.committed(queue) == 5

    asyncio.run(scenario())
    assert sorted(got) == [(body, "tag", "grün") for body in numbers(5)]


def test_a_signed_request_in_the_binary_form_is_signed_over_the_same_fields() -> None:
    seen: list[Any] = []

    async def scenario() -> None:
        def answer(request: Command, channel: Channel) -> Command:
            seen.append(dict(request.fields))
            return request.reply(0)

        async with scripted({CODE: answer}) as peer:
            for form in Serialization:
                key = AccessKey("key", "secret")
                async with Session(peer, serialization=form, credentials=key) as session:
                    await session.call(peer, Command(CODE, {"a": "b"}))

    asyncio.run(scenario())
    assert seen[0] == seen[1]
    assert seen[0]["Signature"]


@pytest.mark.parametrize(
    ("make", "chosen"),
    [
        (lambda peer: BlockingSession(peer), 1),
        (lambda peer: BlockingSession(peer, serialization=Serialization.JSON), 0),
        (lambda peer: BlockingSession(peer).blocking(), 1),
    ],
)
def test_the_environment_applies_if_no_option_is_given(
    make: Callable[[str], BlockingSession], chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms: list[tuple[int, int]] = []

    def ask(peer: str) -> None:
        with make(peer) as session:
            run(Admin(session).session.call(peer, Command(CODE)))

    async def scenario() -> None:
        async with scripted({CODE: noting(forms)}) as peer:
            await asyncio.to_thread(ask, peer)

    monkeypatch.setenv(SERIALIZATION_VARIABLE, "ROCKETMQ")
    asyncio.run(scenario())
    assert forms == [(CODE, chosen)]


def test_an_unknown_serialization_is_refused_with_the_name_of_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SERIALIZATION_VARIABLE, "XML")
    with pytest.raises(ClientError, match="ROCKETMQ_SERIALIZE_TYPE is 'XML': it must be JSON or"):
        Session("127.0.0.1:9")
