"""Name servers: whether they answer and agree, and their settings."""

from dataclasses import dataclass

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations import masking
from mq.client.operations.cluster import within
from mq.client.operations.errors import NotFound
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import NameServerRow
from mq.daemons.console.pages import one_setting
from mq.daemons.console.pages.broker_queries import DEADLINE
from mq.daemons.console.route import (
    N_,
    Change,
    Outcome,
    Page,
    Permission,
    Plan,
    Route,
    Sheet,
    Values,
)


@dataclass(frozen=True, slots=True)
class NameServersData:
    """All name servers of the console's settings."""

    at: int | None
    name_servers: tuple[NameServerRow, ...]


async def name_servers(call: Call) -> Page:
    """List the name servers: whether they answer, and agree on the brokers."""
    snapshot = call.cluster.snapshot
    rows = snapshot.name_servers
    sheet = Sheet(
        ("namesrvAddr", "brokers", "missing", "alone", "responseMillis", "seen", "problem"),
        [
            (one.address, one.brokers, " ".join(one.missing), " ".join(one.alone),
             one.response_ms, one.seen, one.problem)
            for one in rows
        ],
    )  # fmt: skip
    return Page(
        "name_servers/name_servers.html",
        call.text("Name servers"),
        NameServersData(snapshot.at or None, rows),
        command=("getNamesrvConfig", *_given(call)),
        sheet=sheet,
    )


@dataclass(frozen=True, slots=True)
class NameServerSetting:
    """A setting, secrets masked."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class NameServerData:
    """One name server; settings are None if it does not answer, then ``problem`` has the reason."""

    name_server: NameServerRow
    settings: tuple[NameServerSetting, ...] | None
    problem: str | None


async def name_server(call: Call) -> Page:
    """Show one name server and its settings."""
    row = _row(call)
    settings: tuple[NameServerSetting, ...] | None = None
    problem: str | None = None
    try:
        found = masking.fields(
            await within(DEADLINE, Admin.name_server_config)(call.admin, row.address)
        )
        settings = tuple(NameServerSetting(key, found[key]) for key in sorted(found))
    except MQError as error:
        problem = str(error)
    return Page(
        "name_servers/name_server.html",
        call.text("Name server %(address)s", address=row.address),
        NameServerData(row, settings, problem),
        command=("getNamesrvConfig", "-n", row.address),
        sheet=Sheet(("key", "value"), [(one.key, one.value) for one in settings or ()]),
    )


def _row(call: Call) -> NameServerRow:
    """Return the name server of the path. Raises NotFound."""
    address = call.path["address"]
    for row in call.cluster.snapshot.name_servers:
        if row.address == address:
            return row
    raise NotFound(call.text("the console has no name server %(address)s", address=address))


# changes -----------------------------------------------------------------------------------------


async def _plan(call: Call, values: Values) -> Plan:
    row = _row(call)
    key = values["key"]
    before = (await call.admin.name_server_config(row.address)).get(key)
    if before is None:
        text = "name server %(address)s has no setting %(key)s"
        raise NotFound(call.text(text, address=row.address, key=key))
    return one_setting.plan(
        call,
        values,
        before,
        (
            N_("%(key)s of name server %(address)s: %(old)s → %(new)s"),
            call.text("Name servers do not replicate settings: the others do not change."),
        ),
        ("updateNamesrvConfig", "-n", row.address),
        address=row.address,
    )


async def _set(call: Call, values: Values, session: Caller) -> list[Outcome]:
    row = _row(call)
    key = values["key"]
    note = await Admin(session).update_name_server_config(row.address, {key: values["value"] or ""})
    text = call.text("%(key)s changed", key=key) + (f" ({note})" if note else "")
    return [Outcome(row.address, True, text, f"/name-servers/{call.path['address']}")]


def _given(call: Call) -> tuple[str, str]:
    return "-n", ";".join(call.cluster.session.name_servers)


ROUTES = (
    Route(
        "/name-servers",
        name_servers,
        Permission.READ,
        N_("The name servers: whether they answer, and whether their brokers match."),
        menu=N_("Name servers"),
        data=NameServersData,
    ),
    Route(
        "/name-servers/{address}",
        name_server,
        Permission.READ,
        N_("One name server and its settings."),
        data=NameServerData,
    ),
    Change(
        "/name-servers/{address}/setting",
        Permission.OPERATE,
        N_("Change a setting of a name server"),
        "",
        one_setting.FIELDS,
        _plan,
        _set,
        initial=one_setting.initial,
        query=one_setting.QUERY,
        check=one_setting.check,
    ),
)
