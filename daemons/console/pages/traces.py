"""Traces: the producer and the consumers of a message, from clients that write traces."""

from dataclasses import dataclass

from mq.client.admin import Admin
from mq.client.operations.messages.traces import Step, Traced, TraceRow, look_up
from mq.daemons.console.call import Call
from mq.daemons.console.pages.message_rows import check_bodies
from mq.daemons.console.parsing import moment
from mq.daemons.console.permissions import Permission
from mq.daemons.console.route import N_, Page, Query, Route, Sheet
from mq.protocol.names import TRACE_TOPIC

WIDTH = 960  # of the picture, without its labels
_LEAST = 3  # of a bar
_COLUMNS = (
    "messageId", "kind", "begin", "end", "group", "client", "result", "topic", "storeHost",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bar:
    """A step in the picture: its start, width and label."""

    left: int
    width: int
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class TraceResult:
    """The traces of an id or key. ``state`` is asked (no search yet), found, none, or no_topic;
    ``rows`` are those of `mq queryMsgTraceById`."""

    id: str
    trace_topic: str
    state: str
    messages: tuple[Traced, ...] = ()
    rows: tuple[TraceRow, ...] = ()
    failures: tuple[str, ...] = ()


async def show(call: Call) -> Page:
    """Show the steps of a message."""
    word = (call.query["id"] or "").strip()
    topic = call.query["topic"] or TRACE_TOPIC
    if not word:
        shown = TraceResult("", topic, "asked")
    else:
        if topic != TRACE_TOPIC:  # messages of any topic would be read as if they were traces
            check_bodies(call, topic)
        found = await look_up(
            Admin(call.cluster.session),
            word,
            trace_topic=topic,
            begin=call.query["from"] or 0,
            end=call.query["to"] or 2**63 - 1,
        )
        # Traces of topics that the user may not see are omitted.
        seen = tuple(item for item in map(lambda one: _seen(call, one), found.messages) if item)
        topics = {name for item in seen for name in item.topics}
        rows = tuple(
            item
            for item in found.rows
            if (item.topic is None or item.topic in topics)
            and (item.topic is not None or call.sees_group(item.group or ""))
        )
        state = found.state if seen or not found.messages else "none"
        shown = TraceResult(word, topic, state, seen, rows if seen else (), found.failures)
    return Page(
        "messages/traces.html",
        call.text("Trace of %(id)s", id=word) if word else call.text("Traces"),
        shown,
        command=("queryMsgTraceById", "-i", word) if word else (),
        sheet=Sheet(
            _COLUMNS,
            [
                (
                    item.message_id, step.kind, step.begin, step.end, step.group, step.client_host,
                    step.result, step.topic, step.store_host,
                )
                for item in shown.messages
                for step in item.steps
            ],
        ),
        extra={"bars": {item.message_id: bars(item.steps) for item in shown.messages}},
    )  # fmt: skip


def _seen(call: Call, item: Traced) -> Traced | None:
    """Return the message with the parts that the user may see; None if its topic is hidden."""
    if not all(map(call.sees_topic, item.topics)):
        return None
    steps = tuple(
        step for step in item.steps if step.kind != "consumed" or call.sees_group(step.group)
    )
    if not item.topics and not steps:  # its topic is unknown
        return None
    return Traced(item.message_id, item.topics, item.keys, steps)


def bars(steps: tuple[Step, ...]) -> tuple[Bar, ...]:
    """Return the steps on one time scale, from the first one with a time to the end of the last.

    Old clients do not record the time of consumption: their steps are not in the picture.
    """
    timed = [step for step in steps if step.begin > 0]
    if not timed:
        return ()
    first, last = min(step.begin for step in timed), max(step.end for step in timed)
    scale = WIDTH / max(1, last - first)
    found = []
    for step in timed:
        left = min(WIDTH - _LEAST, round((step.begin - first) * scale))
        width = min(WIDTH - left, max(_LEAST, round((step.end - step.begin) * scale)))
        kind = "failed" if step.result == "failed" else step.kind
        label = f"{step.group} +{step.begin - first} ms, {step.end - step.begin} ms"
        found.append(Bar(left, width, kind, label))
    return tuple(found)


ROUTES = (
    Route(
        "/traces",
        show,
        Permission.READ,
        N_("The traces of a message, by its unique id or a key."),
        query=(
            Query("id", about=N_("Unique id or key of a message")),
            Query("topic", about=N_("Topic with the traces, if it is not the default")),
            Query("from", moment, about=N_("Traces stored then or later")),
            Query("to", moment, about=N_("Traces stored before then")),
        ),
        menu=N_("Traces"),
        data=TraceResult,
    ),
)
