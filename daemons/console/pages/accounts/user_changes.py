"""Changes of users of 5.x."""

from typing import Any

from mq.client.admin import Admin
from mq.client.operations.subjects import users
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.accounts import at_all_brokers
from mq.daemons.console.route import N_, Change, Field, Outcome, Permission, Plan, Query, Values

_USERNAME = Field("username", N_("User"), required=True, limit=255)


async def _user(call: Call) -> Values:
    values: dict[str, Any] = {
        "cluster": at_all_brokers.first_cluster(call),
        "username": call.query["username"],
    }
    if not values["username"] or not values["cluster"]:
        return values
    done, _, _ = await at_all_brokers.ask(
        call, values, lambda admin, at: admin.user(at, values["username"])
    )
    for found in done.values():
        if found is not None:
            kind = (found.user_type or "").lower()
            return {**values, "user_type": kind, "user_status": found.user_status}
    return values


def _check_user(call: Call, values: Values) -> None:
    at_all_brokers.brokers(call, values)


async def plan_user(call: Call, values: Values) -> Plan:
    """Plan where the user is created, and where it is changed."""
    name = values["username"]
    done, failed, names = await at_all_brokers.ask(
        call, values, lambda admin, at: admin.user(at, name)
    )
    rows = []
    for address, found in done.items():
        broker = f"{names[address].name} {names[address].id}"
        if found is None:
            rows.append((broker, call.text("user"), call.text("none"), call.text("created")))
        if values["password"]:
            rows.append((broker, call.text("password"), "", call.text("set")))
        for label, before, after in (
            ("userType", found and found.user_type, (values["user_type"] or "").capitalize()),
            ("userStatus", found and found.user_status, values["user_status"]),
        ):
            if after and before != after:
                rows.append((broker, label, before or "", after))
    command = ["createUser", "-c", values["cluster"], "-u", name]
    if any(found is not None for found in done.values()):
        command[0] = "updateUser"
    command += ["-p", "-"] if values["password"] else []
    command += ["-t", values["user_type"]] if values["user_type"] else []
    if values["user_status"] and command[0] == "updateUser":
        command += ["-s", values["user_status"]]
    return Plan(
        (
            call.text("User %(name)s is created or changed as below.", name=name),
            at_all_brokers.at_each(call, values),
            *(f"{names[at].name} {names[at].id}: {error}" for at, error in failed.items()),
        ),
        (asked.settings_table(call, rows),),
        tuple(command),
        call.text("A super user has all permissions.") if values["user_type"] == "super" else "",
    )


async def perform_user(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Perform createUser -c where the user is missing, else updateUser."""
    user = users.user(
        *(values["username"], values["password"], values["user_type"], values["user_status"])
    )

    async def act(admin: Admin, address: str) -> None:
        if await admin.user(address, values["username"]) is None:
            await admin.create_user(address, user)
        else:
            await admin.update_user(address, user)

    text = call.text("has the user")
    secrets = {values["password"]} - {None}
    return await at_all_brokers.change(call, values, session, act, text, secrets)


async def plan_delete_user(call: Call, values: Values) -> Plan:
    """Plan the deletion."""
    line = N_("User %(name)s is deleted: its clients are refused. Its policies stay.")
    name = values["username"]
    return Plan(
        (call.text(line, name=name), at_all_brokers.at_each(call, values)),
        command=("deleteUser", "-c", values["cluster"], "-u", name),
    )


async def perform_delete_user(call: Call, values: Values, session: Caller) -> list[Outcome]:
    """Perform deleteUser -c."""
    return await at_all_brokers.change(
        call,
        values,
        session,
        lambda admin, at: admin.delete_user(at, values["username"]),
        call.text("deleted"),
    )


_OF_USER = (Query("username", default="", about=N_("The user to fill in.")),)

ROUTES = (
    Change(
        "/new/user",
        Permission.ADMINISTER,
        N_("Create or change a user of RocketMQ 5"),
        "",
        (
            at_all_brokers.CLUSTER,
            _USERNAME,
            Field(
                "password",
                N_("Password"),
                "secret",
                help=N_("It is not shown again. Empty: unchanged for an existing user."),
            ),
            Field(
                "user_type",
                N_("Type"),
                "choice",
                choices=(
                    ("normal", N_("normal: what policies allow")),
                    ("super", N_("super: everything")),
                ),
            ),
            Field(
                "user_status",
                N_("Status"),
                "choice",
                choices=(("enable", N_("may log in")), ("disable", N_("may not log in"))),
            ),
        ),
        plan_user,
        perform_user,
        initial=_user,
        query=_OF_USER,
        check=_check_user,
    ),
    Change(
        "/accounts/delete-user",
        Permission.ADMINISTER,
        N_("Delete a user of RocketMQ 5"),
        "",
        (at_all_brokers.CLUSTER, _USERNAME),
        plan_delete_user,
        perform_delete_user,
        initial=_user,
        destroys=lambda call, values: values["username"],
        query=_OF_USER,
    ),
)
