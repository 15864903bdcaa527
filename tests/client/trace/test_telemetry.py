"""Spans of sent and consumed messages, as OpenTelemetry's own SDK collects them."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mq.client import BrokerError, ClientOptions, Consumer, LitePullConsumer, Producer
from mq.client.trace.telemetry import Telemetry
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import ConsumeFromWhere, MessageQueue
from mq.protocol.message import Message, StoredMessage

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Spans:
    """A program's SDK that keeps its spans in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.client = ClientOptions(hooks=(Telemetry(self.provider),))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


def run(scenario: Callable[[Standalone, Spans], Any]) -> Spans:
    spans = Spans()

    async def both() -> None:
        async with Standalone(name_server_port=0, broker_port=0) as pair:
            await scenario(pair, spans)

    asyncio.run(both())
    return spans


@pytest.mark.parametrize("in_thread", [False, True])
def test_spans_of_a_listener_are_children_of_the_span_of_its_message(in_thread: bool) -> None:
    async def scenario(pair: Standalone, spans: Spans) -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            with spans.tracer.start_as_current_span("work"):
                loop.call_soon_threadsafe(done.set)

        async def listen(message: StoredMessage) -> None:
            work()

        def listen_in_thread(message: StoredMessage) -> None:
            assert threading.current_thread() is not threading.main_thread()
            work()

        where, listener = pair.name_server_address, listen_in_thread if in_thread else listen
        async with Producer(where, "shop", client=spans.client) as producer:
            with spans.tracer.start_as_current_span("order"):
                sent = await producer.send(Message("Spans", b"a lamp", "paid", "order-1"))
            async with Consumer(
                where,
                "g",
                {"Spans": "*"},
                client=spans.client,
                listener=listener,
                consume_from=FIRST,
            ):
                await done.wait()
        (send,), (process,) = spans.named("send Spans"), spans.named("process Spans")
        (order,), (worked,) = spans.named("order"), spans.named("work")
        assert send.parent == order.context
        assert process.parent is not None and process.parent.span_id == send.context.span_id
        assert worked.parent is not None and worked.parent.span_id == process.context.span_id
        assert {one.context.trace_id for one in (order, send, process, worked)} == {
            order.context.trace_id
        }
        assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        attributes = dict(process.attributes or {})
        assert attributes["messaging.message.id"] == sent.message_id
        assert attributes["messaging.consumer.group.name"] == "g"
        assert attributes["messaging.rocketmq.message.keys"] == ("order-1",)
        assert attributes["messaging.rocketmq.consume_result"] == "success"
        assert dict(send.attributes or {})["messaging.message.id"] == sent.message_id

    run(scenario)


def test_a_send_that_is_refused_and_a_listener_that_fails_are_errors() -> None:
    async def scenario(pair: Standalone, spans: Spans) -> None:
        failed = asyncio.Event()

        async def listen(message: StoredMessage) -> None:
            failed.set()
            raise ValueError("no lamp left")

        where = pair.name_server_address
        async with Producer(where, "shop", client=spans.client, retries=0) as producer:
            sent = await producer.send(Message("Spans", b"a lamp"))
            nowhere = MessageQueue("Spans", sent.queue.broker_name, 99)
            with pytest.raises(BrokerError):
                await producer.send(Message("Spans", b"a lamp"), nowhere)
        async with Consumer(
            where, "g", {"Spans": "*"}, client=spans.client, listener=listen, consume_from=FIRST
        ):
            await failed.wait()

    spans = run(scenario)
    assert [one.status.status_code for one in spans.named("send Spans")] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]
    (process,) = spans.named("process Spans")
    assert process.status.status_code is StatusCode.ERROR
    assert process.events[0].name == "exception"
    assert dict(process.attributes or {})["error.type"] == "ValueError"


def test_messages_of_a_batch_are_in_the_trace_of_its_send_and_linked() -> None:
    async def scenario(pair: Standalone, spans: Spans) -> None:
        got: list[StoredMessage] = []
        done = asyncio.Event()

        async def listen(messages: list[StoredMessage]) -> None:
            got.extend(messages)
            if len(got) == 3:
                done.set()

        where = pair.name_server_address
        async with Producer(where, "shop", client=spans.client) as producer:
            await producer.send_batch([Message("Spans", b"%d" % number) for number in range(3)])
        async with Consumer(
            where,
            "g",
            {"Spans": "*"},
            client=spans.client,
            batch_listener=listen,
            batch=3,
            consume_from=FIRST,
        ):
            await done.wait()

    spans = run(scenario)
    (send,), processes = spans.named("send Spans"), spans.named("process Spans")
    assert dict(send.attributes or {})["messaging.batch.message_count"] == 3
    assert len(processes) == 3
    for one in processes:
        assert one.parent is not None and one.parent.span_id == send.context.span_id
    linked = [link.context.span_id for one in processes for link in one.links]
    assert len(linked) == 2


def test_polls_in_different_tasks_leave_no_span_open() -> None:
    async def scenario(pair: Standalone, spans: Spans) -> None:
        where = pair.name_server_address
        async with Producer(where, "shop", client=spans.client) as producer:
            await producer.send(Message("Spans", b"a lamp"))
        async with LitePullConsumer(
            where, "g", {"Spans": "*"}, client=spans.client, consume_from=FIRST
        ) as consumer:
            found: list[StoredMessage] = []
            while not found:
                found = await asyncio.create_task(consumer.poll(timeout=30))
            await asyncio.create_task(consumer.poll(timeout=0))
            assert trace.get_current_span() is trace.INVALID_SPAN
        assert len(spans.named("process Spans")) == 1

    run(scenario)
