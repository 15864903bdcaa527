"""The options of reads from the files of a store, each declared once."""

from collections.abc import Mapping
from dataclasses import dataclass

from mq.pipeline import parsing
from mq.pipeline.declared import example_of, option, read_declared, wrong

_MIB = 1024 * 1024


def _paths(text: str) -> tuple[str, ...]:
    paths = tuple(path.strip().removeprefix("file://") for path in text.split(","))
    if not all(paths):
        raise ValueError("names no folder")
    return paths


@dataclass(frozen=True)
class StoreOptions:
    """The messages to read, and the store."""

    paths: tuple[str, ...] = option("path", _paths, "/var/lib/mq/store", ())
    topics: tuple[str, ...] = option("topic", parsing.topics, "Orders,Refunds", ())
    topic_pattern: str | None = option("topicPattern", parsing.pattern, "Orders-.*")
    starting_timestamp: int | None = option(
        "startingTimestamp", parsing.time, "2026-01-31T08:00:00+01:00"
    )
    ending_timestamp: int | None = option(
        "endingTimestamp", parsing.time, "2026-01-31T09:00:00+01:00"
    )
    # The log does not name its broker.
    broker_name: str | None = option("brokerName", parsing.text, "broker-a")
    include_prepared: bool = option("includePrepared", parsing.yes, "true", False)
    include_properties: bool = option("includeProperties", parsing.yes, "true", False)
    verify: bool = option("verifyBodies", parsing.yes, "false", True)
    fail_on_damage: bool = option("failOnDamage", parsing.yes, "false", True)
    report: str | None = option("report", parsing.choice("damage"), "damage")
    part_bytes: int = option(
        "maxPartitionBytes", parsing.number(1, 2**40), str(64 * _MIB), 256 * _MIB
    )


def example(name: str) -> str:
    """Return a valid value of an option."""
    return example_of(StoreOptions, name)


def parse_store_options(given: Mapping[str, str]) -> StoreOptions:
    """Parse the options of a query, whatever the case of their names.

    Raises OptionError that names the option and shows a valid one.
    """
    options = read_declared(StoreOptions, given)
    if not options.paths:
        raise wrong(StoreOptions, "path", "it is needed: a store, or the folder of its commit log")
    if options.topics and options.topic_pattern is not None:
        raise wrong(StoreOptions, "topic", "give either this or topicPattern")
    return options
