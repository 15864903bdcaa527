"""Sending what comes line by line."""

from typing import Annotated

import typer

from mq.cli.messages.input import (
    Attributes,
    BrokerOption,
    Input,
    KeyOption,
    QueueOption,
    common_of,
)
from mq.cli.messages.missing_topic import Create
from mq.cli.messages.selecting import RateOption
from mq.cli.messages.send_summary import SENT, TOTALS
from mq.cli.parameters import Topic
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import in_bulk
from mq.cli.show.result import Result

COMMANDS = {"message": ("produce",)}

_GROUP = "MQ_PRODUCE"  # the producer group that brokers see


@in_bulk
@writes
@gives(SENT, totals=TOTALS)
@subject("topic", "file")
async def produce(
    call: Call,
    topic: Topic,
    *,
    input: Input,
    key: KeyOption = None,
    tags: Annotated[
        str | None, typer.Option("-c", "--tags", "--tag", metavar="TAG", help="Tag.")
    ] = None,
    attributes: Attributes,
    broker: BrokerOption = None,
    qid: QueueOption = None,
    rate: RateOption = None,
    create: Create = False,
) -> Result:
    """Send the lines of standard input or a file, each as a message.

    At a terminal each line is sent as it is entered, and Ctrl-D ends. In a pipe they go in batches,
    no more of them at a time than brokers take: who writes into it waits for these. A message
    counts when its broker has taken it.

    Messages of one key go to one queue, in their order; those without keys to all queues by turns,
    and where a broker is away to another. With -b and -i all go to one queue. A batch whose answer
    was lost is sent again: it may be there twice.

    Lines that cannot be sent are told with their numbers, the others are sent, and the status is 1.
    When no broker takes any more, or after Ctrl-C, it says how many were sent, which lines were
    not, and how to go on. Empty lines are left out, as kcat does. A line has at most what the
    brokers have as maxMessageSize.

    With --json-lines a line has body, and perhaps bodyEncoding (utf-8, base64, json), keys, tags,
    properties or headers, flag and delay: what message export and tail -o json write, in which the
    topic and the queue are passed over. Each message gets an id of its own.

    Examples:
        mq produce Orders                               what you type, line by line
        mq produce Orders orders.txt --create           the lines of a file, to a topic made for it
        mq produce Orders -K : < keyed.txt              lines like 4711:paid, in order for each key
        mq message export Orders - | mq produce Again --json-lines --create
                                                        the same messages to another topic
    """
    from mq.cli.messages.producing import Run

    common = common_of(topic, tags, key, attributes)
    run = Run(call, _GROUP, input, common, broker, qid, rate=rate, create=create)
    return await run.send()
