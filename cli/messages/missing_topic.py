"""The missing topic of a sending command: ask, create, or refuse."""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.confirm import line_of_its_own
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.interruption import interrupting
from mq.cli.runtime.status import Status
from mq.client.operations.subjects import new_topic

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.transport.caller import Caller

Create = Annotated[
    bool,
    typer.Option(
        "--create", help=f"Create the topic if it is missing, with {new_topic.QUEUES} queues."
    ),
]


async def make_sure(call: Call, session: "Caller", topic: str, *, create: bool) -> bool:
    """Return whether `topic` exists or was created; in a dry run False if it would be created.

    At a terminal the user is asked. A master that did not create it is a shortfall of the call.
    Raises CommandError if the topic is missing and must not be created, and the errors of its
    creation.
    """
    from mq.client.admin import Admin

    admin = Admin(session)
    if await new_topic.exists(admin, topic):
        return True
    other = f"mq updateTopic -t {topic} -c CLUSTER -r N -w N"
    count = new_topic.QUEUES
    if not (create or call.environment.interactive):
        raise CommandError(
            f"no topic {topic}",
            hint=f"create it with {count} queues: --create; with another number: {other}",
            status=Status.NOT_FOUND,
        )
    name = await _home(admin, topic, other)
    if not create:
        _ask(call, topic, f"create it with {count} queues at each master of cluster {name}", other)
    if call.dry_run:
        call.would("create", topic, f"{count} queues at each master of cluster {name}")
        return False
    made = await new_topic.make(admin, topic, name, call.timeout)
    later = f"later: mq updateTopic -t {topic} -c {name} -r {count} -w {count}"
    call.shortfalls += [
        f"topic {topic} was not created at {failure}; {later}" for failure in made.failures
    ]
    return True


async def _home(admin: "Admin", topic: str, other: str) -> str:
    """Return the only cluster, in which to create the topic. Raises UsageError, NotFound."""
    from mq.cli import broker_options

    try:
        return str(await broker_options.cluster_or_only(admin, None, None))
    except UsageError as error:
        why = f"no topic {topic}, and several clusters: {error.message}"
        raise UsageError(why, hint=f"create it first: {other}") from None


def _ask(call: Call, topic: str, what: str, other: str) -> None:
    environment = call.environment
    # The event loop is blocked while the user answers, so it could not handle a signal.
    with interrupting(None), line_of_its_own(environment):
        environment.stderr.write(f"No topic {topic}: {what}? [y/N] ")
        environment.stderr.flush()
        answer = environment.stdin.readline().strip().lower()
    if answer not in ("y", "yes"):
        raise CommandError(
            "nothing was sent", hint=f"to create it yourself: {other}", status=Status.INTERRUPTED
        )
