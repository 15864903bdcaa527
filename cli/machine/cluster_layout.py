"""The configuration files of a cluster: one for the name servers, and one for each broker.

Names are those of Java's samples (conf/2m-2s-sync): broker-a, broker-b; a slave has its master's
name, an id above 0, and a file name that ends in -s.
"""

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mq.daemons.broker.config import DEFAULT_PORT
from mq.daemons.controller.config import DEFAULT_PORT as CONTROLLER_PORT
from mq.daemons.host_addresses import EVERYWHERE, LOOPBACK
from mq.daemons.instances.plan import PORT_STEP
from mq.daemons.properties import write_properties
from mq.protocol.host import address_text

MAX_MASTERS = len(string.ascii_lowercase)  # broker-a to broker-z
_NAME_SERVER_PORT = 9876
_MAX_NAME_SERVERS = 2  # all have the same data; brokers register with each
_MAX_CONTROLLERS = 3  # each with an etcd member on its host
_ETCD_PORT = 2379
# The prefixes of the files of name servers and controllers, and the `mq` commands that run them.
# All other files are of brokers.
NAME_SERVER = "namesrv"
CONTROLLER = "controller"


@dataclass(frozen=True)
class ClusterSpec:
    """The size and kind of a cluster. Without ``hosts`` it runs on loopback of this machine."""

    name: str
    masters: int
    slaves: int  # in total
    sync: bool
    hosts: tuple[str, ...] = ()
    controllers: bool = False  # controllers elect the masters


@dataclass(frozen=True)
class File:
    """A configuration file; ``hosts`` are the machines that need it."""

    name: str
    settings: Mapping[str, str]
    hosts: tuple[str, ...]
    what: str

    @property
    def text(self) -> str:
        return f"# {self.what}\n{write_properties(self.settings)}"

    @property
    def unit(self) -> str:
        """The systemd unit that reads the file."""
        stem = self.name.removesuffix(".conf")
        if stem.startswith(CONTROLLER):
            return "mq-controller"
        return "mq-namesrv" if stem == NAME_SERVER else f"mq-broker@{stem}"

    @property
    def place(self) -> str:
        """The file's name in /etc/mq of a host."""
        return f"{CONTROLLER}.conf" if self.name.startswith(CONTROLLER) else self.name


def files(wanted: ClusterSpec, folder: Path) -> list[File]:
    """Return all files. ``folder``, absolute, holds the data of a cluster on one machine."""
    hosts = wanted.hosts or (LOOPBACK,)
    name_servers = hosts[:_MAX_NAME_SERVERS]
    found = [_name_servers(wanted, folder, name_servers)]
    controllers = hosts[:_MAX_CONTROLLERS]
    if wanted.controllers:
        found += _controllers(wanted, folder, controllers)
    ports = dict.fromkeys(hosts, DEFAULT_PORT)
    common = {
        "brokerClusterName": wanted.name,
        "namesrvAddr": _addresses(name_servers, _NAME_SERVER_PORT),
    }
    for name, number, replica in _brokers(wanted):
        host = hosts[(number + _distance(replica, len(hosts))) % len(hosts)]
        stem = name + ("" if not replica else "-s" if replica == 1 else f"-s{replica}")
        settings = {
            **common,
            "brokerName": name,
            **(_controlled(wanted, controllers) if wanted.controllers else _role(wanted, replica)),
            "brokerIP1": host,
            "listenPort": str(ports[host]),
        }
        if ":" in host:
            settings["bindAddress"] = _everywhere((host,))
        if not wanted.hosts:
            settings["storePathRootDir"] = str(folder / stem)
        ports[host] += PORT_STEP
        kind = f"slave {replica} of {name}" if replica else f"master {name}"
        if wanted.controllers:
            kind = f"replica {replica + 1} of {name}"
        found.append(File(f"{stem}.conf", settings, (host,), f"{kind} of cluster {wanted.name}"))
    return found


def _role(wanted: ClusterSpec, replica: int) -> dict[str, str]:
    role = "SLAVE" if replica else "SYNC_MASTER" if wanted.sync else "ASYNC_MASTER"
    return {"brokerId": str(replica), "brokerRole": role}


def _controlled(wanted: ClusterSpec, controllers: tuple[str, ...]) -> dict[str, str]:
    """Return the settings of a broker whose role controllers decide."""
    addresses = _addresses(controllers, CONTROLLER_PORT)
    found = {"enableControllerMode": "true", "controllerAddr": addresses}
    return {**found, "allAckInSyncStateSet": "true"} if wanted.sync else found


def _addresses(hosts: tuple[str, ...], port: int) -> str:
    return ";".join(address_text((host, port)) for host in hosts)


def _everywhere(hosts: tuple[str, ...]) -> str:
    """Return the wildcard address to listen on; :: accepts IPv4, too."""
    return "::" if any(":" in host for host in hosts) else EVERYWHERE


def _distance(replica: int, hosts: int) -> int:
    """Return the distance of a replica's host from its master's; they differ if there are other
    hosts.
    """
    return 1 + (replica - 1) % (hosts - 1) if replica and hosts > 1 else 0


def _brokers(wanted: ClusterSpec) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the number of the master, and the replica's number; 0 is the master."""
    for number in range(wanted.masters):
        yield f"broker-{string.ascii_lowercase[number]}", number, 0
    for turn in range(wanted.slaves):
        number = turn % wanted.masters
        yield f"broker-{string.ascii_lowercase[number]}", number, turn // wanted.masters + 1


def _name_servers(wanted: ClusterSpec, folder: Path, hosts: tuple[str, ...]) -> File:
    settings = {"listenPort": str(_NAME_SERVER_PORT)}
    if wanted.hosts:
        settings["bindAddress"] = _everywhere(hosts)
    else:
        settings["bindAddress"] = LOOPBACK
        settings["kvConfigPath"] = str(folder / NAME_SERVER / "kvConfig.json")
        settings["configStorePath"] = str(folder / NAME_SERVER / "namesrv.properties")
    return File(f"{NAME_SERVER}.conf", settings, hosts, f"name servers of cluster {wanted.name}")


def _controllers(wanted: ClusterSpec, folder: Path, hosts: tuple[str, ...]) -> Iterator[File]:
    """Yield a file for each controller, with its address for brokers and other controllers."""
    endpoints = ";".join(f"http://{address_text((host, _ETCD_PORT))}" for host in hosts)
    for host in hosts:
        settings = {
            "listenPort": str(CONTROLLER_PORT),
            "bindAddress": _everywhere(hosts) if wanted.hosts else LOOPBACK,
            "controllerAddress": address_text((host, CONTROLLER_PORT)),
            "controllerDLegerGroup": wanted.name,
            "etcdEndpoints": endpoints,
        }
        if not wanted.hosts:
            settings["configStorePath"] = str(folder / CONTROLLER / "controller.properties")
        stem = f"{CONTROLLER}-{host}" if len(hosts) > 1 else CONTROLLER
        yield File(f"{stem}.conf", settings, (host,), f"a controller of cluster {wanted.name}")
