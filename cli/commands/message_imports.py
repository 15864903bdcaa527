"""Messages sent again from files, and from what comes by a pipe."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.messages import interrupted
from mq.cli.messages.resending import ResendOptions, TopicWouldBeCreated, check_topic, producer_of
from mq.cli.messages.selecting import Resume
from mq.cli.messages.send_summary import SENT, TOTALS, sent_result
from mq.cli.runtime.call import Call
from mq.cli.runtime.continuation import goes_on
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import in_bulk
from mq.cli.show.result import Result
from mq.client.operations.messages.line_source import is_file, reader_of

if TYPE_CHECKING:
    from mq.client.operations.messages.importing import Importer
    from mq.client.operations.messages.line_source import LineSource, Read

COMMANDS = {"message": ("message import",)}

_FROM_A_PIPE = "nobody knows which lines of the pipe were sent: import from a file to go on"


@in_bulk
@writes
@gives(SENT, totals=TOTALS)
@subject("file")
@goes_on(interrupted.imported)
async def message_import(
    call: Call,
    file: Annotated[
        str,
        typer.Option(
            "-f", "--file", metavar="FILE", help="A file of message export; -: standard input."
        ),
    ] = "-",
    to_topic: Annotated[
        str | None,
        typer.Option(
            "-t", "--topic", "--to-topic", metavar="TOPIC", help="Send to this topic instead."
        ),
    ] = None,
    *,
    sending: ResendOptions,
    resume: Resume = False,
) -> Result:
    """Send the messages of a file of JSON lines, or of standard input.

    Each goes to the topic that its line names, and to the queue of the same broker and number, if
    there is one; else to the one of that number, modulo the queues there are. So what came from one
    queue goes to one queue, in its order. --map says it otherwise. Lines that name no queue go to
    all queues in turn, those of a sharding key to one. A topic that there is not is asked about at
    a terminal; elsewhere it is made with --create only.

    Messages keep bodies, tags, keys, flags, the user's properties, sharding keys and, without
    --new-ids, unique ids. What RocketMQ noted about their life is left out: delays that are over,
    retries, transactions, waiting for a reply. They get new offsets, times and born hosts.

    At a line that is not a message it stops; the lines before it are sent. After that, Ctrl-C or a
    broker's failure the same command with --resume goes on where each queue has come to (as
    .FILE.import, beside FILE, tells). While the topic has other queues than before, because a
    broker is away, it refuses to. A message whose answer was lost may be sent twice. What comes by
    a pipe cannot be gone on with: that needs a file.

    Examples:
        mq message import orders.jsonl                  each message to its topic and queue
        mq message import orders.jsonl -t Again --create
                                                        all to a topic that is made for them
        mq message export Orders - | mq message import - -t Again
                                                        without a file
    """
    from mq.client.operations import local_files

    check_topic(to_topic)
    path = None if file == "-" else Path(file)
    if resume and not is_file(path):
        raise UsageError(
            f"--resume needs a file: {path or 'standard input'} cannot be gone on with",
            hint="write it to a file, and import that",
        )
    if path is None:
        prompt_for_lines(call)
        read = reader_of(call.environment.stdin)
        return await _import(call, read, None, file, to_topic, sending, resume=False)
    with local_files.opened(path) as source, local_files.locked(path):
        return await _import(call, reader_of(source), path, file, to_topic, sending, resume=resume)


def prompt_for_lines(call: Call) -> None:
    """Say to somebody who types what is waited for."""
    if call.environment.input_terminal:
        call.environment.stderr.write(
            "Lines of JSON, as message export writes them; Ctrl-D ends.\n"
        )
        call.environment.stderr.flush()


async def _import(
    call: Call,
    read: "Read",
    path: Path | None,
    file: str,
    to_topic: str | None,
    sending: ResendOptions,
    *,
    resume: bool,
) -> Result:
    from mq.cli.runtime.progress import progress
    from mq.client.operations import local_files
    from mq.client.operations.messages import resumable
    from mq.client.operations.messages.importing import Importer, load_state
    from mq.client.operations.messages.line_source import LineSource
    from mq.client.operations.messages.lines import LONGEST_LINE
    from mq.client.operations.messages.rate import Rate

    asked = {"topic": to_topic, "nameServers": call.name_servers, "map": sending.mapping or []}
    limiter = Rate(sending.rate)
    # What has come by a pipe comes no more, and beside /dev/fd/63 there is no room for a file.
    state = local_files.beside(path, "import") if path and is_file(path) else None
    done = load_state(state, asked) if state is not None and resume else {}
    # Of a pipe nobody knows how much comes, and whoever writes into it may show that.
    shown: AbstractContextManager[Callable[[int], None]] = nullcontext(_unseen)
    if path is not None:
        total = local_files.size(path)
        shown = progress(call.environment, "importing", total=total, unit="bytes")
    async with call.session() as session, producer_of(call, session) as producer:
        lines = partial(LineSource, read, longest=LONGEST_LINE, is_file=is_file(path))
        with shown as step, lines(step=step) as source:
            importer = Importer(
                partial(sending.targets, call, producer),
                source="standard input" if path is None else file,
                topic=to_topic,
                new_ids=sending.new_ids,
                rate=limiter,
                can_go_on=state is not None,
                done=done,
            )
            run = partial(_run, call, importer, source, can_go_on=state is not None)
            if state is None or call.dry_run:
                failures = await run()
            else:
                if not resume:
                    local_files.remove(state)  # it is of another run, and maybe of other lines
                save = partial(_save, importer, state, asked)
                failures = await resumable.keep(state, save, run)
    return sent_result(call, importer.targets(), failures)


def _save(importer: "Importer", state: Path, asked: dict[str, Any]) -> None:
    from mq.client.operations.messages.importing import save_state

    if done := importer.done():
        save_state(state, asked, done)


def _unseen(size: int) -> None:
    pass


async def _run(
    call: Call, importer: "Importer", source: "LineSource", *, can_go_on: bool
) -> list[str]:
    """Import until the end; returns why it has ended before, if something has been sent by then."""
    from mq.client.errors import MQError

    try:
        await importer.run(source)
    except TopicWouldBeCreated as topic:
        call.would("send", str(topic), "the messages that are for it")
    except MQError as error:
        if not any(target.sent for target in importer.targets()):
            raise
        return [f"{error}; go on with --resume" if can_go_on else f"{error}; {_FROM_A_PIPE}"]
    return []
