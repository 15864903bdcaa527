"""Settings that 5.x brokers keep in RocksDB, as JSON.

Formats: ExportMetadataInRocksDBCommand and RocksDBConfigToJsonCommand of
org.apache.rocketmq.tools.command.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.machine import rocks
from mq.cli.parameters import broker_option, cluster_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.option_groups import option_group
from mq.cli.runtime.options import Truth, subject
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster, java_order
from mq.client.operations.columns import text
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.client.admin import Admin

COMMANDS = {
    "export": (
        "exportMetadataInRocksDB",
        "rocksDBConfigToJson",
    )
}

_COLUMNS = (text("type", "Kind"), text("name", "Name"), text("value", "Settings"))


@gives(_COLUMNS)
@subject("path")
async def export_metadata_in_rocks_db(
    call: Call,
    path: Annotated[
        str,
        typer.Option(
            "-p", "--path", metavar="FOLDER", help="Directory config of a broker's store."
        ),
    ],
    config_type: Annotated[
        str,
        typer.Option(
            "-t",
            "--configType",
            metavar="KIND",
            help="What to print: topics or subscriptionGroups.",
        ),
    ],
    json_enable: Annotated[
        Truth, typer.Option("-j", "--jsonEnable", help="Print one JSON document.")
    ] = Truth.FALSE,
) -> Result:
    """Print the topics or consumer groups that a broker keeps in RocksDB, from its directory.

    Examples:
        mq exportMetadataInRocksDB ~/store/config -t topics
                                        a line for each topic
        mq exportMetadataInRocksDB ~/store/config -t subscriptionGroups -j true
                                        groups, as one document
    """
    kind = _kind(config_type, (rocks.TOPICS, rocks.GROUPS))
    entries, _ = rocks.read(_directory(path), kind)
    rows: list[Row] = [(kind, name, value) for name, value in entries.items()]
    if not json_enable:
        plain = "".join(
            f"{number}, Key: {name}, Value: {value}\n"
            for number, (name, value) in enumerate(entries.items(), 1)
        )
        return Result(_COLUMNS, rows, plain)
    names = java_order.hash_order(entries)
    table = {name: rocks.parse(kind, name, entries[name]) for name in names}
    return Result(_COLUMNS, rows, rocks.pretty({rocks.TABLES[kind]: table}) + "\n")


def _directory(path: str) -> Path:
    if not path or not Path(path).exists():
        raise NotFound(f"no directory {path!r}")
    return Path(path)


def _kind(given: str, known: tuple[str, ...] = rocks.KINDS) -> str:
    for kind in known:
        if kind.lower() == given.lower():
            return kind
    raise UsageError(f"-t/--configType: {given!r} is not one of {', '.join(known)}")


@option_group
class FromDirectory:
    """The directory of a database, and the output."""

    config_path: Annotated[
        str | None,
        typer.Option("-p", "--configPath", metavar="FOLDER", help="Directory config of a store."),
    ] = None
    export_file: Annotated[
        str | None,
        typer.Option(
            "-e",
            "--exportFile",
            metavar="FILE",
            help="With -p: file to write; -: standard output.",
        ),
    ] = None
    json_enable: Annotated[
        Truth,
        typer.Option("-j", "--jsonEnable", help="With -p: print JSON; if false, a line for each."),
    ] = Truth.TRUE

    def result(self, call: Call, kind: str) -> Result:
        """Print or write the settings of a kind."""
        entries, version = rocks.read(_directory(self.config_path or ""), kind)
        table = {name: rocks.parse(kind, name, value) for name, value in entries.items()}
        tables: dict[str, Any] = {rocks.TABLES[kind]: table}
        if version is not None and kind != rocks.OFFSETS:
            tables["dataVersion"] = rocks.parse("dataVersion", "dataVersion", version)
        tables = {name: tables[name] for name in java_order.hash_order(tables)}
        plain = "Use [local mode] load rocksdb to print or export file \n"
        if self.export_file == "-":
            plain = rocks.pretty(tables) + "\n"
        elif self.export_file is not None:
            _write(call, Path(self.export_file), rocks.pretty(tables))
        elif self.json_enable:
            plain += rocks.pretty(tables) + "\n"
        else:
            plain += _lines(tables)
        rows: list[Row] = [(kind, name, value) for name, value in entries.items()]
        return Result(_COLUMNS, rows, plain)


@writes
@gives(_COLUMNS, (text("brokerAddr", "Broker"), text("type", "Kinds")))
async def rocks_db_config_to_json(
    call: Call,
    config_type: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--configType",
            metavar="KIND[;…]",
            help="What to convert: topics, subscriptionGroups or consumerOffsets. Default on "
            "brokers: all.",
        ),
    ] = None,
    *,
    local: FromDirectory,
    nameserver_addr: Annotated[
        str | None,
        typer.Option("--nameserverAddr", metavar="HOST:PORT[;…]", help="The same as -n."),
    ] = None,
    cluster_name: Annotated[
        str | None,
        cluster_option("Every master of this cluster.", name="--cluster"),
    ] = None,
    broker_addr: Annotated[str | None, broker_option()] = None,
) -> Result:
    """Convert the settings that brokers keep in RocksDB to JSON.
    With -c or -b each broker (5.3.2 or later) writes JSON files next to its database; brokers
    without RocksDB have them already. With -p a database is read from its directory, also while its
    broker runs, and printed, or written to the file of -e, whose old content is kept as FILE.bak.

    Examples:
        mq rocksDBConfigToJson -p ~/store/config -t topics
                                        of a directory, printed
        mq rocksDBConfigToJson -b 127.0.0.1:10911 -t 'topics;subscriptionGroups'
                                        at a broker, written next to its database
    """
    if nameserver_addr:
        from mq.client.transport.caller import parse_name_servers

        call.name_servers = list(parse_name_servers(nameserver_addr))
    if cluster_name or broker_addr:
        return await _at_brokers(call, config_type, cluster_name, broker_addr)
    if nameserver_addr or call.given_name_servers:
        raise UsageError("-n/--nameserverAddr needs -c/--cluster")
    if not local.config_path:
        raise UsageError("one of -c/--cluster, -b/--brokerAddr and -p/--configPath is required")
    if not config_type:
        raise UsageError("-p/--configPath needs -t/--configType")
    return local.result(call, _kind(config_type))


_SECONDS = 30.0


async def _at_brokers(
    call: Call, config_type: str | None, cluster_name: str | None, broker_addr: str | None
) -> Result:
    from mq.cli.runtime.release import since_5

    given = [part.strip() for part in (config_type or "").split(";") if part.strip()]
    kinds = [_kind(part) for part in given] or list(rocks.KINDS)
    plain = "Use [rpc mode] call broker to export to json file \n"
    async with call.admin() as admin:
        if cluster_name:
            plain = "Use [rpc mode] call all brokers in cluster to export to json file \n"
            targets = cluster.masters(await cluster.clusters(admin.session), cluster_name)
        else:
            targets = [broker_addr or ""]

        async def act(each: "Admin", address: str) -> None:
            await each.export_rocksdb_config(address, kinds, timeout=_SECONDS)

        done, failures = await cluster.at_each(admin, targets, since_5(call.name, act))
    columns = (text("brokerAddr", "Broker"), text("type", "Kinds"))
    rows: list[Row] = [(address, ";".join(kinds)) for address in done]
    return Result(columns, rows, plain + "broker export done.", failures=failures)


def _lines(tables: dict[str, Any]) -> str:
    """Return a line for each entry; as in Java, a table's name precedes its first entry."""
    plain, number = "", 0
    for name, table in tables.items():
        plain += f"type: {name}"
        for key, value in table.items():
            number += 1
            offsets = name == rocks.TABLES[rocks.OFFSETS]  # by queue id, as Java's map has them
            shown = java_text.map_text(value, value) if offsets else _compact(value)
            plain += f"{number}, Key: {key}, Value: {shown}\n"
    return plain


def _compact(value: Any) -> str:
    from mq.protocol import fastjson

    return fastjson.dumps(value).decode()


def _write(call: Call, path: Path, content: str) -> None:
    from mq.client.operations import local_files

    if call.dry_run:
        call.would("write", path, f"{len(content)} bytes")
        return
    if path.exists():
        local_files.replace(path.with_name(f"{path.name}.bak"), local_files.read(path))
    local_files.replace(path, content.encode())
