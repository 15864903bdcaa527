"""Name servers: whether they answer and agree, and their settings."""

from dataclasses import dataclass

from mq.client.admin import Admin
from mq.client.caller import Caller
from mq.client.errors import MQError
from mq.client.operations import masking
from mq.client.operations.cluster import within
from mq.client.operations.errors import NotFound
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import NameServerRow
from mq.daemons.console.pages.brokers_asked import DEADLINE
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import (
    N_,
    Change,
    Field,
    Outcome,
    Page,
    Permission,
    Plan,
    Query,
    Route,
    Sheet,
    Values,
)


@dataclass(frozen=True, slots=True)
class NameServersData:
    """All name servers that the console is given."""

    at: int | None
    name_servers: tuple[NameServerRow, ...]


async def name_servers(call: Call) -> Page:
    """The name servers: whether they answer, and agree on the brokers."""
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
    """One name server; its settings are None where it does not answer, and ``problem`` says why."""

    name_server: NameServerRow
    settings: tuple[NameServerSetting, ...] | None
    problem: str | None


async def name_server(call: Call) -> Page:
    """One name server and its settings."""
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
    """The name server of the path. Raises NotFound."""
    address = call.path["address"]
    for row in call.cluster.snapshot.name_servers:
        if row.address == address:
            return row
    raise NotFound(call.text("the console is given no name server %(address)s", address=address))


# changes -----------------------------------------------------------------------------------------


async def _initial(call: Call) -> Values:
    return {"key": call.query.get("key") or "", "value": None}


def _one_line(call: Call, values: Values) -> None:
    """Raises BadField for what would be more than one setting."""
    for name in ("key", "value"):
        if any(sign in (values[name] or "") for sign in "\r\n"):
            raise BadField(name, call.text("expected one line"))
    if "=" in values["key"]:
        raise BadField("key", call.text("expected a name without ="))


async def _plan(call: Call, values: Values) -> Plan:
    row = _row(call)
    key, value = values["key"], values["value"] or ""
    before = (await call.admin.name_server_config(row.address)).get(key)
    if before is None:
        text = "name server %(address)s has no setting %(key)s"
        raise NotFound(call.text(text, address=row.address, key=key))
    secret = masking.is_secret(key, before) or masking.is_secret(key, value)
    old, new = (masking.MASK, masking.MASK) if secret else (before, value)
    line = call.text(
        "%(key)s of name server %(address)s: %(old)s → %(new)s",
        key=key, address=row.address, old=old or '""', new=new or '""',
    )  # fmt: skip
    heads = (call.text("Setting"), call.text("Before"), call.text("After"))
    return Plan(
        (line, call.text("Name servers do not tell each other: the others stay as they are.")),
        (Sheet(heads, [(key, old, new)]),),
        ("updateNamesrvConfig", "-n", row.address, "-k", key, "-v", new),
        "" if before != value else call.text("It has this value already."),
    )


async def _set(call: Call, values: Values, session: Caller) -> list[Outcome]:
    row = _row(call)
    key = values["key"]
    await Admin(session).update_name_server_config(row.address, {key: values["value"] or ""})
    text = call.text("%(key)s is changed", key=key)
    return [Outcome(row.address, True, text, f"/name-servers/{call.path['address']}")]


def _given(call: Call) -> tuple[str, str]:
    return "-n", ";".join(call.cluster.session.name_servers)


ROUTES = (
    Route(
        "/name-servers",
        name_servers,
        Permission.READ,
        N_("The name servers: whether they answer, and agree on the brokers."),
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
        (
            Field("key", N_("Setting"), required=True, limit=200),
            Field("value", N_("New value"), help=N_("Empty: an empty value."), limit=4000),
        ),
        _plan,
        _set,
        initial=_initial,
        query=(Query("key", about=N_("The setting to fill in.")),),
        check=_one_line,
    ),
)
