"""The first page of a cluster."""

from dataclasses import dataclass

from mq.daemons.console.call import Call
from mq.daemons.console.route import N_, Page, Permission, Route, Sheet


@dataclass(frozen=True, slots=True)
class NameServers:
    """Where a cluster is."""

    cluster: str
    name_servers: tuple[str, ...]
    read_only: bool


async def home(call: Call) -> Page:
    """Which cluster this is."""
    cluster = call.cluster
    addresses = tuple(cluster.session.name_servers)
    return Page(
        "frame/home.html",
        call.text("Cluster %(name)s", name=cluster.name),
        NameServers(cluster.name, addresses, cluster.read_only),
        command=("clusterList", "-n", ";".join(addresses)),
        sheet=Sheet(("Name server",), [(address,) for address in addresses]),
    )


ROUTES = (
    Route(
        "/",
        home,
        Permission.READ,
        N_("Which cluster this is."),
        menu=N_("Overview"),
        data=NameServers,
    ),
)
