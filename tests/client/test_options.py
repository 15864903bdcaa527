"""Options of clients: declared once, given as an object, as keywords or by an open session."""

import asyncio
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.consumer.options import ConsumeKeywords, ConsumeOptions, PollKeywords, PollOptions
from mq.client.credentials import AccessKey
from mq.client.errors import ClientError
from mq.client.options import ClientKeywords, ClientOptions, Intervals
from mq.client.producer.options import ProducerKeywords, ProducerOptions
from mq.client.producer.producer import Producer, SendStatus
from mq.client.producer.transactions import TransactionCheck, TransactionProducer, TransactionState
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.blocking import BlockingSession
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.group import GetConsumerRunningInfoRequestHeader
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import FIRST, GROUP, TOPIC, cluster, numbers
from tests.client.scripted import accept_heartbeats, name_server, routes, scripted, stores
from tests.waiting import until

NOWHERE = "127.0.0.1:9"
KEY = AccessKey("key", "secret")


@pytest.mark.parametrize(
    ("keywords", "options"),
    [
        (ClientKeywords, (ClientOptions,)),
        (ProducerKeywords, (ClientOptions, ProducerOptions)),
        (ConsumeKeywords, (ClientOptions, ConsumeOptions)),
        (PollKeywords, (ClientOptions, PollOptions)),
    ],
)
def test_every_field_is_a_keyword_and_every_keyword_a_field(
    keywords: Any, options: tuple[Any, ...]
) -> None:
    assert keywords.__annotations__.keys() == {
        field.name for kind in options for field in fields(kind)
    }


async def unknown(question: TransactionCheck) -> TransactionState:
    return TransactionState.UNKNOWN


def test_client_options_reach_the_session_of_every_client() -> None:
    client = ClientOptions(timeout=7.0, instance="i", unit_name="u", namespace="n", credentials=KEY)
    clients: list[Any] = [
        Producer(NOWHERE, "g", client=client),
        TransactionProducer(NOWHERE, "g", unknown, client=client),
        Consumer(NOWHERE, "g", {"t": "*"}, client=client),
        LitePullConsumer(NOWHERE, "g", {"t": "*"}, client=client),
        PullConsumer(NOWHERE, "g", client=client),
    ]
    for one in clients:
        session = one.session
        assert isinstance(session, Session)
        assert (session.timeout, session.credentials) == (7.0, KEY)
        assert session.client_id.partition("@")[2] == "i@u"
        assert getattr(one, "group", "n%g") == "n%g"


def test_keywords_override_the_fields_of_the_objects() -> None:
    client = ClientOptions(instance="i", intervals=Intervals(routes=7))
    options = ProducerOptions(timeout=9.0, retries=5)
    producer = Producer(NOWHERE, "g", options, client=client, retries=1, instance="mine")
    assert (producer.timeout, producer.options.retries) == (9.0, 1)
    assert producer.session.client_id.endswith("@mine")
    assert producer.session.route_interval == 7
    assert (options.retries, client.instance) == (5, "i")


def test_the_keywords_of_earlier_versions_still_work() -> None:
    session = Session(NOWHERE, timeout=1.0, connect_timeout=2.0, route_interval=3.0, dead_after=4.0)
    assert (session.timeout, session.connect_timeout) == (1.0, 2.0)
    assert (session.route_interval, session.dead_after) == (3.0, 4.0)
    assert BlockingSession(NOWHERE, timeout=1.0, credentials=KEY).credentials is KEY
    sender = Producer(NOWHERE, "g", timeout=9.0, intervals=Intervals(routes=5), credentials=KEY)
    # The timeouts of a send and of a request.
    assert (sender.timeout, sender.session.timeout) == (9.0, ClientOptions().timeout)
    assert (sender.session.route_interval, sender.session.credentials) == (5, KEY)
    consumer = Consumer(NOWHERE, "g", {"t": "*"}, timeout=9.0, ordered=True, listener=print)
    assert (consumer.session.timeout, consumer.ordered) == (9.0, True)


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: Session(NOWHERE, **options),
        lambda **options: Producer(NOWHERE, "g", **options),
        lambda **options: TransactionProducer(NOWHERE, "g", unknown, **options),
        lambda **options: Consumer(NOWHERE, "g", {"t": "*"}, **options),
        lambda **options: LitePullConsumer(NOWHERE, "g", {"t": "*"}, **options),
        lambda **options: PullConsumer(NOWHERE, "g", **options),
    ],
)
def test_an_unknown_keyword_is_refused_by_name(make: Any) -> None:
    with pytest.raises(TypeError, match=r"\.__init__\(\) got an unexpected keyword argument 'tiem"):
        make(tiemout=3.0)


