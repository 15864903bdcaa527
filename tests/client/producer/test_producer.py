import asyncio

import pytest

from mq.client.errors import (
    BadAnswer,
    ClientError,
    ConnectError,
    MessageIllegal,
    RequestTimeout,
    RouteNotFound,
    ServiceNotAvailable,
    SystemBusy,
)
from mq.client.producer.producer import Producer, SendStatus
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import HeartbeatData, MessageQueue
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.client.scripted import accept_heartbeats, closed_port, name_server, routes, scripted
from tests.client.tube.virtual_time import run_fast
from tests.waiting import until

SEND = RequestCode.SEND_MESSAGE_V2


def store(seen: list[Command], code: int = 0) -> dict[int, Handler]:
    """Return the handlers of a broker that records requests and answers with `code`."""

    def answer(request: Command, channel: Channel) -> Command:
        seen.append(request)
        fields = {"msgId": "ABC", "queueId": request.fields["e"], "queueOffset": str(len(seen))}
        return request.reply(code, fields, remark="because" if code else None)

    return {**accept_heartbeats(), SEND: answer, RequestCode.SEND_BATCH_MESSAGE: answer}


def test_all_queues_get_messages_in_turn() -> None:
    async def scenario() -> None:
        seen: list[Command] = []
        async with (
            scripted(store(seen)) as broker,
            scripted(name_server({"b": broker})) as address,
            Producer(address) as producer,
        ):
            results = [await producer.send(Message("topic", b"x")) for _ in range(4)]
            assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1]
            assert [result.queue_offset for result in results] == [1, 2, 3, 4]

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY])
def test_a_retry_at_another_broker_has_the_same_message_id(code: int) -> None:
    async def scenario() -> None:
        good: list[Command] = []
        bad: list[Command] = []
        async with (
            scripted(store(good)) as a,
            scripted(store(bad, code)) as b,
            scripted(name_server({"a": a, "b": b})) as address,
            Producer(address) as producer,
        ):
            for _ in range(4):
                result = await producer.send(Message("topic", b"x"))
                assert (result.status, result.queue.broker_name) == (SendStatus.SEND_OK, "a")
        assert len(good) == 4
        assert bad
        assert {command.fields["i"] for command in bad} <= {c.fields["i"] for c in good}

    asyncio.run(scenario())


def test_no_message_is_lost_while_a_broker_is_down() -> None:
    async def scenario() -> None:
        good: list[Command] = []
        async with (
            scripted(store(good)) as a,
            scripted(name_server({"a": a, "b": closed_port()})) as address,
            Producer(address) as producer,
        ):
            for _ in range(4):
                assert (await producer.send(Message("topic", b"x"))).queue.broker_name == "a"

    asyncio.run(scenario())


def test_the_last_error_is_raised_when_every_attempt_has_failed() -> None:
    async def scenario() -> None:
        seen: list[Command] = []
        async with (
            scripted(store(seen, ResponseCode.SERVICE_NOT_AVAILABLE)) as broker,
            scripted(name_server({"b": broker})) as address,
            Producer(address, retries=2) as producer,
        ):
            with pytest.raises(ServiceNotAvailable, match="because"):
                await producer.send(Message("topic", b"x"))
            assert len(seen) == 3

    asyncio.run(scenario())


def test_a_message_that_is_refused_itself_is_not_retried() -> None:
    async def scenario() -> None:
        seen: list[Command] = []
        async with (
            scripted(store(seen, ResponseCode.MESSAGE_ILLEGAL)) as broker,
            scripted(name_server({"b": broker})) as address,
            Producer(address) as producer,
        ):
            with pytest.raises(MessageIllegal):
                await producer.send(Message("topic", b"x"))
            assert len(seen) == 1

    asyncio.run(scenario())


def test_a_chosen_queue_is_the_only_one_tried() -> None:
    async def scenario() -> None:
        seen: list[Command] = []
        async with (
            scripted(store(seen, ResponseCode.SYSTEM_BUSY)) as b,
            scripted(store([])) as a,
            scripted(name_server({"a": a, "b": b})) as address,
            Producer(address) as producer,
        ):
            with pytest.raises(SystemBusy):
                await producer.send(Message("topic", b"x"), MessageQueue("topic", "b", 1))
            assert [command.fields["e"] for command in seen] == ["1"]
            with pytest.raises(RouteNotFound, match="no master absent"):
                await producer.send(Message("topic", b"x"), MessageQueue("topic", "absent", 0))

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["send", "oneway", "address"])
def test_a_returned_broker_is_used_although_the_known_route_lacks_it(
    way: str,
) -> None:
    async def scenario() -> None:
        seen: list[Command] = []
        async with scripted(store([])) as a, scripted(store(seen)) as b:
            known = {"a": a}

            def route(request: Command, channel: Channel) -> Command:
                answer = routes(known)(request, channel)
                assert isinstance(answer, Command)
                return answer

            async with (
                scripted({RequestCode.GET_ROUTEINFO_BY_TOPIC: route}) as address,
                Producer(address, retries=0) as producer,
            ):
                await producer.prepare("topic")
                known["b"] = b
                if way == "send":
                    await producer.send(Message("topic", b"x"), MessageQueue("topic", "b", 1))
                elif way == "oneway":
                    queue = MessageQueue("topic", "b", 1)
                    await producer.send_oneway(Message("topic", b"x"), queue)
                    await producer.send(Message("topic", b"x"), queue)
                else:
                    assert await producer.address_of(MessageQueue("topic", "b", 1)) == b
                assert {command.fields["e"] for command in seen} <= {"1"}
                assert len(seen) == {"send": 1, "oneway": 2, "address": 0}[way]

    asyncio.run(scenario())


