"""aiohttp over the simulated network: connections and clock are the loop's."""

from typing import Any

import aiohappyeyeballs
import aiohttp.connector

from mq.client.machine import clock


class Place:
    """Takes the place of a connected socket: the target of `SimulatedLoop.create_connection`."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port


async def _start_connection(addr_infos: Any, **_: Any) -> Place:
    host, port = addr_infos[0][4][:2]
    return Place(host, port)


def install() -> None:
    """Called once, after seams.install."""
    aiohappyeyeballs.start_connection = _start_connection  # type: ignore[assignment]
    aiohttp.connector.monotonic = clock.monotonic  # type: ignore[attr-defined]
