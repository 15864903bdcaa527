"""What name servers and brokers can make the console hold, and where they can send it.

Whoever may register at a name server chooses the addresses that the console connects to, and a
broker chooses its names and counts. So there are bounds, and what is beyond them is left out and
said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import islice
from typing import TypeVar

from mq.client.caller import parse_address
from mq.client.errors import ClientError

T = TypeVar("T")

MOST_TEXT = 300  # characters of what is shown of an error: it may quote what a peer has sent


@dataclass(frozen=True, slots=True)
class Limits:
    """Most of each that is held of a cluster.

    Attributes:
        brokers: addresses of a cluster.
        topics: of one broker; retry and dead-letter topics count.
        groups: of one broker.
        clients: producers of one broker, and as many consumers.
        queues: of one broker: topics that groups have read, and queues where something waits.
        name: characters of a topic, a group, a client id, a broker name.
        figures: keys of what a broker tells of itself.
        networks: brokers must be in one of them, by IP address; empty: anywhere.
    """

    brokers: int = 200
    topics: int = 20_000
    groups: int = 10_000
    clients: int = 20_000
    queues: int = 200_000
    name: int = 255
    figures: int = 500
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def refused(self, address: str) -> str | None:
        """Why a broker at this address is not connected to; None if it may be."""
        if len(address) > self.name:
            return "its address is too long"
        try:
            host = parse_address(address).host
        except ClientError as error:
            return shortened(str(error))
        if not self.networks:
            return None
        try:
            ip = ip_address(host)
        except ValueError:
            return "it is no IP address, and brokers have to be in given networks"
        if any(ip in network for network in self.networks):
            return None
        return "it is in none of the networks that brokers have to be in"


def networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Read "10.0.0.0/8, fd00::/8". Raises ValueError."""
    return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())


def within(table: Mapping[str, T], most: int, name: int) -> tuple[dict[str, T], int]:
    """As much of a table as is held, and how many entries are left out."""
    fitting = ((key, value) for key, value in table.items() if key and len(key) <= name)
    held = dict(islice(fitting, most))
    return held, len(table) - len(held)


def shortened(text: str) -> str:
    """A line of an error, not too long."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_TEXT else line[: MOST_TEXT - 1] + "…"
