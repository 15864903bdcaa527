"""The name server commands of mqadmin. Formats: org.apache.rocketmq.tools.command.namesrv.

Name servers do not communicate with each other: a command changes every given name server, and
reports each.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli import broker_options
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import subject
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster, java_order, masking
from mq.client.operations.columns import number, text

if TYPE_CHECKING:
    from mq.client.admin import Admin

COMMANDS = {
    "namesrv": (
        "wipeWritePerm",
        "addWritePerm",
        "getNamesrvConfig",
        "updateNamesrvConfig",
        "updateKvConfig",
        "deleteKvConfig",
    )
}

BrokerName = Annotated[
    str, typer.Option("-b", "--brokerName", metavar="NAME", help="Name of the broker.")
]
Namespace = Annotated[
    str, typer.Option("-s", "--namespace", metavar="NAMESPACE", help="Namespace of the key.")
]
Key = Annotated[str, typer.Option("-k", "--key", metavar="NAME", help="Name of the setting.")]
Value = Annotated[str, typer.Option("-v", "--value", metavar="VALUE", help="Value of the setting.")]

_PERMISSION = (
    text("namesrvAddr", "Name server"),
    text("brokerName", "Broker"),
    number("topicCount", "Topics"),
)


@writes
@gives(_PERMISSION)
@subject("broker_name")
async def wipe_write_perm(call: Call, broker_name: BrokerName) -> Result:
    """Stop producers from sending to a broker, at every name server.

    Consumers continue, so that the broker is drained. addWritePerm restores the permission of the
    topics; if the broker registers a changed topic, that topic is writable again.

    Examples:
        mq wipeWritePerm broker-a            stop sends to the broker
        mq wipeWritePerm broker-a --dry-run  show what would be sent
    """
    return await _permission(
        call, broker_name, "wipe", lambda admin, at: admin.wipe_write_permission(at, broker_name)
    )


@writes
@gives(_PERMISSION)
@subject("broker_name")
async def add_write_perm(call: Call, broker_name: BrokerName) -> Result:
    """Let producers send to a broker again, at every name server.

    Examples:
        mq addWritePerm broker-a            allow sends again
        mq addWritePerm broker-a --dry-run  show what would be sent
    """
    return await _permission(
        call, broker_name, "add", lambda admin, at: admin.add_write_permission(at, broker_name)
    )


async def _permission(
    call: Call,
    broker_name: str,
    verb: str,
    act: Callable[["Admin", str], Coroutine[Any, Any, int]],
) -> Result:
    async with call.admin() as admin:
        done, failures = await cluster.at_each(admin, call.name_servers, act)
    plain = ""
    for address in call.name_servers:
        what = f"{verb} write perm of broker[{broker_name}] in name server[{address}]"
        plain += f"{what} OK, {done[address]}\n" if address in done else f"{what} Failed\n"
    rows: list[Row] = [(address, broker_name, count) for address, count in done.items()]
    notes = []
    if not failures and not any(done.values()):
        notes.append(f"nothing changed: no broker is named {broker_name}; see: mq clusterList")
    return Result(_PERMISSION, rows, plain, failures=failures, notes=notes)


_CONFIG = (text("namesrvAddr", "Name server"), text("key", "Key"), text("value", "Value"))


@gives(_CONFIG, data="The settings of each name server by its address.")
async def get_namesrv_config(call: Call) -> Result:
    """Show the settings of the name servers.

    Secrets are masked, also those that a Java name server sends.

    Examples:
        mq getNamesrvConfig          settings of the name servers
        mq getNamesrvConfig -o json  for a program
    """
    async with call.admin() as admin:
        found, failures = await cluster.at_each(
            admin, call.name_servers, lambda each, address: each.name_server_config(address)
        )
    found = {address: masking.fields(settings) for address, settings in found.items()}
    rows: list[Row] = []
    plain = ""
    for address in java_order.hash_order(found, capacity=4):
        settings = found[address]
        keys = java_order.properties_order(settings)
        rows += [(address, key, settings[key]) for key in keys]
        plain += f"============{address}============\n"
        plain += "".join(f"{key:<50}=  {settings[key]}\n" for key in keys)
    return Result(_CONFIG, rows, plain, data=found, failures=failures)


@writes
@gives(_CONFIG)
@subject("key", "value")
async def update_namesrv_config(call: Call, key: Key, value: Value) -> Result:
    """Change a setting of the running name servers.

    Examples:
        mq updateNamesrvConfig orderMessageEnable true
                                        change a setting of all name servers
        mq updateNamesrvConfig orderMessageEnable true --dry-run
                                        show what would be sent
    """
    async with call.admin() as admin:
        try:
            done, failures = await cluster.at_each(
                admin,
                call.name_servers,
                lambda each, address: each.update_name_server_config(address, {key: value}),
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
    broker_options.report_notes(call, done)
    shown_value = masking.MASK if masking.is_secret(key, value) else value
    # Java shows the value of -n, and nothing if the environment variable gives it.
    given = call.given_name_servers
    shown = "" if given is None else f"[{', '.join(given.split(';'))}]"
    plain = (
        "" if failures else f"update name server config success!{shown}\n{key} : {shown_value}\n"
    )
    rows: list[Row] = [(address, key, shown_value) for address in done]
    return Result(_CONFIG, rows, plain, failures=failures)


_KV = (
    text("namesrvAddr", "Name server"),
    text("namespace", "Namespace"),
    text("key", "Key"),
    text("value", "Value"),
)


@writes
@gives(_KV)
@subject("namespace", "key", "value")
async def update_kv_config(call: Call, namespace: Namespace, key: Key, value: Value) -> Result:
    """Set a key-value setting, at every name server.

    Examples:
        mq updateKvConfig SHOP currency EUR  set a key-value setting
        mq updateKvConfig SHOP currency EUR --dry-run
                                             show what would be sent
    """
    async with call.admin() as admin:
        done, failures = await cluster.at_each(
            admin,
            call.name_servers,
            lambda each, address: each.put_kv_at(address, namespace, key, value),
        )
    plain = "" if failures else "create or update kv config to namespace success.\n"
    rows: list[Row] = [(address, namespace, key, value) for address in done]
    return Result(_KV, rows, plain, failures=failures)


@destroys("delete key {key} of namespace {namespace} at every name server")
@gives(_KV[:3])
@subject("namespace", "key")
async def delete_kv_config(call: Call, namespace: Namespace, key: Key) -> Result:
    """Delete a key-value setting, at every name server.

    Deleting a key that does not exist succeeds.

    Examples:
        mq deleteKvConfig SHOP currency            delete a key-value setting
        mq deleteKvConfig SHOP currency --dry-run  show what would be sent
    """
    async with call.admin() as admin:
        done, failures = await cluster.at_each(
            admin,
            call.name_servers,
            lambda each, address: each.delete_kv_at(address, namespace, key),
        )
    plain = "" if failures else "delete kv config from namespace success.\n"
    rows: list[Row] = [(address, namespace, key) for address in done]
    return Result(_KV[:3], rows, plain, failures=failures)
