"""Selects the filter server from which a queue is pulled."""

from __future__ import annotations  # bodies are loaded only when a call needs them

from collections.abc import Collection

from mq.client.machine import random_ids
from mq.protocol import bodies


def choose_filter_server(
    route: bodies.TopicRouteData, broker: str, tried: Collection[str] = ()
) -> str | None:
    """Return a random filter server of the broker at an address; None if all were tried."""
    left = [one for one in route.filter_server_table.get(broker, ()) if one not in tried]
    return left[random_ids.randrange(len(left))] if left else None
