"""Common code of commands that resend messages: options and producer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.messages.missing_topic import Create, make_sure
from mq.cli.messages.selecting import RateOption
from mq.cli.runtime.call import Call
from mq.cli.runtime.errors import legal
from mq.cli.runtime.option_groups import option_group

if TYPE_CHECKING:
    from mq.client.operations.messages.sending import Targets
    from mq.client.producer.producer import Producer
    from mq.client.transport.caller import Caller

GROUP = "MQ_MESSAGE_COPY"  # the producer group at brokers


class TopicWouldBeCreated(Exception):
    """Ends a dry run at a topic that would be created first: its queues are unknown."""


ToTopic = Annotated[
    str | None, typer.Option("--to-topic", metavar="TOPIC", help="Send to this topic instead.")
]


@option_group
class ResendOptions:
    """How messages are resent."""

    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FROM=TO",
            help="Send a queue to another one: [BROKER:]QUEUE=[BROKER:]QUEUE.",
        ),
    ] = None
    new_ids: Annotated[
        bool, typer.Option("--new-ids", help="Give each message a new unique id.")
    ] = False
    rate: RateOption = None
    create: Create = False

    async def targets(self, call: Call, producer: "Producer", topic: str) -> "Targets":
        """Return the targets of a topic's messages. A dry run ends if the topic is missing."""
        from mq.client.operations.messages.sending import Targets, queue_map

        if not await make_sure(call, producer.session, topic, create=self.create):
            raise TopicWouldBeCreated(topic)
        return Targets(producer, await queue_map(producer, topic, self.mapping or ()))


@asynccontextmanager
async def producer_of(call: Call, session: "Caller") -> AsyncIterator["Producer"]:
    """Yield the producer for the messages."""
    from mq.client.producer.options import ANY_BODY
    from mq.client.producer.producer import Producer
    from mq.client.transport.session import Session

    assert isinstance(session, Session)  # the commands here run on an event loop
    # A busy broker may need long for a batch; each try has the whole time.
    timeout = max(call.timeout, 10.0)
    async with Producer(session, GROUP, timeout=timeout, retries=0, max_body=ANY_BODY) as producer:
        yield producer


def check_topic(topic: str | None) -> None:
    """Raise CommandError for an invalid topic name."""
    from mq.protocol.names import check_topic

    if topic is not None:
        legal(check_topic, topic)
