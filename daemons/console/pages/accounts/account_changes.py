"""Changes of 4.9 accounts: create, change or delete one; set addresses without signature."""

from typing import Any

from mq.client.admin import Admin
from mq.client.operations.subjects import accounts
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.accounts import at_all_brokers
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import (
    N_,
    Change,
    Field,
    Outcome,
    Permission,
    Plan,
    Query,
    Sheet,
    Values,
)
from mq.protocol.bodies import PlainAccessConfig

_ACCESS_KEY = Field("access_key", N_("Access key"), required=True, limit=255)
_PERMISSIONS = (
    Field("default_topic_perm", N_("Topics"), "choice", choices=accounts.PERMISSIONS),
    Field("default_group_perm", N_("Groups"), "choice", choices=accounts.PERMISSIONS),
    Field(
        "topic_perms",
        N_("Topic permissions"),
        "lines",
        limit=20_000,
        help=N_("NAME=PUB, SUB, PUB|SUB or DENY, one per line. Empty: unchanged."),
    ),
    Field(
        "group_perms",
        N_("Group permissions"),
        "lines",
        limit=20_000,
        help=N_("NAME=PUB, SUB, PUB|SUB or DENY, one per line. Empty: unchanged."),
    ),
)
# A broker with a file of 4.9 accepts only longer keys (AclConstants).
_SHORTEST = 7


async def _account(call: Call) -> Values:
    """Return the account of the address, as the first broker has it."""
    values: dict[str, Any] = {
        "cluster": at_all_brokers.first_cluster(call),
        "access_key": call.query["access_key"],
    }
    if not values["access_key"] or not values["cluster"]:
        return values
    done, _, _ = await at_all_brokers.ask(call, values, lambda admin, at: admin.accounts(at))
    for config in done.values():
        for one in config.plain_access_configs:
            if one.access_key == values["access_key"]:
                return {
                    **values,
                    "white_remote_address": one.white_remote_address,
                    "admin": one.admin,
                    "default_topic_perm": one.default_topic_perm,
                    "default_group_perm": one.default_group_perm,
                    "topic_perms": tuple(one.topic_perms or ()),
                    "group_perms": tuple(one.group_perms or ()),
                }
    return values


def _check(call: Call, values: Values) -> None:
    if len(values["access_key"]) < _SHORTEST:
        line = call.text("Expected at least %(least)s characters.", least=_SHORTEST)
        raise BadField("access_key", line)
    if values["secret_key"] and len(values["secret_key"]) < _SHORTEST:
        line = call.text("Expected at least %(least)s characters.", least=_SHORTEST)
        raise BadField("secret_key", line)
    for name in ("topic_perms", "group_perms"):
        for entry in values[name] or ():
            subject, equals, permission = entry.rpartition("=")
            if not (equals and subject and permission in accounts.PERMISSIONS) or "," in entry:
                line = call.text("%(entry)s: expected NAME=PERMISSION.", entry=entry)
                raise BadField(name, line)
    at_all_brokers.brokers(call, values)


def _config(values: Values) -> PlainAccessConfig:
    return accounts.account(
        values["access_key"],
        values["secret_key"],
        admin=values["admin"],
        white_remote_address=values["white_remote_address"],
        default_topic_perm=values["default_topic_perm"],
        default_group_perm=values["default_group_perm"],
        topic_perms=",".join(values["topic_perms"] or ()) or None,
        group_perms=",".join(values["group_perms"] or ()) or None,
    )


async def plan_account(call: Call, values: Values) -> Plan:
    """Plan the change broker by broker, before and after, without the secret key."""
    done, failed, names = await at_all_brokers.ask(
        call, values, lambda admin, at: admin.accounts(at)
    )
    wanted = _config(values)
    rows = []
    for address, config in done.items():
        old = next(
            (one for one in config.plain_access_configs if one.access_key == wanted.access_key),
            None,
        )
        for label, before, after in _differences(call, old, wanted):
            rows.append((f"{names[address].name} {names[address].id}", label, before, after))
    line = N_("Account %(name)s is created or changed as below.")
    return Plan(
        (
            call.text(line, name=wanted.access_key),
            at_all_brokers.at_each(call, values),
            *(f"{names[at].name} {names[at].id}: {error}" for at, error in failed.items()),
        ),
        (asked.settings_table(call, rows),),
        _command(values),
        call.text("An administrator has all permissions.") if values["admin"] else "",
    )


def _differences(
    call: Call, old: PlainAccessConfig | None, new: PlainAccessConfig
) -> list[tuple[str, str, str]]:
    rows = []
    if old is None:
        rows.append((call.text("account"), call.text("none"), call.text("created")))
    if new.secret_key:
        rows.append(("secretKey", "", call.text("set")))
    pairs = (
        ("admin", old and old.admin, new.admin),
        ("whiteRemoteAddress", old and old.white_remote_address, new.white_remote_address),
        ("defaultTopicPerm", old and old.default_topic_perm, new.default_topic_perm),
        ("defaultGroupPerm", old and old.default_group_perm, new.default_group_perm),
        ("topicPerms", old and old.topic_perms, new.topic_perms),
        ("groupPerms", old and old.group_perms, new.group_perms),
    )
    for label, before, after in pairs:
        if after in (None, []) or before == after:
            continue  # settings that are not given stay the same
        rows.append((label, _text(before), _text(after)))
    return rows


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(sorted(value))
    return str(value).lower() if isinstance(value, bool) else str(value or "")


