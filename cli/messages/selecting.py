"""Options that select messages, and how they are written and sent."""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.errors import UsageError, legal
from mq.cli.runtime.option_groups import option_group
from mq.cli.time_expressions import FORMS
from mq.cli.time_expressions import parse as parse_moment
from mq.client.operations.messages.lines import BodyForm

if TYPE_CHECKING:
    from mq.client.operations.messages.choice import Choice

Begin = Annotated[str | None, typer.Option("--begin", metavar="TIME", help=f"Start here: {FORMS}.")]
End = Annotated[str | None, typer.Option("--end", metavar="TIME", help="End before then.")]
RateOption = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="At most N messages per second.")
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="At most N messages in total.")
]
BodyOption = Annotated[
    BodyForm,
    typer.Option(
        "--body", help="Form of bodies: text (base64 if a body is not UTF-8), base64 or json."
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")]


@option_group
class Narrowing:
    """Which messages of a topic are selected, besides by time."""

    broker_name: Annotated[
        list[str] | None,
        typer.Option("-b", "--brokerName", metavar="NAME", help="Only messages of this broker."),
    ] = None
    queue_id: Annotated[
        list[int] | None,
        typer.Option("-i", "--queueId", metavar="ID", help="Only messages of this queue."),
    ] = None
    tag: Annotated[
        str | None,
        typer.Option(
            "--tag", metavar="TAGS", help="Only messages with one of these tags: 'a || b'."
        ),
    ] = None
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql", metavar="EXPRESSION", help="Only messages matching this SQL92 expression."
        ),
    ] = None
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Only messages with this key or unique id."),
    ] = None


def choice_of(
    call: Call, topic: str, narrowing: Narrowing, begin: str | None, end: str | None
) -> "Choice":
    """Return the selection. Raises UsageError and InvalidRequest for invalid options."""
    from mq.client.operations.messages.choice import Choice, parse_queue_ids
    from mq.protocol.names import check_topic

    legal(check_topic, topic)
    now = call.environment.clock()
    choice = Choice(
        topic,
        None if begin is None else parse_moment(begin, "--begin", now),
        None if end is None else parse_moment(end, "--end", now),
        tuple(narrowing.broker_name or ()),
        parse_queue_ids(narrowing.queue_id),
        narrowing.tag,
        narrowing.sql,
        narrowing.key,
        (begin, end),
    )
    if narrowing.sql is not None:
        _check_sql(narrowing.sql)
    return choice


def _check_sql(expression: str) -> None:
    from mq.daemons.broker.filters.errors import FilterSyntaxError
    from mq.daemons.broker.filters.sql92 import read_filter

    try:
        read_filter(expression)
    except FilterSyntaxError as error:
        raise UsageError(
            f"--sql: {error}", hint="for example: amount > 5 AND TAGS = 'new'"
        ) from None
