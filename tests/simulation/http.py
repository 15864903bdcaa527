"""aiohttp over the simulated network: connections and clock are the loop's; all else is its own."""

from typing import Any

import aiohappyeyeballs
import aiohttp.connector

from mq.client.machine import clock


class Place:
    """In the place of a connected socket: where `SimulatedLoop.create_connection` is to connect."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port


async def _start_connection(addr_infos: Any, **_: Any) -> Place:
    host, port = addr_infos[0][4][:2]
    return Place(host, port)


def install() -> None:
    """Once, behind seams.install."""
    aiohappyeyeballs.start_connection = _start_connection  # type: ignore[assignment]
    aiohttp.connector.monotonic = clock.monotonic  # type: ignore[attr-defined]
