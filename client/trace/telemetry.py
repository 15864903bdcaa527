"""OpenTelemetry: a span for each send and for each consumed message, in one trace.

Requires `opentelemetry-api` (the extra `mq[telemetry]`), and an SDK configured by the program to
export the spans. Names and attributes follow OpenTelemetry's conventions for messaging.
"""

import asyncio
from collections.abc import Sequence
from contextvars import Token
from typing import Any, NamedTuple

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from mq.client.hooks import ConsumeContext, ConsumeHook, ConsumeOutcome, SendContext, SendHook
from mq.protocol.message import Message, StoredMessage


class _Consumption(NamedTuple):
    """The spans of delivered messages, and the attached context."""

    spans: Sequence[Span]
    token: Token[contexts.Context] | None
    task: "asyncio.Task[Any] | None"


class Telemetry(SendHook, ConsumeHook):
    """Hooks that create the spans: `ClientOptions(hooks=[Telemetry()])`, for producers and
    consumers.

    A message carries the context of its send in its properties (`traceparent` and other properties
    of the program's propagators). Consuming it is a span of the same trace; messages that a
    listener gets as a batch have one span each, and these are linked. While an `async` listener or
    a loop processes a single message, its span is the current one, so that spans created by the
    program are its children.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """`provider` is the global one by default."""
        from mq import __version__

        self._tracer: Tracer = trace.get_tracer("mq.client", __version__, provider)

    def before_send(self, context: SendContext) -> None:
        """Start the span of an attempt, and store its context in the messages."""
        first = context.messages[0]
        span = self._tracer.start_span(
            f"send {context.queue.topic}",
            kind=SpanKind.PRODUCER,
            attributes={
                **_of_destination(context.queue.topic, context.queue.queue_id),
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.rocketmq.client_group": context.group,
                **_of_address(context.address),
                **_of_messages(context.messages),
                **_of_one(first.tags, first.keys),
            },
        )
        carried = trace.set_span_in_context(span)
        for message in context.messages:
            for (
                name
            ) in _carried():  # from a previous attempt, or from the message that this one copies
                message.properties.pop(name, None)
            propagate.inject(message.properties, carried)
        context.state[self] = span

    def after_send(self, context: SendContext) -> None:
        """End the span, with the broker's answer."""
        span: Span | None = context.state.pop(self, None)
        if span is None:
            return
        if context.result is not None:
            span.set_attribute("messaging.message.id", context.result.message_id)
        _end(span, context.error)

    def before_consume(self, context: ConsumeContext) -> None:
        """Start a span for each message, as a child of the span of its send."""
        spans: list[Span] = []
        for message in context.messages:
            links = [Link(span.get_span_context()) for span in spans[:1]]
            spans.append(self._begin(context, message, links))
        token, task = None, None
        if len(spans) == 1:
            task = _current_task()
            token = contexts.attach(trace.set_span_in_context(spans[0]))
        context.state[self] = _Consumption(spans, token, task)

    def _begin(self, context: ConsumeContext, message: StoredMessage, links: list[Link]) -> Span:
        attributes = {
            **_of_destination(context.queue.topic, context.queue.queue_id),
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": context.group,
            "messaging.message.id": message.message_id,
            "messaging.message.body.size": len(message.body),
            **_of_one(message.tags, message.keys),
        }
        return self._tracer.start_span(
            f"process {context.queue.topic}",
            context=propagate.extract(message.properties),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )

    def after_consume(self, context: ConsumeContext) -> None:
        """End the spans, with the outcome of the consumption."""
        begun: _Consumption | None = context.state.pop(self, None)
        if begun is None:
            return
        # Each poll may run in another task; there the context must not be detached.
        if begun.token is not None and begun.task is _current_task():
            contexts.detach(begun.token)
        failed = context.outcome is not ConsumeOutcome.SUCCESS
        for span in begun.spans:
            outcome = context.outcome.name.lower() if context.outcome is not None else "unknown"
            span.set_attribute("messaging.rocketmq.consume_result", outcome)
            _end(span, context.error, failed=failed)


def _end(span: Span, error: BaseException | None, *, failed: bool = False) -> None:
    if error is not None:
        span.record_exception(error)
        span.set_attribute("error.type", type(error).__name__)
    if error is not None or failed:
        span.set_status(Status(StatusCode.ERROR, str(error) if error is not None else None))
    span.end()


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _carried() -> frozenset[str]:
    """Return the properties that the program's propagators write and read."""
    return frozenset(propagate.get_global_textmap().fields)


def _of_destination(topic: str, queue_id: int) -> dict[str, Any]:
    return {
        "messaging.system": "rocketmq",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(queue_id),
    }


def _of_address(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"server.address": host, "server.port": int(port)} if port.isdecimal() else {}


def _of_messages(messages: Sequence[Message]) -> dict[str, Any]:
    if len(messages) > 1:
        return {"messaging.batch.message_count": len(messages)}
    return {"messaging.message.body.size": len(messages[0].body)}


def _of_one(tags: str | None, keys: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if tags:
        found["messaging.rocketmq.message.tag"] = tags
    if keys:
        found["messaging.rocketmq.message.keys"] = tuple(keys)
    return found