def _command(values: Values) -> tuple[str, ...]:
    words = ["updateAclConfig", "-c", values["cluster"], "-a", values["access_key"], "-s", "-"]
    for option, name in (
        *(("-w", "white_remote_address"), ("-i", "default_topic_perm")),
        ("-u", "default_group_perm"),
    ):
        words += [option, values[name]] if values[name] else []
    for option, name in (("-t", "topic_perms"), ("-g", "group_perms")):
        words += [option, ",".join(values[name])] if values[name] else []
    return tuple([*words, "-m", "true"] if values["admin"] else words)


async def perform_account(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Perform updateAclConfig -c.

    A broker of 4.9.7 requires the secret key for each change (PlainPermissionManager): without a
    new one it gets its own key back, which it has just sent.
    """
    account = _config(values)
    unseen = {values["secret_key"]} - {None}

    async def act(admin: Admin, address: str) -> None:
        wanted = account
        if not wanted.secret_key:
            for one in (await admin.accounts(address)).plain_access_configs:
                if one.access_key == account.access_key and one.secret_key:
                    unseen.add(one.secret_key)
                    wanted = PlainAccessConfig(**{**account.__dict__, "secret_key": one.secret_key})
        await admin.update_account(address, wanted)

    text = call.text("has the account")
    return await at_all_brokers.change(call, values, session, act, text, unseen)


async def plan_delete(call: Call, values: Values) -> Plan:
    """Plan the deletion."""
    line = N_("Account %(name)s is deleted: its clients are refused at once.")
    name = values["access_key"]
    return Plan(
        (call.text(line, name=name), at_all_brokers.at_each(call, values)),
        command=("deleteAclConfig", "-c", values["cluster"], "-a", name),
    )


async def perform_delete(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Perform deleteAclConfig -c."""
    return await at_all_brokers.change(
        call,
        values,
        session,
        lambda admin, at: admin.delete_account(at, values["access_key"]),
        call.text("deleted"),
    )


async def _addresses(call: Call) -> Values:
    values = {"cluster": at_all_brokers.first_cluster(call)}
    if not values["cluster"]:
        return values
    done, _, _ = await at_all_brokers.ask(call, values, lambda admin, at: admin.accounts(at))
    every = {one for config in done.values() for one in config.global_white_addrs}
    return {**values, "addresses": tuple(sorted(every))}


def _check_addresses(call: Call, values: Values) -> None:
    for one in values["addresses"]:
        if "," in one:
            raise BadField("addresses", call.text("Enter one per line."))
    at_all_brokers.brokers(call, values)


async def plan_addresses(call: Call, values: Values) -> Plan:
    """Plan the change broker by broker, before and after."""
    done, failed, names = await at_all_brokers.ask(
        call, values, lambda admin, at: admin.accounts(at)
    )
    after = ", ".join(values["addresses"])
    rows = [
        (f"{names[at].name} {names[at].id}", ", ".join(config.global_white_addrs), after)
        for at, config in done.items()
    ]
    heads = (N_("Broker"), N_("Before"), N_("After"))
    return Plan(
        (
            call.text("Clients at these addresses need no signature and have all permissions."),
            *(f"{names[at].name} {names[at].id}: {error}" for at, error in failed.items()),
        ),
        (Sheet(tuple(map(call.text, heads)), rows, call.text("Addresses")),),
        ("updateGlobalWhiteAddr", "-c", values["cluster"], "-g", ",".join(values["addresses"])),
        call.text("Clients at these addresses need no account.") if after else "",
    )


async def perform_addresses(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Perform updateGlobalWhiteAddr -c."""
    return await at_all_brokers.change(
        call,
        values,
        session,
        lambda admin, at: admin.update_global_addresses(at, values["addresses"]),
        call.text("has the addresses"),
    )


_OF_KEY = (Query("access_key", default="", about=N_("The account to fill in.")),)

ROUTES = (
    Change(
        "/new/account",
        Permission.ADMINISTER,
        N_("Create or change an account of 4.9"),
        "",
        (
            at_all_brokers.CLUSTER,
            _ACCESS_KEY,
            Field(
                "secret_key",
                N_("Secret key"),
                "secret",
                help=N_("It is not shown again. Empty: unchanged for an existing account."),
            ),
            Field(
                "white_remote_address",
                N_("Addresses that need no signature"),
                help=N_("10.1.2.*, separated by commas. Empty: unchanged."),
            ),
            Field("admin", N_("Administrator: all permissions"), "flag"),
            *_PERMISSIONS,
        ),
        plan_account,
        perform_account,
        initial=_account,
        query=_OF_KEY,
        check=_check,
    ),
    Change(
        "/accounts/delete",
        Permission.ADMINISTER,
        N_("Delete an account of 4.9"),
        "",
        (at_all_brokers.CLUSTER, _ACCESS_KEY),
        plan_delete,
        perform_delete,
        initial=_account,
        destroys=lambda call, values: values["access_key"],
        query=_OF_KEY,
    ),
    Change(
        "/accounts/addresses",
        Permission.ADMINISTER,
        N_("Set the addresses that need no signature"),
        "",
        (
            at_all_brokers.CLUSTER,
            Field("addresses", N_("Addresses"), "lines", help=N_("10.1.2.*, one per line.")),
        ),
        plan_addresses,
        perform_addresses,
        initial=_addresses,
        check=_check_addresses,
    ),
)