def test_a_transaction_producer_takes_the_options_of_producers() -> None:
    asked: Counter[str] = Counter()

    def unsafe(request: Command, channel: object) -> Command:
        place = {"msgId": "0" * 32, "queueId": request.fields["e"], "queueOffset": "0"}
        return request.reply(ResponseCode.FLUSH_DISK_TIMEOUT, place)

    async def scenario() -> None:
        slow_broker = {**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: unsafe}
        async with (
            scripted(stores("safe", asked)) as safe,
            scripted(slow_broker) as slow,
            scripted(name_server({"safe": safe, "unsafe": slow})) as namesrv,
            TransactionProducer(
                namesrv, "payers", unknown, retry_not_stored=True, max_body=10
            ) as producer,
        ):
            results = [await producer.send(Message(TOPIC, b"1")) for _ in range(8)]
            assert {result.status for result in results} == {SendStatus.SEND_OK}
            with pytest.raises(ClientError, match="11 bytes is over the limit of 10"):
                await producer.send(Message(TOPIC, b"x" * 11))

    asyncio.run(scenario())


def test_clients_of_all_kinds_share_one_session_and_leave_it_open() -> None:
    got: dict[str, list[bytes]] = {"first": [], "second": []}

    def listen(name: str) -> Any:
        async def take(message: StoredMessage) -> None:
            got[name].append(message.body)

        return take

    async def scenario() -> None:
        async with cluster(queues=1) as there, Session(there.address) as session:
            first = Consumer(session, "first", {TOPIC: "*"}, listener=listen("first"))
            second = Consumer(
                session, "second", {TOPIC: "*"}, listener=listen("second"), consume_from=FIRST
            )
            lite = LitePullConsumer(session, "third", {TOPIC: "*"}, consume_from=FIRST)
            tasks_before = len(asyncio.all_tasks())
            async with Producer(session) as producer, second, lite, first:
                for body in numbers(3):
                    await producer.send(Message(TOPIC, body))
                await until(lambda: len(got["second"]) == 3)
                polled: list[bytes] = []
                while len(polled) < 3:
                    polled += [message.body for message in await lite.poll()]
                # Brokers' requests reach the member of the group that they are for.
                address = there.pair.broker.address
                for group in ("first", "second", "third"):
                    header = GetConsumerRunningInfoRequestHeader(
                        consumer_group=group, client_id=session.client_id
                    )
                    command = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, header.encode())
                    answer = await there.session.call(address, command)
                    assert (b"CONSUME_ACTIVELY" in answer.body) == (group == "third")
            assert (await session.route(TOPIC)).queue_datas  # the session is still open
            await until(lambda: len(asyncio.all_tasks()) <= tasks_before + 1)
            async with Consumer(session, "second", {TOPIC: "*"}, listener=listen("second")):
                pass  # the group may be opened again

    asyncio.run(scenario())


def test_a_group_has_one_member_per_session() -> None:
    async def scenario() -> None:
        async with cluster() as there, Session(there.address) as session:
            async with Consumer(session, GROUP, {TOPIC: "*"}):
                with pytest.raises(ClientError, match="the session has a consumer of group alrea"):
                    async with LitePullConsumer(session, GROUP, {TOPIC: "*"}):
                        pass

    asyncio.run(scenario())


def test_a_broadcasting_consumer_has_the_same_id_after_a_restart(tmp_path: Path) -> None:
    options = ConsumeOptions(broadcasting=True, offset_directory=tmp_path)
    ids = {Consumer(NOWHERE, "g", {"t": "*"}, options).session.client_id for _ in range(2)}
    assert len(ids) == 1
    named = Consumer(NOWHERE, "g", {"t": "*"}, options, client=ClientOptions(instance="mine"))
    assert named.session.client_id.endswith("@mine")


def test_route_queries_and_heartbeats_follow_their_intervals() -> None:
    asked: Counter[int] = Counter()

    def counted(handler: Handler) -> Handler:
        def count(request: Command, channel: Channel) -> object:
            asked[request.code] += 1
            return handler(request, channel)

        return count  # type: ignore[return-value]

    async def scenario() -> None:
        beat = RequestCode.HEART_BEAT
        broker_handlers: dict[int, Handler] = {
            **stores("a", Counter()),
            beat: counted(accept_heartbeats()[beat]),
        }
        async with scripted(broker_handlers) as broker:
            names: dict[int, Handler] = {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: counted(routes({"a": broker}))
            }
            async with scripted(names) as namesrv:
                intervals = Intervals(routes=0.05, heartbeats=0.05)
                async with Producer(namesrv, intervals=intervals) as producer:
                    await producer.send(Message(TOPIC, b"1"))
                    await until(lambda: min(asked.values()) >= 5 and len(asked) == 2)

    asyncio.run(scenario())
    with pytest.raises(ClientError, match="the interval of routes must be above 0 s, not 0"):
        Intervals(routes=0)
