"""The options of reads from TubeMQ, each declared once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mq.pipeline import parsing
from mq.pipeline.declared import ClientOptions, PlanOptions, option, read_declared, wrong
from mq.pipeline.parsing import Position
from mq.pipeline.tube.offsets import from_keys
from mq.protocol.tube.errors import IllegalName, MalformedText
from mq.protocol.tube.names import check_filter_items, check_group, check_topic
from mq.protocol.tube.strings import parse_addresses

Filters = tuple[tuple[str, tuple[str, ...]], ...]  # types by topic; "" for all topics


def _masters(text: str) -> str:
    try:
        return ",".join(map(str, parse_addresses(text)))
    except MalformedText as error:
        raise ValueError(str(error)) from None


def _topics(text: str) -> tuple[str, ...]:
    try:
        return tuple(check_topic(name) for name in parsing.names(text))
    except IllegalName as error:
        raise ValueError(str(error)) from None


def _group(text: str) -> str:
    try:
        return check_group(text.strip())
    except IllegalName as error:
        raise ValueError(str(error)) from None


def _filters(text: str) -> Filters:
    given: object = {"": parsing.names(text)}
    if text.lstrip().startswith("{"):
        try:
            given = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"no JSON: {error}") from None
    assert isinstance(given, dict)
    found = []
    for topic, items in sorted(given.items()):
        if not isinstance(items, list | tuple) or not all(isinstance(one, str) for one in items):
            raise ValueError(f"the types of {topic} are not a list of names")
        try:
            found.append((check_topic(topic) if topic else "", tuple(check_filter_items(items))))
        except IllegalName as error:
            raise ValueError(str(error)) from None
    return tuple(found)


def _position(text: str) -> Position:
    return parsing.position(text, from_keys)


_OFFSETS_EXAMPLE = '{"1:orders:0": 2800, "1:orders:1": -2}'


@dataclass(frozen=True)
class TubeReadOptions(ClientOptions, PlanOptions):
    """What a query reads, and how."""

    masters: str = option("masters", _masters, "10.0.0.1:8715,10.0.0.2:8715", "")
    topics: tuple[str, ...] = option("topic", _topics, "orders,refunds", ())
    group: str = option("group", _group, "spark-orders", "")
    filters: Filters = option("filters", _filters, "paid,refunded", ())
    starting_offsets: Position | None = option("startingOffsets", _position, _OFFSETS_EXAMPLE)
    ending_offsets: Position | None = option("endingOffsets", _position, _OFFSETS_EXAMPLE)
    timeout_ms: int = option("requestTimeoutMs", parsing.number(8000, 300_000), "15000", 15_000)
    occupied_ms: int = option("occupiedTimeoutMs", parsing.number(0, 86_400_000), "600000", 60_000)

    def subscription(self) -> dict[str, tuple[str, ...] | None]:
        """Return the requested types of each topic; None for all."""
        types = dict(self.filters)
        return {topic: types.get(topic, types.get("")) for topic in self.topics}

    def client_keywords(self) -> dict[str, Any]:
        """Return keywords of TubeConsumerOptions."""
        from mq.client.tube.credentials import TubeCredentials

        key = self.access_key
        return {
            "credentials": None if key is None else TubeCredentials(key.access_key, key.secret_key),
            "tls": self.context(),
            "timeout": self.timeout_ms / 1000,
        }


def parse_tube_options(given: Mapping[str, str]) -> TubeReadOptions:
    """Parse the options of a query, whatever the case of their names.

    Raises OptionError that names the option and shows a valid one.
    """
    options = read_declared(TubeReadOptions, given)
    if not options.masters:
        raise wrong(TubeReadOptions, "masters", "it is needed: the addresses of the masters")
    if not options.topics:
        raise wrong(TubeReadOptions, "topic", "it is needed")
    if not options.group:
        reason = "it is needed: a group that no consumer and no other query uses"
        raise wrong(TubeReadOptions, "group", reason)
    strange = sorted({topic for topic, _ in options.filters} - {"", *options.topics})
    if strange:
        raise wrong(TubeReadOptions, "filters", f"{strange[0]} is not among the topics")
    options.check_tls()
    return options
