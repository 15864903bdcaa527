"""Pauses while the metrics of very many topics and groups are collected."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.statistics.stat_items import A_STEP

T = TypeVar("T")
Values = list[tuple[tuple[str, ...], float]]


def paced(items: Iterable[T]) -> Iterator[tuple[bool, T]]:
    """Yield each item with whether it is time for a pause; items may change meanwhile."""
    for number, item in enumerate(list(items), 1):
        yield number % A_STEP == 0, item


def broker_labels(config: BrokerConfig) -> dict[str, str]:
    """The labels of a broker."""
    return {"cluster": config.broker_cluster_name, "broker": config.broker_name}
