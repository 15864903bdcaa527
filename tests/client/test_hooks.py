"""Hooks around sends, consumption and requests, with real daemons."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.consumer.push.listener import RetryLater
from mq.client.errors import ClientError, ConnectError
from mq.client.hooks import (
    ConsumeContext,
    ConsumeHook,
    ConsumeOutcome,
    HookRefused,
    RpcHook,
    SendContext,
    SendHook,
)
from mq.client.options import ClientOptions
from mq.client.producer.producer import Producer, SendStatus
from mq.client.producer.transactions import TransactionCheck, TransactionProducer, TransactionState
from mq.client.pull import pulling
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.routing.latency import FaultTolerance
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import FIRST, GROUP, TOPIC, Cluster, cluster, numbers
from tests.client.scripted import name_server, scripted
from tests.waiting import until


class Sends(SendHook):
    """Records the send attempts and marks the messages."""

    def __init__(self, name: str = "", into: list[Any] | None = None) -> None:
        self.name = name
        self.seen: list[Any] = [] if into is None else into

    def before_send(self, context: SendContext) -> None:
        context.state[self] = len(self.seen)
        for message in context.messages:
            message.properties[f"mark{self.name}"] = "set"
        self.seen.append((self.name, "before", [m.body for m in context.messages]))

    def after_send(self, context: SendContext) -> None:
        assert context.state[self] < len(self.seen)
        status = None if context.result is None else context.result.status
        self.seen.append((self.name, "after", status, type(context.error).__name__))


class Broken(SendHook, ConsumeHook):
    """Raises in every method whose errors are only logged."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def before_send(self, context: SendContext) -> None:
        raise self.kind("before")

    def after_send(self, context: SendContext) -> None:
        raise self.kind("after")

    def keep(self, group: str, queue: MessageQueue, message: StoredMessage) -> bool:
        raise self.kind("keep")

    def before_consume(self, context: ConsumeContext) -> None:
        raise self.kind("before")

    def after_consume(self, context: ConsumeContext) -> None:
        raise self.kind("after")


# A hook that has awaited a cancelled task raises CancelledError.
UNUSUAL = (KeyError, asyncio.CancelledError)


async def stored(there: Cluster, count: int = 1) -> dict[bytes, dict[str, str]]:
    """Wait for `count` messages in the topic; return the properties of all by body."""
    store = there.pair.broker.stores.messages
    await until(lambda: sum(store.max_offset(TOPIC, queue) for queue in range(4)) >= count)
    reader = PullConsumer(there.session)
    return {
        message.body: message.properties
        for queue in await reader.queues(TOPIC)
        async for message in reader.read(queue)
    }


def test_send_hooks_run_in_order_and_their_properties_are_stored() -> None:
    seen: list[Any] = []
    hooks = [Sends("a", seen), Sends("b", seen)]

    async def scenario() -> None:
        async with cluster() as there:
            async with Producer(there.address, hooks=hooks) as producer:
                await producer.send(Message(TOPIC, b"1"))
                await producer.prepare(TOPIC)
                await producer.submit(Message(TOPIC, b"2"))
                await producer.send_batch([Message(TOPIC, b"3"), Message(TOPIC, b"4")])
                await producer.send_oneway(Message(TOPIC, b"5"))
            properties = await stored(there, 5)
        for body in (b"1", b"2", b"3", b"4", b"5"):
            assert properties[body]["marka"] == properties[body]["markb"] == "set"

    asyncio.run(scenario())
    expected: list[Any] = []
    for bodies in ([b"1"], [b"2"], [b"3", b"4"]):
        expected += [(name, "before", bodies) for name in "ab"]
        expected += [(name, "after", SendStatus.SEND_OK, "NoneType") for name in "ab"]
    expected += [(name, "before", [b"5"]) for name in "ab"]
    expected += [(name, "after", None, "NoneType") for name in "ab"]
    assert seen == expected


