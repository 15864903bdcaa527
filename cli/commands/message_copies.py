"""`mq message copy`: copies messages from topic to topic, and from cluster to cluster."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.messages import interrupted
from mq.cli.messages.resending import (
    GROUP,
    ResendOptions,
    TopicWouldBeCreated,
    ToTopic,
    check_topic,
    producer_of,
)
from mq.cli.messages.selecting import Begin, End, Narrowing, choice_of
from mq.cli.messages.send_summary import SENT, TOTALS, sent_result
from mq.cli.parameters import Topic
from mq.cli.runtime.call import Call
from mq.cli.runtime.continuation import goes_on
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.option_groups import option_group
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import in_bulk
from mq.cli.show.result import Result

if TYPE_CHECKING:
    from mq.client.operations.messages.choice import Choice
    from mq.client.operations.messages.copying import Copier
    from mq.client.operations.messages.sending import Targets
    from mq.client.operations.messages.tube_copying import TubeCopier, TubeTargets
    from mq.client.transport.caller import Caller
    from mq.client.tube.options import TubeConsumerOptions

COMMANDS = {"message": ("message copy",)}

Progress = Annotated[
    str | None,
    typer.Option("--resume", metavar="FILE", help="Keep the progress in FILE, and resume from it."),
]


@option_group
class OtherCluster:
    """The target cluster, if it is another one."""

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
        """Open a session with the target: `source` itself, or another one."""
        if self.to_namesrv is None:
            yield source
            return
        from dataclasses import replace

        from mq.client.transport.caller import parse_name_servers

        other = replace(
            call,
            name_servers=list(parse_name_servers(self.to_namesrv)),
            name_servers_from="--to-namesrv",
            acl_file=self.to_acl_file or call.acl_file,
            given_acl_file=self.to_acl_file or call.given_acl_file,
        )
        other.changes = call.changes  # a dry run shows the changes in both clusters
        async with other.session() as session:
            yield session


@option_group
class TubeEnd:
    """The TubeMQ cluster at one end of a copy."""

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
        """Return the client's options. The access key of the other end is never used here."""
        from mq.cli.runtime.secrets import credentials
        from mq.cli.tube_clients import client_options

        key = None if self.tube_acl_file is None else credentials(self.tube_acl_file)
        return client_options(call, key)


@in_bulk
@writes
@gives(SENT, totals=TOTALS)
@subject("topic", "to_topic")
@goes_on(interrupted.copied)
async def message_copy(
    call: Call,
    topic: Topic,
    to_topic: ToTopic = None,
    *,
    other: OtherCluster,
    begin: Begin = None,
    end: End = None,
    narrowing: Narrowing,
    sending: ResendOptions,
    tube: TubeEnd,
    resume: Progress = None,
) -> Result:
    """Copy messages of a topic to another topic, or to another cluster.

    It copies from the oldest message to the newest at the start of the command. It asks before it
    creates a missing target topic; --create answers yes. The messages of one queue go to one queue,
    in order; queues are chosen and messages changed as by message import.

    With --resume FILE the next offset of each queue is kept in FILE, and the same command resumes
    from it. FILE is removed when everything is copied; before that, brokers that are down or
    missing in the routes are reported. After an interruption up to one batch of each queue may be
    copied twice, after kill -9 the messages of some seconds; none is skipped silently.

    With --from-tube or --to-tube one of the topics is in TubeMQ. Tags become message types, keys
    and user properties become attributes, and vice versa. A partition goes to one queue, and a
    queue to one partition.

    Examples:
        mq message copy Orders OrdersCopy  copy a topic to another one
        mq message copy Orders --to-namesrv 10.0.0.5:9876 --begin 1h
                                           the last hour, to another cluster
        mq message copy Orders OrdersCopy --resume copy.state
                                           can be interrupted and resumed
    """
    copy = _Copy(call, topic, to_topic or topic, other, sending, tube, resume)
    if tube.from_tube is not None:
        if tube.to_tube is not None or begin or end or narrowing != Narrowing():
            raise UsageError(
                "--from-tube copies whole topics of TubeMQ to RocketMQ, without filters"
            )
        check_topic(copy.to_topic)
        return await copy.from_tube()
    if tube.to_tube is not None and (other.to_namesrv or sending.mapping):
        raise UsageError("--to-tube cannot be combined with --to-namesrv or --map")
    check_topic(to_topic)
    choice = choice_of(call, topic, narrowing, begin, end)
    if to_topic in (None, topic) and other.to_namesrv is None and tube.to_tube is None:
        raise UsageError(
            "a topic cannot be copied to itself", hint="give --to-topic, --to-namesrv or both"
        )
    return await copy.messages(choice)


