"""Push consumers: pushed messages arrive before pulled ones, and nothing else changes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mq.client import PushConsumer, SnodeSession, Sql92
from mq.client.consumer.consumer import Consumer
from mq.client.errors import ClientError
from mq.client.options import ClientOptions, Intervals
from mq.client.pull.process_queue import FlowLimits
from mq.client.snode import pushes
from mq.client.transport.session import Session
from mq.protocol.bodies import ConsumeType, MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.message import StoredMessage
from tests.client.clusters import FIRST
from tests.client.snode.scripted_snode import (
    BROKER,
    GROUP,
    QUEUE,
    TOPIC,
    Stage,
    snodes_by_script,
)
from tests.waiting import until

RARELY = ClientOptions(intervals=Intervals(routes=600, heartbeats=600, offsets=600))


class Pushed:
    """A push consumer, and the bodies that it got."""

    def __init__(self, stage: Stage, consumer: PushConsumer, got: list[bytes]) -> None:
        self.stage = stage
        self.consumer = consumer
        self.got = got

    async def gets(self, *bodies: bytes) -> None:
        await until(lambda: len(self.got) >= len(bodies))
        assert self.got == list(bodies)

    async def waits(self) -> None:
        """Return when a pull of the queue is suspended at a snode."""
        await until(
            lambda: any(QUEUE.topic == r.fields["topic"] for r, _ in self.stage.queues.waiting)
        )

    def push(self, body: bytes, tag: str = "") -> StoredMessage:
        """Store a message and push it."""
        message = self.stage.queues.store(body, tag=tag)
        self.stage.snode.push(message)
        return message


Scenario = Callable[[Pushed], Awaitable[None]]


def pushed_to(
    scenario: Scenario, *, snodes: int = 1, begun: bool = True, **options: object
) -> None:
    """Run `scenario` with a push consumer.

    With `begun`, the first push has been ignored, "0" and "1" have been consumed, and a pull is
    suspended until the test answers it.
    """
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)

    async def main() -> None:
        async with snodes_by_script(snodes) as stage:
            consumer = PushConsumer(
                stage.namesrv,
                GROUP,
                options.pop("subscriptions", {TOPIC: "*"}),  # type: ignore[arg-type]
                listener=listen,
                consume_from=FIRST,
                client=RARELY,
                **options,  # type: ignore[arg-type]
            )
            async with consumer:
                pushed = Pushed(stage, consumer, got)
                await until(lambda: QUEUE in stage.snode.claimed)
                await pushed.waits()
                if begun:
                    stage.queues.holds = True
                    pushed.push(b"0")
                    pushed.push(b"1")
                    await consumer.session.invoke(stage.snode.address, heartbeat_of(consumer))
                    assert got == []  # the first push is ignored, the second one comes after a gap
                    stage.queues.holds = False
                    stage.queues.answer_pulls()
                    await pushed.gets(b"0", b"1")
                    await pushed.waits()
                    stage.queues.holds = True
                await scenario(pushed)

    asyncio.run(main())


def heartbeat_of(consumer: PushConsumer):  # type: ignore[no-untyped-def]
    """Return a request whose answer arrives after everything that was pushed before."""
    from mq.protocol.command import Command

    return Command(RequestCode.HEART_BEAT, None, consumer._member.describe().encode())


async def await_pushes(pushed: Pushed) -> None:
    """Return when all pushed messages have arrived."""
    consumer = pushed.consumer
    await consumer.session.invoke(pushed.stage.snode.address, heartbeat_of(consumer))


def test_heartbeats_name_the_queues_to_push_at_every_snode() -> None:
    async def scenario(pushed: Pushed) -> None:
        for snode in pushed.stage.snodes:
            await until(lambda snode=snode: snode.claimed == {QUEUE})  # type: ignore[misc]
            heartbeat, _ = snode.heartbeats[-1]
            (consumer,) = heartbeat.consumer_data_set
            assert consumer.consume_type is ConsumeType.CONSUME_PUSH
            assert {one.topic for one in consumer.subscription_data_set} == {
                *(TOPIC, "Filtered", f"%RETRY%{GROUP}")
            }

    subscriptions = {TOPIC: "*", "Filtered": Sql92("a > 1")}
    pushed_to(scenario, snodes=3, begun=False, subscriptions=subscriptions)


def test_a_pushed_message_is_delivered_once_although_a_pull_is_in_flight() -> None:
    async def scenario(pushed: Pushed) -> None:
        pushed.push(b"2")
        pushed.push(b"3")
        await pushed.gets(b"0", b"1", b"2", b"3")
        pushed.stage.queues.holds = False
        pushed.stage.queues.answer_pulls()  # with both messages
        await await_pushes(pushed)
        pushed.push(b"4")
        await pushed.gets(b"0", b"1", b"2", b"3", b"4")

    pushed_to(scenario)


def test_pushed_messages_have_the_properties_of_pulled_ones() -> None:
    async def scenario(pushed: Pushed) -> None:
        seen: list[StoredMessage] = []
        deliver = pushed.consumer.reader._pulling._on_ready

        def note(held: object, messages: list[StoredMessage]) -> None:
            seen.extend(messages)
            deliver(held, messages)  # type: ignore[arg-type]

        pushed.consumer.reader._pulling._on_ready = note
        pushed.push(b"2")
        await pushed.gets(b"0", b"1", b"2")
        (message,) = seen
        assert (message.broker_name, message.queue_offset) == (BROKER, 2)
        assert message.properties["MIN_OFFSET"] == "0"
        assert message.properties["MAX_OFFSET"] == "3"

    pushed_to(scenario)


def test_a_message_that_is_pushed_again_is_delivered_once() -> None:
    async def scenario(pushed: Pushed) -> None:
        message = pushed.push(b"2")
        for _ in range(3):
            pushed.stage.snode.push(message)
        pushed.push(b"3")
        await pushed.gets(b"0", b"1", b"2", b"3")

    pushed_to(scenario)


def test_a_message_that_was_not_pushed_is_pulled_before_the_next_one() -> None:
    async def scenario(pushed: Pushed) -> None:
        pushed.push(b"2")
        await pushed.gets(b"0", b"1", b"2")
        pushed.stage.queues.store(b"3")
        pushed.push(b"4")
        await await_pushes(pushed)
        assert len(pushed.got) == 3
        pushed.stage.queues.holds = False
        pushed.stage.queues.answer_pulls()
        await pushed.gets(b"0", b"1", b"2", b"3", b"4")

    pushed_to(scenario)


def test_while_messages_are_pushed_none_is_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes, "PUSH_PATIENCE_SECONDS", 60.0)

    async def scenario(pushed: Pushed) -> None:
        queues = pushed.stage.queues
        pushed.push(b"2")
        await pushed.gets(b"0", b"1", b"2")
        queues.holds = False
        queues.answer_pulls()
        await await_pushes(pushed)
        before = queues.pulls[TOPIC]
        for number in range(3, 60):
            pushed.push(b"%d" % number)
        await pushed.gets(*(b"%d" % number for number in range(60)))
        assert queues.pulls[TOPIC] == before

    pushed_to(scenario)


def test_a_consumer_pulls_again_when_pushes_cease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes, "PUSH_PATIENCE_SECONDS", 0.2)

    async def scenario(pushed: Pushed) -> None:
        queues = pushed.stage.queues
        pushed.push(b"2")
        await pushed.gets(b"0", b"1", b"2")
        queues.holds = False
        queues.answer_pulls()
        await pushed.waits()  # the next pull
        queues.store(b"3")
        queues.answer_pulls()
        await pushed.gets(b"0", b"1", b"2", b"3")

    pushed_to(scenario)


def test_a_pushed_message_with_another_tag_is_skipped() -> None:
    async def scenario(pushed: Pushed) -> None:
        pushed.push(b"2", tag="other")
        pushed.push(b"3", tag="paid")
        await until(lambda: pushed.got == [b"3"])
        await pushed.consumer.commit()
        assert pushed.stage.queues.offsets[QUEUE] == 4

    def without_tags(pushed: Pushed) -> Awaitable[None]:
        return scenario(pushed)

    async def begin(pushed: Pushed) -> None:
        queues = pushed.stage.queues
        for body in (b"0", b"1"):
            queues.store(body, tag="other")
        queues.answer_pulls()
        await pushed.waits()
        queues.holds = True
        pushed.stage.snode.push(queues.messages[QUEUE][0])  # the first push
        await without_tags(pushed)

    pushed_to(begin, begun=False, subscriptions={TOPIC: "paid"})


def test_a_paused_consumer_ignores_pushes_and_pulls_the_messages_later() -> None:
    async def scenario(pushed: Pushed) -> None:
        queues = pushed.stage.queues
        pushed.consumer.pause()
        pushed.push(b"2")
        await await_pushes(pushed)
        assert len(pushed.got) == 2
        queues.holds = False
        queues.answer_pulls()  # the suspended pull returns it
        await pushed.gets(b"0", b"1", b"2")
        pushed.push(b"3")
        await await_pushes(pushed)
        assert len(pushed.got) == 3
        pushed.consumer.resume()
        await pushed.gets(b"0", b"1", b"2", b"3")

    pushed_to(scenario)


def test_flow_limits_apply_to_pushed_messages() -> None:
    async def main() -> None:
        release = asyncio.Event()
        got: list[bytes] = []

        async def listen(message: StoredMessage) -> None:
            await release.wait()
            got.append(message.body)

        async with (
            snodes_by_script() as stage,
            PushConsumer(
                stage.namesrv,
                GROUP,
                {TOPIC: "*"},
                listener=listen,
                consume_from=FIRST,
                client=RARELY,
                limits=FlowLimits(messages=10),
            ) as consumer,
        ):
            await until(lambda: QUEUE in stage.snode.claimed)
            for number in range(100):
                stage.snode.push(stage.queues.store(b"%d" % number))
            stage.queues.answer_pulls()
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.count >= 10)
            await await_pushes(Pushed(stage, consumer, got))
            assert held.count <= 42  # a pull returns up to 32
            release.set()
            await until(lambda: len(got) == 100)
            assert sorted(got) == sorted(b"%d" % number for number in range(100))

    asyncio.run(main())


def test_offsets_are_committed_before_a_snode_considers_the_consumer_slow() -> None:
    async def scenario(pushed: Pushed) -> None:
        for number in range(2, 600):
            pushed.push(b"%d" % number)
        await pushed.gets(*(b"%d" % number for number in range(600)))
        await until(lambda: pushed.stage.queues.offsets.get(QUEUE, 0) >= 256)

    pushed_to(scenario)


def test_a_damaged_push_is_ignored_and_the_message_is_pulled() -> None:
    async def scenario(pushed: Pushed) -> None:
        queues, snode = pushed.stage.queues, pushed.stage.snode
        message = queues.store(b"2")
        snode.push(message, body=b"\0" * 40)
        snode.push(message, broker="another")
        await await_pushes(pushed)
        assert len(pushed.got) == 2
        queues.holds = False
        queues.answer_pulls()
        await pushed.gets(b"0", b"1", b"2")

    pushed_to(scenario)


def test_a_queue_that_has_lost_its_end_restarts() -> None:
    async def scenario(pushed: Pushed) -> None:
        queues = pushed.stage.queues
        for number in range(2, 10):
            pushed.push(b"%d" % number)
        await pushed.gets(*(b"%d" % number for number in range(10)))
        queues.holds = False
        queues.answer_pulls()
        await await_pushes(pushed)
        del queues.messages[QUEUE][6:]
        queues.began += 1000
        pushed.push(b"new")
        await until(lambda: pushed.got[10:] == [b"new"])

    pushed_to(scenario)


def test_a_paused_queue_that_has_lost_its_end_restarts_before_later_pushes() -> None:
    """Otherwise it would continue at the end that the check found, and skip the pushed message."""

    async def scenario(pushed: Pushed) -> None:
        queues = pushed.stage.queues
        for number in range(2, 10):
            pushed.push(b"%d" % number)
        await pushed.gets(*(b"%d" % number for number in range(10)))
        queues.holds = False
        queues.answer_pulls()
        await pushed.waits()
        pushed.consumer.pause()
        del queues.messages[QUEUE][6:]
        queues.began += 1000
        pushed.push(b"new")
        await await_pushes(pushed)
        reader = pushed.consumer.reader
        held = reader.held[QUEUE]
        assert not await reader._is_same(held)
        await until(lambda: reader.held.get(QUEUE, held) is not held)
        pushed.consumer.resume()
        await until(lambda: pushed.got[10:] == [b"new"])

    pushed_to(scenario)


def test_an_ordered_consumer_gets_each_queue_in_order() -> None:
    async def scenario(pushed: Pushed) -> None:
        queues = pushed.stage.queues
        for number in range(2, 100):
            if number % 7:
                pushed.push(b"%d" % number)
            else:
                queues.store(b"%d" % number)
            if number % 11 == 0:
                await await_pushes(pushed)
        queues.holds = False
        queues.answer_pulls()
        await pushed.gets(*(b"%d" % number for number in range(100)))

    pushed_to(scenario, ordered=True)


def test_a_snode_that_disconnects_is_replaced_by_another_one_at_once() -> None:
    async def scenario(pushed: Pushed) -> None:
        stage = pushed.stage
        serving = next(s for s in stage.snodes if s.asked[RequestCode.PULL_MESSAGE])
        (other,) = [s for s in stage.snodes if s is not serving]
        before = other.asked[RequestCode.PULL_MESSAGE]
        stage.queues.waiting.clear()
        beats = len(serving.heartbeats)
        serving.break_off()
        await until(lambda: other.asked[RequestCode.PULL_MESSAGE] > before, 2.5)
        stage.queues.store(b"2")
        stage.queues.holds = False
        stage.queues.answer_pulls()
        await pushed.gets(b"0", b"1", b"2")
        await until(lambda: len(serving.heartbeats) > beats)  # it gets heartbeats again

    pushed_to(scenario, snodes=2)


def test_options_that_do_not_work_with_pushes_are_refused() -> None:
    for options in ({"broadcasting": True}, {"offsets": object()}):
        with pytest.raises(ClientError, match="offsets at the brokers"):
            PushConsumer("127.0.0.1:9", GROUP, {TOPIC: "*"}, **options)
    with pytest.raises(ClientError, match="open one with snode=True"):
        PushConsumer(Session("127.0.0.1:9"), GROUP, {TOPIC: "*"})
    assert Consumer(SnodeSession("127.0.0.1:9"), GROUP, {TOPIC: "*"}).session.options.snode


def test_a_message_that_cannot_be_sent_back_is_copied_through_the_snode() -> None:
    async def main() -> None:
        async with (
            snodes_by_script() as stage,
            PushConsumer(stage.namesrv, GROUP, {TOPIC: "*"}, listener=fail, consume_from=FIRST),
        ):
            stage.queues.store(b"difficult")
            stage.queues.answer_pulls()
            retries = MessageQueue(f"%RETRY%{GROUP}", BROKER, 0)
            await until(lambda: bool(stage.queues.messages[retries]))
            assert stage.queues.messages[retries][0].body == b"difficult"

    asyncio.run(main())


async def fail(message: StoredMessage) -> None:
    raise ValueError("not today")


def test_a_push_consumer_is_traced() -> None:
    async def main() -> None:
        async with snodes_by_script() as stage:
            got: list[bytes] = []

            async def listen(message: StoredMessage) -> None:
                got.append(message.body)

            async with PushConsumer(
                stage.namesrv,
                GROUP,
                {TOPIC: "*"},
                listener=listen,
                consume_from=FIRST,
                trace="Traces",
            ):
                stage.queues.store(b"traced")
                stage.queues.answer_pulls()
                await until(lambda: got == [b"traced"])
            assert stage.queues.messages[MessageQueue("Traces", BROKER, 0)]

    asyncio.run(main())


def test_revoked_queues_are_not_claimed_any_more() -> None:
    async def scenario(pushed: Pushed) -> None:
        pushed.consumer.reader._rebalances = False
        await pushed.consumer.reader.assign([])
        await until(lambda: pushed.stage.snode.claimed == set())
        await pushed.consumer.reader.assign([QUEUE])
        await until(lambda: pushed.stage.snode.claimed == {QUEUE})

    pushed_to(scenario, begun=False)
