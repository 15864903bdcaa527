"""The status that members of a group report.

Formats: ConsumerStatusSubCommand and ConsumerSubCommand of
org.apache.rocketmq.tools.command.consumer.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.parameters import broker_option, group_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.options import subject
from mq.cli.show import running_text
from mq.cli.show.output import Format
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import flag, nested, number, text
from mq.client.operations.consumption import group_broker
from mq.client.operations.subjects import members as judged

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import Connection, ConsumerRunningInfo

COMMANDS = {
    "consumer": (
        "consumerStatus",
        "consumer",
    )
}

Group = Annotated[str, group_option("--consumerGroup")]
Stacks = Annotated[
    bool, typer.Option("-s", "--jstack", help="Include the stack traces of its threads.")
]

_COLUMNS = (
    text("clientId", "Client"),
    text("version", "Version"),
    number("subscriptions", "Topics"),
    number("queues", "Queues"),
    number("cachedMessages", "Messages cached"),
)
_DATA = (
    text("clientId", "Client id"),
    text("version", "Release of the client"),
    nested("properties", "Its settings, by name"),
    nested("subscriptions", "Its subscriptions"),
    nested("queues", "Each queue that it consumes: offsets and cached messages"),
    nested("popQueues", "Each queue that it pops from"),
    nested("status", "Times and rates, by topic"),
    nested("jstack", "Stack traces of its threads, with -s"),
)
_TOTALS = (
    flag("sameSubscription", "Whether all members have the same subscriptions"),
    nested("problems", "Queues on which a member is stuck"),
)

Members = dict[str, tuple[str, "ConsumerRunningInfo"]]  # release and state, by client id


@gives(_COLUMNS, data=_DATA, totals=_TOTALS)
@subject("consumer_group")
async def consumer_status(
    call: Call,
    consumer_group: Group,
    client_id: Annotated[
        str | None,
        typer.Option("-i", "--clientId", metavar="ID", help="Only this member, in full."),
    ] = None,
    broker_addr: Annotated[
        str | None,
        broker_option("Ask through this broker only."),
    ] = None,
    jstack: Stacks = False,
) -> Result:
    """Show the status that each member of a consumer group reports.

    Plain output writes a page for each member to a file, MILLIS/CLIENTID below the working
    directory, as mqadmin does, and prints its name. Other formats print everything.

    Examples:
        mq consumerStatus billing -o json     status of each member
        mq consumerStatus billing -s -o json  with the stack traces of its threads
    """
    head = "{:<10} {:<40} {:<20} {}\n".format(*_HEADS)
    return await _status(
        call, consumer_group, head, "{:<10} {:<40} {:<20} {}\n", client_id, broker_addr, jstack
    )


_HEADS = "#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"


@gives(_COLUMNS, data=_DATA, totals=_TOTALS)
async def consumer(call: Call, consumer_group: Group, jstack: Stacks = False) -> Result:
    """Show the status that each member of a consumer group reports, as consumerStatus does.

    Examples:
        mq consumer -g billing     status of each member
        mq consumer -g billing -s  with the stack traces of its threads
    """
    line = "{:03d}  {:<40} {:<20} {}\n"
    return await _status(call, consumer_group, "", line, None, None, jstack)


async def _status(
    call: Call,
    group: str,
    head: str,
    line: str,
    client_id: str | None,
    broker_addr: str | None,
    stacks: bool,
) -> Result:
    from mq.client.errors import ConsumerNotOnline, RouteNotFound
    from mq.client.operations.errors import NotFound
    from mq.client.operations.subjects import groups

    async with call.admin() as admin:
        address = ""
        connections: list[Connection] = []
        try:
            address = broker_addr or await group_broker(admin, group)
            connections = list((await admin.consumer_connection(address, group)).connection_set)
        except (ConsumerNotOnline, RouteNotFound, NotFound):
            if client_id is not None or not await groups.exists(admin, group):
                raise
        if client_id is not None:
            versions = {item.client_id: _version(item) for item in connections}
            info = await admin.consumer_running_info(address, group, client_id, stacks=stacks)
            member = {client_id: (versions.get(client_id, ""), info)}
            return _result(member, running_text.page(info), [], call)
        members, failures = await _ask_all(admin, address, group, connections, stacks)
    plain = head
    if call.output is Format.PLAIN:
        folder = Path(str(int(call.environment.clock() * 1000)))
        for index, (member_id, (version, info)) in enumerate(members.items(), 1):
            path = _write(folder, member_id, running_text.page(info))
            plain += line.format(index, member_id, version, path)
    return _result(members, plain + _verdict(call, members), failures, call)


async def _ask_all(
    admin: "Admin", address: str, group: str, connections: list["Connection"], stacks: bool
) -> tuple[Members, list[str]]:
    versions = {item.client_id: _version(item) for item in connections}
    said, failed = await judged.running(admin, address, group, versions, stacks=stacks)
    members = {name: (versions[name], info) for name, info in said.items()}
    return members, [f"{name}: {error}" for name, error in failed.items()]


def _version(connection: "Connection") -> str:
    from mq.protocol.versions import version_name

    return version_name(connection.version)


def _write(folder: Path, client_id: str, page: str) -> str:
    """Write a page to a file that is named after its client id, which is untrusted."""
    from mq.client.operations import local_files

    name = client_id.replace("/", "_").replace(os.sep, "_").lstrip(".") or "_"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise local_files.cannot("write", folder, error) from error
    local_files.replace(folder / name, page.encode())
    return str(folder / name)


def _verdict(call: Call, members: Members) -> str:
    """Return Java's verdict about the whole group."""
    if not members:
        return ""
    infos = {client_id: info for client_id, (_, info) in sorted(members.items())}
    now = int(call.environment.clock() * 1000)
    if not judged.same_subscriptions(infos, now):
        return "\n\nWARN: Different subscription in the same group of consumer!!!"
    plain = "\n\nSame subscription in the same group of consumer\n\nRebalance OK\n"
    for client_id, info in infos.items():
        plain += "".join(f"{line}\n" for line in judged.stuck(client_id, info, now))
    return plain


def _result(members: Members, plain: str, failures: list[str], call: Call) -> Result:
    now = int(call.environment.clock() * 1000)
    infos = {client_id: info for client_id, (_, info) in sorted(members.items())}
    rows: list[Row] = []
    data: list[dict[str, Any]] = []
    for client_id, (version, info) in members.items():
        held = sum(item.cached_msg_count for item in info.mq_table.values())
        rows.append((client_id, version, len(info.subscription_set), len(info.mq_table), held))
        data.append({"clientId": client_id, "version": version, **judged.document(info)})
    problems = [line for name, info in infos.items() for line in judged.stuck(name, info, now)]
    same = judged.same_subscriptions(infos, now) if infos else True
    totals = {"sameSubscription": same, "problems": problems}
    return Result(_COLUMNS, rows, plain, data=data, totals=totals, failures=failures)