@dataclass(frozen=True)
class _Copy:
    """The source, target and options of a copy."""

    call: Call
    topic: str
    to_topic: str
    other: OtherCluster
    sending: ResendOptions
    tube: TubeEnd
    resume: str | None

    async def messages(self, choice: "Choice") -> Result:
        """Copy the chosen messages of the RocketMQ topic `topic`."""
        from mq.cli.runtime.progress import of_messages
        from mq.client.operations.messages.copying import Copier
        from mq.client.operations.messages.rate import Rate

        if self.tube.to_tube is not None and self.call.dry_run:
            return self._would(self.topic)
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(self.call.session())
            try:
                targets = await self._targets(stack, source)
            except TopicWouldBeCreated:
                return self._would(self.topic)
            copier = Copier(
                source,
                choice,
                targets,
                self.to_topic,
                new_ids=self.sending.new_ids,
                rate=Rate(self.sending.rate),
                progress=of_messages(self.call.environment, "copying"),
            )
            failures = await self._run(copier, self._asked(choice))
        return sent_result(self.call, targets.all(), failures + copier.gaps)

    async def from_tube(self) -> Result:
        """Copy the whole TubeMQ topic `topic`."""
        from mq.cli.runtime.progress import of_messages
        from mq.client.operations.messages.rate import Rate
        from mq.client.operations.messages.tube_copying import TubeCopier
        from mq.client.tube.balance_consumer import TubeBalanceConsumer

        group = f"{GROUP}_{self.topic}"  # members of a TubeMQ group must have the same topics
        options = self._consumer_options()
        async with (
            self.call.session() as local,
            self.other.session(self.call, local) as session,
            producer_of(self.call, session) as producer,
        ):
            with suppress(TopicWouldBeCreated):
                targets = await self.sending.targets(self.call, producer, self.to_topic)
            if self.call.dry_run:
                return self._would(f"{self.topic} of TubeMQ")
            masters = self.tube.from_tube or ""
            async with TubeBalanceConsumer(masters, group, [self.topic], options) as consumer:
                copier = TubeCopier(
                    consumer,
                    targets,
                    self.to_topic,
                    rate=Rate(self.sending.rate),
                    progress=of_messages(self.call.environment, "copying"),
                )
                failures = await self._run(copier, self._asked_of_tube())
        return sent_result(self.call, targets.all(), failures + copier.gaps)

    def _would(self, copied: str) -> Result:
        self.call.would("send", self.to_topic, f"copies of {copied}")
        return Result(SENT)

    async def _run(self, copier: "Copier | TubeCopier", asked: dict[str, Any]) -> list[str]:
        """Copy and return the failures. A dry run leaves the progress file alone."""
        if self.resume is None or self.call.dry_run:
            return await copier.run()
        return await copier.run_from(Path(self.resume), asked)

    async def _targets(self, stack: AsyncExitStack, source: "Caller") -> "Targets | TubeTargets":
        if self.tube.to_tube is not None:
            return await self._tube_targets(stack)
        session = await stack.enter_async_context(self.other.session(self.call, source))
        producer = await stack.enter_async_context(producer_of(self.call, session))
        return await self.sending.targets(self.call, producer, self.to_topic)

    async def _tube_targets(self, stack: AsyncExitStack) -> "TubeTargets":
        from mq.client.operations.messages.tube_copying import TubeTargets
        from mq.client.tube.producer import TubeProducer
        from mq.client.tube.producer_options import TubeProducerOptions

        options = TubeProducerOptions(**self.tube.options(self.call))
        producer = TubeProducer(self.tube.to_tube or "", [self.to_topic], options)
        await stack.enter_async_context(producer)
        return TubeTargets(producer, self.to_topic)

    def _consumer_options(self) -> "TubeConsumerOptions":
        from math import inf

        from mq.client.tube.options import ConsumeFrom, TubeConsumerOptions

        return TubeConsumerOptions(
            consume_from=ConsumeFrom.FIRST,
            confirm_wait=inf,
            ready_wait=1.0,
            **self.tube.options(self.call),
        )

    def _asked(self, choice: "Choice") -> dict[str, Any]:
        """Return the parameters that a resumed copy must have in common with the first run."""
        asked = {
            **choice.document(),
            "nameServers": self.call.name_servers,
            "toTopic": self.to_topic,
            "toNameServers": self.other.to_namesrv,
            "map": self.sending.mapping or [],
        }
        return asked if self.tube.to_tube is None else {**asked, "toTube": self.tube.to_tube}

    def _asked_of_tube(self) -> dict[str, Any]:
        """Return the same parameters for a copy of a TubeMQ topic."""
        return {
            "fromTube": self.tube.from_tube,
            "topic": self.topic,
            "toTopic": self.to_topic,
            "nameServers": self.call.name_servers,
            "toNameServers": self.other.to_namesrv,
            "map": self.sending.mapping or [],
        }
