"""`mq produce`: sends lines as messages."""

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

    At a terminal each line is sent when it is entered, and Ctrl-D ends. In a pipe lines are sent in
    batches, no faster than brokers accept them: the writer waits. A message counts when its broker
    has stored it.

    Messages with the same key go to one queue, in order; those without keys go to all queues in
    turn, and to another one if a broker is down. With -b and -i all go to one queue. A batch whose
    reply was lost is sent again: it may be stored twice.

    Lines that cannot be sent are reported with their numbers, the others are sent, and the exit
    status is 1. If no broker accepts messages, or after Ctrl-C, it reports how many were sent,
    which lines were not, and how to continue. Empty lines are skipped, as in kcat. The longest line
    is the brokers' maxMessageSize.

    With --json-lines a line has body, and optionally bodyEncoding (utf-8, base64, json), keys,
    tags, properties or headers, flag and delay: the output of message export and tail -o json,
    whose topic and queue are ignored. Each message gets a new id.

    Examples:
        mq produce Orders                               lines that you type
        mq produce Orders orders.txt --create           lines of a file, to a new topic
        mq produce Orders -K : < keyed.txt              lines like 4711:paid, in order for each key
        mq message export Orders - | mq produce Again --json-lines --create
                                                        the same messages to another topic
    """
    from mq.cli.messages.producing import Run

    common = common_of(topic, tags, key, attributes)
    run = Run(call, _GROUP, input, common, broker, qid, rate=rate, create=create)
    return await run.send()
