"""`mq cluster init`: the configuration files of a whole cluster."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.parameters import cluster_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import text

if TYPE_CHECKING:
    from mq.cli.machine import cluster_layout

COMMANDS = {"cluster": ("cluster init",)}

_COLUMNS = (text("path", "File"), text("what", "Daemon"), text("hosts", "Hosts"))


@gives(_COLUMNS)
@writes
def cluster_init(
    call: Call,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="New directory for the files.")],
    masters: Annotated[int, typer.Option("--masters", metavar="N", help="Number of masters.")] = 2,
    slaves: Annotated[
        int,
        typer.Option(
            "--slaves", metavar="N", help="Number of slaves in total, spread over the masters."
        ),
    ] = 0,
    sync: Annotated[
        bool, typer.Option("--sync", help="Acknowledge a message when a slave has it too.")
    ] = False,
    controllers: Annotated[
        bool, typer.Option("--controller", help="Let controllers, with etcd, elect the masters.")
    ] = False,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts",
            metavar="HOST,…",
            help="Machines to run on, by name or address. Default: this one.",
        ),
    ] = None,
    cluster_name: Annotated[str, cluster_option("Name of the cluster.")] = "DefaultCluster",
) -> Result:
    """Write the settings of a whole cluster: name servers, masters and their slaves.

    With --controller the replicas of a broker elect another master if theirs fails; with --sync,
    too, a send is answered when all replicas in sync have the message. Without --hosts the files
    are for a trial on this machine: `mq standalone --cluster DIR` runs them. With --hosts it prints
    which files to copy where; a slave is on another machine than its master.

    Examples:
        mq cluster init demo --masters 2 --slaves 2  for a trial on this machine
        mq cluster init prod --masters 2 --slaves 2 --hosts 10.0.0.1,10.0.0.2
                                                     for two machines
    """
    from mq.cli.machine import cluster_layout

    folder = Path(directory).absolute()
    wanted = _wanted(masters, slaves, cluster_name, hosts, sync=sync, controllers=controllers)
    made = cluster_layout.files(wanted, folder)
    taken = [folder / file.name for file in made if (folder / file.name).exists()]
    if taken:
        raise CommandError(
            f"{taken[0]} already exists",
            hint="name a new folder; no file was written",
            status=Status.CANNOT_CREATE,
        )
    _write(call, folder, made)
    rows: list[Row] = [(str(folder / file.name), file.what, ", ".join(file.hosts)) for file in made]
    notes = _next_on_hosts(folder, made) if wanted.hosts else _next_here(folder, wanted)
    width = max(len(path) for path, _, _ in rows)
    lines = [f"{path:{width}}  {what}, on {where}" for path, what, where in rows]
    return Result(_COLUMNS, rows, "\n".join([*lines, *notes, ""]), notes=notes)


def _write(call: Call, folder: Path, made: "list[cluster_layout.File]") -> None:
    from mq.client.operations import local_files

    for file in made:
        path = folder / file.name
        if call.dry_run:
            call.would("write", path)
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise local_files.cannot("make", path.parent, error) from error
        local_files.replace(path, file.text.encode())


def _wanted(
    masters: int,
    slaves: int,
    cluster_name: str,
    hosts: str | None,
    *,
    sync: bool,
    controllers: bool,
) -> "cluster_layout.ClusterSpec":
    from mq.cli.machine import cluster_layout

    names = tuple(map(_host, hosts.split(","))) if hosts is not None else ()
    if not all(names):
        raise UsageError(
            f"--hosts {hosts}: expected names or addresses, separated by commas, without ports"
        )
    if len(set(names)) < len(names):
        raise UsageError(f"--hosts {hosts}: contains the same machine twice")
    if slaves and len(names) == 1:
        raise UsageError(
            f"--hosts {hosts}: a slave must be on another machine than its master; there is one",
            hint=f"--hosts {hosts},HOST",
        )
    if not 1 <= masters <= cluster_layout.MAX_MASTERS:
        raise UsageError(f"--masters {masters}: expected 1 to {cluster_layout.MAX_MASTERS}")
    if not 0 <= slaves <= 9 * masters:
        raise UsageError(f"--slaves {slaves}: expected 0 to {9 * masters}, nine for each master")
    if sync and slaves < masters:
        raise UsageError(
            f"--sync with {slaves} slaves: each of {masters} masters needs one, or its sends are "
            "answered with SLAVE_NOT_AVAILABLE",
            hint=f"--slaves {masters}",
        )
    if controllers and slaves < masters:
        raise UsageError(
            f"--controller with {slaves} slaves: each of {masters} masters needs one, or no broker "
            "can take over from it",
            hint=f"--slaves {masters}",
        )
    return cluster_layout.ClusterSpec(cluster_name, masters, slaves, sync, names, controllers)


def _host(text: str) -> str:
    """Return a name or an address, IPv6 without brackets; empty if it is neither."""
    from ipaddress import IPv6Address

    name = text.strip()
    if ":" not in name:
        return name if re.fullmatch(r"[\w.-]+", name) else ""
    try:
        return str(IPv6Address(name[1:-1] if name.startswith("[") and name[-1] == "]" else name))
    except ValueError:
        return ""


def _next_here(folder: Path, wanted: "cluster_layout.ClusterSpec") -> list[str]:
    etcd = f"First, in a separate shell:  etcd --data-dir {shlex.quote(str(folder / 'etcd'))}"
    return [
        *([etcd] if wanted.controllers else []),
        f"Start it, until Ctrl-C:  mq standalone --cluster {shlex.quote(str(folder))}",
        "and in another shell:  mq clusterList -n 127.0.0.1:9876",
    ]


def _next_on_hosts(folder: Path, made: "list[cluster_layout.File]") -> list[str]:
    from mq.protocol.host import address_text

    lines = ["On each machine: install mq and its units (mq systemd install). Then:"]
    members = [file.hosts[0] for file in made if file.unit == "mq-controller"]
    if members:
        lines.insert(
            0, f"First set up an etcd cluster with a member on each of {', '.join(members)}."
        )
    for host in dict.fromkeys(host for file in made for host in file.hosts):
        place = f"[{host}]" if ":" in host else host
        here = [file for file in made if host in file.hosts]
        same = [file for file in here if file.place == file.name]
        paths = " ".join(shlex.quote(str(folder / file.name)) for file in same)
        if same:
            lines.append(f"  scp {paths} {place}:/etc/mq/")
        for file in here:
            if file not in same:
                path = shlex.quote(str(folder / file.name))
                lines.append(f"  scp {path} {place}:/etc/mq/{file.place}")
        lines.append(f"  ssh {host} systemctl enable --now {' '.join(file.unit for file in here)}")
    servers = next(file for file in made if file.unit == "mq-namesrv")
    address = address_text((servers.hosts[0], int(servers.settings["listenPort"])))
    return [*lines, f"To check it:  mq clusterList -n {address}"]
