"""Which messages a job reads: options that jobs share."""

from dataclasses import dataclass

from mq.pipeline import parsing
from mq.pipeline.jobs.declaration import option


@dataclass(frozen=True, kw_only=True)
class MessageChoice:
    """Topics, by name or pattern, and a span of time. The base of a job's options."""

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
    begin: int | None = option(
        "begin",
        parsing.time,
        "Only messages stored from this time on.",
        example="2026-01-31T08:00:00+01:00",
        default=None,
        metavar="TIME",
    )
    end: int | None = option(
        "end",
        parsing.time,
        "Only messages stored before this time.",
        example="2026-01-31T09:00:00+01:00",
        default=None,
        metavar="TIME",
    )

    def __post_init__(self) -> None:
        if bool(self.topic) == (self.topic_pattern is not None):
            raise ValueError("give either --topic or --topic-pattern, for example --topic Orders")

    def source_options(self) -> dict[str, str]:
        """The choice as options of `format("rocketmq")`."""
        options = {}
        if self.topic:
            options["topic"] = ",".join(self.topic)
        if self.topic_pattern is not None:
            options["topicPattern"] = self.topic_pattern
        if self.begin is not None:
            options["startingTimestamp"] = str(self.begin)
        if self.end is not None:
            options["endingTimestamp"] = str(self.end)
        return options
