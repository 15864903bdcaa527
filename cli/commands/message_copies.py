"""Messages sent again from topic to topic, and from cluster to cluster."""

from collections.abc import AsyncIterator
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.messages import cut
from mq.cli.messages.selecting import Begin, End, Narrowing, choice_of
from mq.cli.messages.sending_again import (
    GROUP,
    Sending,
    ToTopic,
    WouldBeMade,
    check_topic,
    producer_of,
)
from mq.cli.messages.sent import SENT, TOTALS, sent_result
from mq.cli.parameters import Topic
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.going_on import goes_on
from mq.cli.runtime.option_groups import option_group
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import in_bulk
from mq.cli.show.result import Result

if TYPE_CHECKING:
    from mq.client.caller import Caller
    from mq.client.operations.messages.choice import Choice
    from mq.client.operations.messages.copying import Copier
    from mq.client.operations.messages.sending import Targets
    from mq.client.operations.messages.tube_copying import TubeTargets

COMMANDS = {"message": ("message copy",)}


@option_group
class OtherCluster:
    """The cluster that is copied to, where it is not the same."""

    to_namesrv: Annotated[
        str | None,
        typer.Option(
            "--to-namesrv", metavar="HOST:PORT[;…]", help="Name servers of the target cluster."
        ),
    ] = None
    to_acl_file: Annotated[
        str | None,
        typer.Option(
            "--to-acl-file", metavar="FILE", help="Access key file for the target cluster."
        ),
    ] = None

    @asynccontextmanager
    async def session(self, call: Call, source: "Caller") -> AsyncIterator["Caller"]:
        """The session with it: `source`, or another."""
        if self.to_namesrv is None:
            yield source
            return
        from dataclasses import replace

        from mq.client.caller import parse_name_servers

        other = replace(
            call,
            name_servers=list(parse_name_servers(self.to_namesrv)),
            name_servers_from="--to-namesrv",
            acl_file=self.to_acl_file or call.acl_file,
            given_acl_file=self.to_acl_file or call.given_acl_file,
        )
        other.changes = call.changes  # a dry run shows those of both clusters
        async with other.session() as session:
            yield session


@option_group
class TubeEnd:
    """The end of a copy that is a cluster of TubeMQ."""

    from_tube: Annotated[
        str | None,
        typer.Option(
            "--from-tube",
            metavar="HOST:PORT[,…]",
            help="Copy from a TubeMQ topic, of these masters.",
        ),
    ] = None
    to_tube: Annotated[
        str | None,
        typer.Option(
            "--to-tube", metavar="HOST:PORT[,…]", help="Copy to a TubeMQ topic, of these masters."
        ),
    ] = None
    tube_acl_file: Annotated[
        str | None,
        typer.Option(
            "--tube-acl-file",
            metavar="FILE",
            help="User and password for TubeMQ, in an access key file.",
        ),
    ] = None

    def options(self, call: Call) -> dict[str, Any]:
        """What a client of it is told. An access key of the other end is not shown there."""
        from mq.cli.runtime.secrets import credentials
        from mq.cli.tube_clients import client_options

        key = None if self.tube_acl_file is None else credentials(self.tube_acl_file)
        return client_options(call, key)


@in_bulk
@writes
@gives(SENT, totals=TOTALS)
@subject("topic", "to_topic")
@goes_on(cut.copied)
async def message_copy(
    call: Call,
    topic: Topic,
    to_topic: ToTopic = None,
    *,
    other: OtherCluster,
    begin: Begin = None,
    end: End = None,
    narrowing: Narrowing,
    sending: Sending,
    tube: TubeEnd,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume", metavar="FILE", help="Keep the progress in FILE, and resume from it."
        ),
    ] = None,
) -> Result:
    """Copy messages of a topic to another topic, or to another cluster.

    From the oldest message that is kept to the newest at the start of the command. A target topic
    that there is not is asked about, or made with --create. What came from one queue goes to one
    queue, in its order; queues are chosen and messages are changed as by message import.

    With --resume FILE the next offset of each queue is kept in FILE, from which the same command
    goes on. It is removed when everything is copied: what a broker has that is away, also one that
    is out of the routes, is missed until then. Up to one batch of each queue may be copied twice
    after a cut, and after a kill -9 what was copied within some seconds; nothing is
    skipped silently.

    With --from-tube or --to-tube one of the two is a topic of TubeMQ. Tags are its message types;
    keys and properties of users its attributes, and the other way round. A partition goes to one
    queue, and a queue to one partition.

    Examples:
        mq message copy Orders OrdersCopy  copy a topic to another one
        mq message copy Orders --to-namesrv 10.0.0.5:9876 --begin 1h
                                           the last hour, to another cluster
        mq message copy Orders OrdersCopy --resume copy.state
                                           can be interrupted and resumed
    """
    if tube.from_tube is not None:
        if tube.to_tube is not None or begin or end or narrowing != Narrowing():
            raise UsageError("--from-tube copies a whole topic of TubeMQ to RocketMQ")
        return await _from_tube(call, topic, to_topic, other, sending, tube, resume)
    if tube.to_tube is not None and (other.to_namesrv or sending.mapping):
        raise UsageError("--to-tube goes with neither --to-namesrv nor --map")
    check_topic(to_topic)
    choice = choice_of(call, topic, narrowing, begin, end)
    if to_topic in (None, topic) and other.to_namesrv is None and tube.to_tube is None:
        raise UsageError(
            "a topic cannot be copied onto itself", hint="give --to-topic, --to-namesrv or both"
        )
    asked = _asked(call, choice, to_topic or topic, other, sending, tube)
    if tube.to_tube is not None and call.dry_run:
        call.would("send", to_topic or topic, f"copies of {topic}")
        return Result(SENT)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(call.session())
        if tube.to_tube is not None:
            targets = await _tube_targets(call, stack, tube, to_topic or topic)
        else:
            try:
                targets = await _targets(call, stack, source, other, sending, to_topic or topic)
            except WouldBeMade:
                call.would("send", to_topic or topic, f"copies of {topic}")
                return Result(SENT)
        copier = _copier(call, source, choice, targets, to_topic or topic, sending)
        if resume is not None and not call.dry_run:
            failures = await copier.run_from(Path(resume), asked)
        else:
            failures = await copier.run()
    return sent_result(call, targets.all(), failures + copier.gaps)


