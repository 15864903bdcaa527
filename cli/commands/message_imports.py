"""`mq message import`: sends messages from files and pipes."""

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

_FROM_A_PIPE = "how many lines of the pipe were sent is unknown: to resume, import from a file"


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

    Each message goes to the topic of its line, and to the queue of the same broker and number if
    there is one; else to the queue of that number, modulo the number of queues. So the messages of
    one queue go to one queue, in order. --map overrides that. Lines without a queue go to all
    queues in turn, those with a sharding key to one. At a terminal it asks before it creates a
    missing topic; elsewhere only --create creates it.

    Messages keep bodies, tags, keys, flags, user properties, sharding keys and, without --new-ids,
    unique ids. Internal properties are dropped: past delays, retries, transactions, requests for a
    reply. Messages get new offsets, times and born hosts.

    It stops at a line that is not a message; the lines before it are sent. After that, after Ctrl-C
    or a broker's failure, the same command with --resume continues each queue (the progress is in
    .FILE.import, next to FILE). It refuses while the topic has other queues than before because a
    broker is down. A message whose reply was lost may be sent twice. Input from a pipe cannot be
    resumed.

    Examples:
        mq message import orders.jsonl                  each message to its topic and queue
        mq message import orders.jsonl -t Again --create
                                                        all to a new topic
        mq message export Orders - | mq message import - -t Again
                                                        without a file
    """
    from mq.client.operations import local_files

    check_topic(to_topic)
    path = None if file == "-" else Path(file)
    if resume and not is_file(path):
        raise UsageError(
            f"--resume needs a file: {path or 'standard input'} cannot be resumed",
            hint="write it to a file, and import that",
        )
    if path is None:
        prompt_for_lines(call)
        read = reader_of(call.environment.stdin)
        return await _import(call, read, None, file, to_topic, sending, resume=False)
    with local_files.opened(path) as source, local_files.locked(path):
        return await _import(call, reader_of(source), path, file, to_topic, sending, resume=resume)


def prompt_for_lines(call: Call) -> None:
    """At a terminal, say which input is expected."""
    if call.environment.input_terminal:
        call.environment.stderr.write(
            "Enter lines of JSON, as message export writes them; Ctrl-D ends.\n"
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
    # A pipe cannot be read again, and no state file can be created next to /dev/fd/63.
    state = local_files.beside(path, "import") if path and is_file(path) else None
    done = load_state(state, asked) if state is not None and resume else {}
    # The size of a pipe's content is unknown, and its writer may show progress itself.
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
                    local_files.remove(state)  # it belongs to another run, perhaps of other lines
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
    """Import to the end. Returns the error that ended it early if messages were sent before."""
    from mq.client.errors import MQError

    try:
        await importer.run(source)
    except TopicWouldBeCreated as topic:
        call.would("send", str(topic), "its messages")
    except MQError as error:
        if not any(target.sent for target in importer.targets()):
            raise
        return [f"{error}; continue with --resume" if can_go_on else f"{error}; {_FROM_A_PIPE}"]
    return []
