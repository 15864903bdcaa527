"""Limits for the data that name servers and brokers send, and for the addresses that they name.

Any client that may register at a name server chooses addresses to which the console connects, and a
broker chooses its names and counts. What exceeds the limits is ignored and reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import islice
from typing import TypeVar

from mq.client.errors import ClientError, ConnectError, MQError, RequestTimeout
from mq.client.transport.caller import parse_address

T = TypeVar("T")

MOST_TEXT = 300  # characters of an error on a page: it may quote a peer's text


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for one cluster.

    Attributes:
        brokers: addresses of a cluster. topics: of one broker, with retry and dead letter topics.
        groups: of one broker. clients: producers of one broker, and as many consumers. queues: of
        one broker: topics that groups have read, and queues with a lag. name: characters of a
        topic, a group, a client id, a broker name. figures: keys of a broker's runtime information.
        networks: brokers must be in one of them, by IP address; empty: any.
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
        """Return why not to connect to a broker at this address; None if allowed."""
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
            return "it is not an IP address, and brokers must be in given networks"
        if any(ip in network for network in self.networks):
            return None
        return "it is in none of the networks in which brokers must be"


def networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse "10.0.0.0/8, fd00::/8". Raises ValueError."""
    return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())


def within(table: Mapping[str, T], most: int, name: int) -> tuple[dict[str, T], int]:
    """Return the entries within the limits, and the number of the others."""
    fitting = ((key, value) for key, value in table.items() if key and len(key) <= name)
    held = dict(islice(fitting, most))
    return held, len(table) - len(held)


def shortened(text: str) -> str:
    """Return an error as one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_TEXT else line[: MOST_TEXT - 1] + "…"


def problem(error: MQError, timeout: float) -> str:
    """Return why a peer did not answer; `timeout` is in seconds."""
    if isinstance(error, RequestTimeout):
        return f"does not answer within {timeout:g} s"
    if isinstance(error, ConnectError):
        return f"cannot be reached: {shortened(error.reason)}"
    return shortened(str(error))