def _copier(
    call: Call,
    source: "Caller",
    choice: "Choice",
    targets: "Targets | TubeTargets",
    topic: str,
    sending: Sending,
) -> "Copier":
    from mq.cli.runtime.progress import of_messages
    from mq.client.operations.messages.copying import Copier
    from mq.client.operations.messages.rate import Rate

    return Copier(
        source,
        choice,
        targets,
        topic,
        new_ids=sending.new_ids,
        rate=Rate(sending.rate),
        progress=of_messages(call.environment, "copying"),
    )


async def _targets(
    call: Call,
    stack: AsyncExitStack,
    source: "Caller",
    other: OtherCluster,
    sending: Sending,
    topic: str,
) -> "Targets | TubeTargets":
    session = await stack.enter_async_context(other.session(call, source))
    producer = await stack.enter_async_context(producer_of(call, session))
    return await sending.targets(call, producer, topic)


async def _tube_targets(
    call: Call, stack: AsyncExitStack, tube: TubeEnd, topic: str
) -> "Targets | TubeTargets":
    from mq.client.operations.messages.tube_copying import TubeTargets
    from mq.client.tube.producer import TubeProducer
    from mq.client.tube.producer_options import TubeProducerOptions

    options = TubeProducerOptions(**tube.options(call))
    producer = TubeProducer(tube.to_tube or "", [topic], options)
    await stack.enter_async_context(producer)
    return TubeTargets(producer, topic)


async def _from_tube(
    call: Call,
    topic: str,
    to_topic: str | None,
    other: OtherCluster,
    sending: Sending,
    tube: TubeEnd,
    resume: str | None,
) -> Result:
    from math import inf

    from mq.cli.runtime.progress import of_messages
    from mq.client.operations.messages.rate import Rate
    from mq.client.operations.messages.tube_copying import TubeCopier
    from mq.client.tube.balance_consumer import TubeBalanceConsumer
    from mq.client.tube.options import ConsumeFrom, TubeConsumerOptions

    check_topic(to_topic or topic)
    masters = tube.from_tube or ""
    group = f"{GROUP}_{topic}"  # the members of a group of TubeMQ have the same topics
    options = TubeConsumerOptions(
        consume_from=ConsumeFrom.FIRST, confirm_wait=inf, ready_wait=1.0, **tube.options(call)
    )
    async with (
        call.session() as local,
        other.session(call, local) as session,
        producer_of(call, session) as producer,
    ):
        with suppress(WouldBeMade):
            targets = await sending.targets(call, producer, to_topic or topic)
        if call.dry_run:
            call.would("send", to_topic or topic, f"copies of {topic} of TubeMQ")
            return Result(SENT)
        async with TubeBalanceConsumer(masters, group, [topic], options) as consumer:
            copier = TubeCopier(
                consumer,
                targets,
                to_topic or topic,
                rate=Rate(sending.rate),
                progress=of_messages(call.environment, "copying"),
            )
            if resume is None:
                failures = await copier.run()
            else:
                asked = {
                    "fromTube": masters,
                    "topic": topic,
                    "toTopic": to_topic or topic,
                    "nameServers": call.name_servers,
                    "toNameServers": other.to_namesrv,
                    "map": sending.mapping or [],
                }
                failures = await copier.run_from(Path(resume), asked)
    return sent_result(call, targets.all(), failures + copier.gaps)


def _asked(
    call: Call,
    choice: "Choice",
    to_topic: str,
    other: OtherCluster,
    sending: Sending,
    tube: TubeEnd,
) -> dict[str, Any]:
    """What a copy that is cut has to be asked for again."""
    asked = {
        **choice.document(),
        "nameServers": call.name_servers,
        "toTopic": to_topic,
        "toNameServers": other.to_namesrv,
        "map": sending.mapping or [],
    }
    return asked if tube.to_tube is None else {**asked, "toTube": tube.to_tube}
