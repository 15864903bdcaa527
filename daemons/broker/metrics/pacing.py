"""Pauses while metrics of very many topics and groups are put together."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.statistics.stat_items import A_STEP

T = TypeVar("T")
Values = list[tuple[tuple[str, ...], float]]


def paced(items: Iterable[T]) -> Iterator[tuple[bool, T]]:
    """Each with whether it is time for a pause; what comes and goes meanwhile does not matter."""
    for number, item in enumerate(list(items), 1):
        yield number % A_STEP == 0, item


def whose(config: BrokerConfig) -> dict[str, str]:
    """The labels that say whose a metric is."""
    return {"cluster": config.broker_cluster_name, "broker": config.broker_name}
