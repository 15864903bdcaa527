"""Message choice of a job: options that jobs share."""

from dataclasses import dataclass
from typing import Any

from mq.pipeline import parsing
from mq.pipeline.jobs.declaration import option


def folder_option(help: str, example: str) -> Any:
    """Declare a required folder."""
    return option("folder", parsing.text, help, example=example, metavar="DIR")


def groups_option() -> Any:
    """Declare a choice of consumer groups; all by default."""
    return option(
        "groups",
        parsing.patterns,
        "Only these groups; * and ? stand for any characters.",
        example="billing,order-*",
        default=(),
        metavar="GROUP[,…]",
    )


def topics_option() -> Any:
    """Declare a choice of topics; all by default."""
    return option(
        "topics",
        parsing.patterns,
        "Only these topics; * and ? stand for any characters.",
        example="Orders,pay-*",
        default=(),
        metavar="TOPIC[,…]",
    )


def time_option(name: str, help: str, example: str) -> Any:
    """Declare the begin or end of a time span, in ms since 1970; None by default."""
    return option(name, parsing.time, help, example=example, default=None, metavar="TIME")


def expected_brokers_option(help: str) -> Any:
    """Declare names of brokers that must be there; none by default."""
    return option(
        "expected-brokers",
        parsing.names,
        help,
        example="broker-a,broker-b",
        default=(),
        metavar="BROKER[,…]",
    )


@dataclass(frozen=True, kw_only=True)
class MessageChoice:
    """Topics, by name or pattern, and a time span. The base of a job's options."""

    topic: tuple[str, ...] = option(
        "topic",
        parsing.topics,
        "Topics to read.",
        example="Orders,Refunds",
        default=(),
        metavar="TOPIC[,…]",
    )
    topic_pattern: str | None = option(
        "topic-pattern",
        parsing.pattern,
        "Read every topic whose whole name this regular expression matches, instead of --topic.",
        example="Orders-.*",
        default=None,
        metavar="REGEX",
    )
    expected_brokers: tuple[str, ...] = expected_brokers_option(
        "Brokers that each topic must be at: fail if one of them is down, which is not detected "
        "otherwise."
    )
    begin: int | None = time_option(
        "begin", "Only messages stored from this time on.", "2026-01-31T08:00:00+01:00"
    )
    end: int | None = time_option(
        "end", "Only messages stored before this time.", "2026-01-31T09:00:00+01:00"
    )

    def __post_init__(self) -> None:
        if bool(self.topic) == (self.topic_pattern is not None):
            raise ValueError("give either --topic or --topic-pattern, for example --topic Orders")

    def source_options(self) -> dict[str, str]:
        """Return the choice as options of `format("rocketmq")`."""
        options = {}
        if self.topic:
            options["topic"] = ",".join(self.topic)
        if self.topic_pattern is not None:
            options["topicPattern"] = self.topic_pattern
        if self.expected_brokers:
            options["expectedBrokers"] = ",".join(self.expected_brokers)
        if self.begin is not None:
            options["startingTimestamp"] = str(self.begin)
        if self.end is not None:
            options["endingTimestamp"] = str(self.end)
        return options