def test_hooks_run_for_each_send_attempt_and_get_its_error() -> None:
    hook = Sends()

    async def scenario() -> None:
        async with scripted({}) as gone:
            pass
        async with scripted(name_server({"a": gone})) as namesrv:
            async with Producer(namesrv, hooks=[hook], retries=1) as producer:
                with pytest.raises(ConnectError):
                    await producer.send(Message(TOPIC, b"1"))

    asyncio.run(scenario())
    one = [("", "before", [b"1"]), ("", "after", None, "ConnectError")]
    assert hook.seen == one * 2


@pytest.mark.parametrize("kind", UNUSUAL)
def test_a_hook_that_fails_loses_no_message_and_is_logged(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            async with Producer(there.address, hooks=[Broken(kind)]) as producer:
                await producer.send(Message(TOPIC, b"1"))
            async with there.consumer(listener=listen, hooks=[Broken(kind)]) as consumer:
                await until(lambda: got == [b"1"])
                await until(lambda: consumer.reader.counts[TOPIC].consumed == 1)
                assert consumer.reader.counts[TOPIC].failed == 0

    asyncio.run(scenario())
    for method in ("before_send", "after_send", "keep", "before_consume", "after_consume"):
        assert f"a hook's {method}() failed" in caplog.text


@pytest.mark.parametrize(
    ("name", "value"), [("long", "x" * 40_000), ("odd", "\x01"), ("TAGS", "t")]
)
def test_properties_of_a_hook_that_cannot_be_stored_are_left_out(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Spoils(SendHook):
        def before_send(self, context: SendContext) -> None:
            for message in context.messages:
                message.properties[name] = value

    async def scenario() -> None:
        async with cluster() as there:
            async with Producer(there.address, hooks=[Spoils()]) as producer:
                await producer.send(Message(TOPIC, b"1", properties={"kept": "yes"}))
            assert (await stored(there))[b"1"]["kept"] == "yes"

    asyncio.run(scenario())
    assert "sending the message without it" in caplog.text


def test_a_check_refuses_a_send_without_a_retry_and_blames_no_broker() -> None:
    class Forbids(SendHook):
        asked = 0

        def check(self, context: SendContext) -> None:
            self.asked += 1
            if context.messages[0].body == b"secret":
                raise PermissionError("not that")

    hook, marks = Forbids(), Sends()

    async def scenario() -> None:
        async with cluster() as there:
            options = {"faults": FaultTolerance(), "hooks": [hook, marks]}
            async with Producer(there.address, **options) as producer:  # type: ignore[arg-type]
                with pytest.raises(HookRefused, match="Forbids refuses: PermissionError: not that"):
                    await producer.send(Message(TOPIC, b"secret"))
                with pytest.raises(HookRefused) as refused:
                    await producer.send_oneway(Message(TOPIC, b"secret"))
                assert isinstance(refused.value.__cause__, PermissionError)
                faults = producer._table.faults
                assert faults is not None
                assert not faults
                await producer.send(Message(TOPIC, b"open"))
                assert list(await stored(there)) == [b"open"]

    asyncio.run(scenario())
    assert hook.asked == 3
    assert [entry[1] for entry in marks.seen] == ["before", "after"]


def test_send_hooks_run_for_messages_in_transactions() -> None:
    hook = Sends()

    async def check(question: TransactionCheck) -> TransactionState:
        return TransactionState.UNKNOWN

    async def execute(message: Message) -> TransactionState:
        return TransactionState.COMMIT

    async def scenario() -> None:
        async with cluster() as there:
            async with TransactionProducer(there.address, "payers", check, hooks=[hook]) as payers:
                await payers.send_in_transaction(Message(TOPIC, b"1"), execute)
            assert (await stored(there))[b"1"]["mark"] == "set"

    asyncio.run(scenario())
    assert [entry[1] for entry in hook.seen] == ["before", "after"]


class Consumes(ConsumeHook):
    """Records the consumed messages, and rejects bodies that start with `hidden`."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[bytes], str, str]] = []
        self.begun: list[list[bytes]] = []

    def keep(self, group: str, queue: MessageQueue, message: StoredMessage) -> bool:
        return not message.body.startswith(b"hidden")

    def before_consume(self, context: ConsumeContext) -> None:
        context.state[self] = len(self.begun)
        self.begun.append([message.body for message in context.messages])

    def after_consume(self, context: ConsumeContext) -> None:
        bodies = self.begun[context.state[self]]
        assert context.outcome is not None
        assert context.seconds >= 0
        self.seen.append((bodies, context.outcome.name, type(context.error).__name__))


def test_a_message_at_which_a_hook_exits_is_not_committed() -> None:
    """The committed offset does not pass messages that were not delivered."""
    committed: list[int] = []

    class Ends(ConsumeHook):
        def keep(self, group: str, queue: MessageQueue, message: StoredMessage) -> bool:
            raise SystemExit(3)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*numbers(5))
            try:
                async with LitePullConsumer(
                    there.address, GROUP, {TOPIC: "*"}, consume_from=FIRST, hooks=[Ends()]
                ) as consumer:
                    await consumer.poll(30)
            finally:
                committed.append(there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0))

    with pytest.raises(SystemExit):
        asyncio.run(scenario())
    assert committed[0] <= 0


@pytest.mark.parametrize("ordered", [False, True])
def test_consume_hooks_get_the_outcome_of_a_listener_and_reject_messages(ordered: bool) -> None:
    hook = Consumes()
    attempts: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        attempts.append(message.body)
        if message.body == b"1" and attempts.count(b"1") == 1:
            raise ValueError("once") if ordered else RetryLater(1)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"1", b"hidden", b"2")
            options = {"listener": listen, "ordered": ordered, "suspension": 0.01}
            async with there.consumer(hooks=[hook], **options) as consumer:
                await until(lambda: len(hook.seen) == 3)
                await consumer.commit()
                queue = MessageQueue(TOPIC, "broker-a", 0)
                committed = await consumer.reader.offsets.committed(queue)
                assert committed == 3  # rejected messages count as consumed

    asyncio.run(scenario())
    failure = "ValueError" if ordered else "RetryLater"
    kind = ConsumeOutcome.EXCEPTION if ordered else ConsumeOutcome.FAILED
    assert sorted(hook.seen) == sorted(
        [
            ([b"1"], kind.name, failure),
            ([b"1"], "SUCCESS", "NoneType"),
            ([b"2"], "SUCCESS", "NoneType"),
        ]
    )
    assert b"hidden" not in attempts


def test_consume_hooks_of_a_loop_end_with_the_next_message_or_a_break() -> None:
    hook = Consumes()

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*numbers(2))
            async with there.consumer(hooks=[hook]) as consumer:
                async for message in consumer:
                    if message.body == b"1":
                        break

    asyncio.run(scenario())
    assert hook.seen == [([b"0"], "SUCCESS", "NoneType"), ([b"1"], "FAILED", "NoneType")]


def test_consume_hooks_of_a_poll_end_with_the_next_poll_or_at_the_close() -> None:
    hook = Consumes()

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"hidden", b"1")
            lite = LitePullConsumer(
                there.address, GROUP, {TOPIC: "*"}, consume_from=FIRST, hooks=[hook]
            )
            async with lite:
                assert [message.body for message in await lite.poll()] == [b"1"]
                assert not hook.seen
                await there.send(b"2")
                assert [message.body for message in await lite.poll()] == [b"2"]
                assert hook.seen == [([b"1"], "SUCCESS", "NoneType")]
                await lite.close()  # without another poll

    asyncio.run(scenario())
    assert hook.seen[1:] == [([b"2"], "FAILED", "NoneType")]


def test_consume_hooks_run_for_a_pull() -> None:
    hook = Consumes()

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"1", b"hidden")
            async with PullConsumer(there.address, hooks=[hook]) as consumer:
                [queue] = await consumer.queues(TOPIC)
                result = await consumer.pull(queue, 0)
                assert ([m.body for m in result.messages], result.next_offset) == ([b"1"], 2)

    asyncio.run(scenario())
    assert hook.seen == [([b"1"], "SUCCESS", "NoneType")]


class Requests(RpcHook):
    """Records requests, adds a field to each, and refuses them if the test says so."""

    def __init__(self, kind: type[BaseException] = PermissionError) -> None:
        self.kind = kind
        self.sent: list[int] = []
        self.answered: list[tuple[int, int]] = []
        self.refused: set[int] = set()
        self.denied: list[int] = []

    def before_request(self, address: str, request: Command) -> None:
        if request.code in self.refused:
            self.denied.append(request.code)
            raise self.kind("not now")
        request.fields = {**request.fields, "mark": "set"}
        self.sent.append(request.code)

    def after_response(self, address: str, request: Command, response: Command) -> None:
        assert request.fields["mark"] == "set"
        self.answered.append((request.code, response.code))
        if -request.code in self.refused:
            self.denied.append(request.code)
            raise self.kind("not that")


def test_rpc_hooks_run_for_every_request_of_a_session() -> None:
    hook = Requests()

    async def scenario() -> None:
        async with cluster() as there:
            hook.sent.clear()
            async with Session(there.address, hooks=[hook]) as session:
                await Admin(session).topic_list()
                async with Producer(session) as producer:
                    await producer.send_oneway(Message(TOPIC, b"1"))
                    await producer.send(Message(TOPIC, b"2"))

    asyncio.run(scenario())
    assert {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.HEART_BEAT} <= set(hook.sent)
    assert hook.sent.count(RequestCode.SEND_MESSAGE_V2) == 2  # including the one-way send
    assert hook.answered.count((RequestCode.SEND_MESSAGE_V2, 0)) == 1


@pytest.mark.parametrize("kind", [PermissionError, asyncio.CancelledError])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_rpc_hook_may_refuse_requests_and_the_session_continues(
    sign: int, kind: type[BaseException]
) -> None:
    hook = Requests(kind)
    hook.refused.add(sign * RequestCode.SEND_MESSAGE_V2)

    async def scenario() -> None:
        async with cluster() as there:
            async with Producer(there.address, hooks=[hook]) as producer:
                with pytest.raises(HookRefused, match=f"Requests refuses: {kind.__name__}: not"):
                    await producer.send(Message(TOPIC, b"1"))
                hook.refused.clear()
                await producer.send(Message(TOPIC, b"2"))
            expected = {b"2"} if sign > 0 else {b"1", b"2"}
            assert set(await stored(there)) == expected

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", UNUSUAL)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_consumer_continues_after_a_hook_has_refused_its_pulls(
    sign: int, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "PULL_RETRY_SECONDS", 0.01)
    hook = Requests(kind)
    hook.refused.add(sign * RequestCode.PULL_MESSAGE)
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"1")
            async with there.consumer(listener=listen, hooks=[hook]):
                await until(lambda: bool(hook.denied))
                hook.refused.clear()
                await until(lambda: got == [b"1"])

    asyncio.run(scenario())


def test_rpc_hooks_run_for_requests_of_a_blocking_session_and_its_copies() -> None:
    hook = Requests()

    def ask(namesrv: str) -> None:
        options = ClientOptions(hooks=[hook])
        with BlockingSession(namesrv, options) as session, session.blocking() as again:
            for one in (session, again):
                run(Admin(one).topic_list())
            hook.refused.add(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            with pytest.raises(HookRefused):
                run(Admin(session).topic_list())

    async def scenario() -> None:
        async with cluster() as there:
            await asyncio.to_thread(ask, there.address)

    asyncio.run(scenario())
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    assert hook.answered == [(code, 0), (code, 0)]


def test_invalid_hooks_are_refused() -> None:
    class Waits(SendHook):
        async def before_send(self, context: SendContext) -> None:  # type: ignore[override]
            pass

    for hooks, text in (
        ([print], "is not a hook"),
        ([Waits()], "Waits.before_send must be a plain"),
    ):
        with pytest.raises(ClientError, match=text):
            ClientOptions(hooks=hooks)  # type: ignore[arg-type]

    async def scenario() -> None:
        async with Session("127.0.0.1:9") as session:
            clients: Sequence[Any] = (Producer, PullConsumer)
            for kind in clients:
                with pytest.raises(ClientError, match="is around requests: give it to the session"):
                    kind(session, "g", hooks=[Requests()])
            Consumer(session, "g", {TOPIC: "*"}, hooks=[Sends(), Consumes()])

    asyncio.run(scenario())
