"""The thread stacks of a group member, requested from the member itself."""

from dataclasses import dataclass
from typing import Any

from mq.client.operations import masking
from mq.client.operations.errors import NotFound
from mq.client.operations.subjects import members as judged
from mq.daemons.console.call import Call
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.groups.members import connected
from mq.daemons.console.parsing import BadQuery
from mq.daemons.console.route import N_, Page, Permission, Query, Route

SECONDS = 5.0  # a member stops all its threads to read their stacks
MOST_STACK = 512 * 1024  # characters that are shown


@dataclass(frozen=True, slots=True)
class Stacks:
    """``stack`` is the member's text, None if it sent none; ``cut`` is the number of omitted
    characters.
    """

    group: str
    client_id: str
    address: str
    language: str | None
    version: str
    properties: tuple[tuple[str, str], ...]
    stack: str | None
    cut: int
    problem: str | None


async def show(call: Call) -> Page:
    """Show the stacks of one member, requested through a broker that it is connected to."""
    group, client_id = call.path["group"], call.query["client"]
    if not client_id:
        raise BadQuery(call.text("Missing client=ID."))
    brokers = await asked.of_group(call, group)
    met = (await connected(call, brokers, group)).met().get(client_id)
    if met is None:
        line = N_("No member %(client)s of group %(group)s is connected.")
        raise NotFound(call.text(line, client=client_id, group=group))
    said, failed = await judged.running(
        call.admin, met.through, group, [client_id], stacks=True, seconds=SECONDS
    )
    info = said.get(client_id)
    stack = info.jstack if info else None
    data = Stacks(
        group,
        *met.client,
        _properties(info.properties) if info else (),
        None if stack is None else stack[:MOST_STACK],
        max(0, len(stack or "") - MOST_STACK),
        str(failed[client_id]) if client_id in failed else None,
    )
    return Page(
        "groups/stack.html",
        call.text("Threads of %(client)s", client=client_id),
        data,
        command=("consumerStatus", "-g", group, "-i", client_id, "-s"),
    )


def _properties(values: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(masking.fields({k: str(v) for k, v in values.items()}).items()))


ROUTES = (
    Route(
        "/groups/{group}/stack",
        show,
        Permission.READ,
        N_("The stack traces of a member's threads."),
        subject="group",
        query=(Query("client", default="", about=N_("Client id of the member.")),),
        data=Stacks,
    ),
)