def test_a_broker_without_a_route_causes_at_most_ten_queries_a_second() -> None:
    async def scenario() -> None:
        queries = 0

        async with scripted(store([])) as a:

            def route(request: Command, channel: Channel) -> Command:
                nonlocal queries
                queries += 1
                answer = routes({"a": a})(request, channel)
                assert isinstance(answer, Command)
                return answer

            async def send(producer: Producer) -> None:
                with pytest.raises(RouteNotFound, match="no master absent"):
                    await producer.send(Message("topic", b"x"), MessageQueue("topic", "absent", 0))

            async with (
                scripted({RequestCode.GET_ROUTEINFO_BY_TOPIC: route}) as address,
                Producer(address, retries=0) as producer,
            ):
                await producer.prepare("topic")
                began = asyncio.get_running_loop().time()
                for _ in range(3):
                    await asyncio.gather(*(send(producer) for _ in range(50)))
                seconds = asyncio.get_running_loop().time() - began
                assert queries <= 3 + seconds / 0.1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_the_status_shows_that_a_message_is_stored_less_safely(
    code: int, status: SendStatus
) -> None:
    async def scenario() -> None:
        async with (
            scripted(store([], code)) as broker,
            scripted(name_server({"b": broker})) as address,
            Producer(address) as producer,
        ):
            assert (await producer.send(Message("topic", b"x"))).status is status

    asyncio.run(scenario())


def test_the_timeout_applies_to_all_attempts_together() -> None:
    def silent(request: Command, channel: Channel) -> None:
        return None

    async def scenario() -> None:
        async with (
            scripted({**accept_heartbeats(), SEND: silent}) as broker,
            scripted(name_server({"b": broker})) as address,
            Producer(address, timeout=0.2) as producer,
        ):
            started = asyncio.get_running_loop().time()
            with pytest.raises(RequestTimeout):
                await producer.send(Message("topic", b"x"))
            # a second attempt would end then
            assert asyncio.get_running_loop().time() - started < 0.4

    run_fast(scenario())


def test_an_answer_without_its_fields_is_a_bad_answer() -> None:
    def mute(request: Command, channel: Channel) -> Command:
        return request.reply()

    async def scenario() -> None:
        async with (
            scripted({**accept_heartbeats(), SEND: mute}) as broker,
            scripted(name_server({"b": broker})) as address,
            Producer(address) as producer,
        ):
            with pytest.raises(BadAnswer, match="msgId"):
                await producer.send(Message("topic", b"x"))

    asyncio.run(scenario())


def test_a_topic_without_a_route_goes_to_the_brokers_that_create_topics() -> None:
    async def scenario() -> None:
        seen: list[Command] = []
        async with scripted(store(seen)) as broker:
            answer = routes({"b": broker}, queues=8)

            def only_default(request: Command, channel: Channel) -> Command:
                if request.fields["topic"] != "TBW102":
                    return request.reply(ResponseCode.TOPIC_NOT_EXIST)
                return answer(request, channel)  # type: ignore[return-value]

            handlers: dict[int, Handler] = {RequestCode.GET_ROUTEINFO_BY_TOPIC: only_default}
            async with scripted(handlers) as address, Producer(address) as producer:
                assert len(await producer.prepare("new")) == 4
                await producer.send(Message("new", b"x"))
                assert seen[0].fields["b"] == "new"

    asyncio.run(scenario())


def test_a_producer_registers_and_unregisters() -> None:
    async def scenario() -> None:
        heard: list[Command] = []

        def hear(request: Command, channel: Channel) -> Command:
            heard.append(request)
            return request.reply()

        handlers = {
            **store([]),
            RequestCode.HEART_BEAT: hear,
            RequestCode.UNREGISTER_CLIENT: hear,
        }
        async with scripted(handlers) as broker, scripted(name_server({"b": broker})) as address:
            async with Producer(address, "orders") as producer:
                await producer.send(Message("topic", b"x"))
                await until(lambda: bool(heard))
                client_id = producer.session.client_id
            beat = HeartbeatData.decode(heard[0].body)
            assert (beat.client_id, [p.group_name for p in beat.producer_data_set]) == (
                *(client_id, ["orders"]),
            )
            assert heard[-1].code == RequestCode.UNREGISTER_CLIENT
            assert heard[-1].fields == {"clientID": client_id, "producerGroup": "orders"}

    asyncio.run(scenario())


def test_a_closed_producer_refuses_to_send() -> None:
    async def scenario() -> None:
        async with (
            scripted(store([])) as broker,
            scripted(name_server({"b": broker})) as address,
        ):
            producer = Producer(address)
            async with producer:
                await producer.send(Message("topic", b"x"))
            with pytest.raises((ClientError, ConnectError)):
                await producer.send(Message("topic", b"x"))
            with pytest.raises(ClientError):
                producer.submit(Message("topic", b"x"))

    asyncio.run(scenario())


def test_many_messages_may_be_in_flight_without_a_task_for_each() -> None:
    async def scenario() -> None:
        seen: list[Command] = []
        async with (
            scripted(store(seen)) as broker,
            scripted(name_server({"b": broker})) as address,
            Producer(address) as producer,
        ):
            with pytest.raises(ClientError, match="not prepared"):
                producer.submit(Message("topic", b"x"))
            await producer.prepare("topic")
            tasks = len(asyncio.all_tasks())
            futures = [producer.submit(Message("topic", b"%d" % n)) for n in range(1000)]
            assert len(asyncio.all_tasks()) <= tasks + 1  # the task of the connection
            results = await asyncio.gather(*futures)
            assert len({result.message_id for result in results}) == 1000

    asyncio.run(scenario())
