"""The options of reads, each declared once.

Names are those of rocketmq-spark if it has the option; Spark ignores their case.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mq.client.pull.subscription import SQL92, TAG
from mq.client.transport.blocking import BlockingSession
from mq.pipeline import parsing
from mq.pipeline.declared import (
    ClusterOptions,
    PlanOptions,
    example_of,
    option,
    read_declared,
    wrong,
)
from mq.pipeline.errors import OptionError
from mq.pipeline.parsing import Position
from mq.pipeline.puller import PullSettings
from mq.protocol.names import TOOLS_CONSUMER_GROUP, check_group
from mq.protocol.tags import ALL_TAGS, TagExpression


def _commit_offsets(text: str) -> bool:
    if text.strip().lower() not in ("group", "none"):
        raise ValueError(f"{text!r} is neither group nor none")
    return text.strip().lower() == "group"


def _expression_type(text: str) -> str:
    if text.strip().upper() not in (TAG, SQL92):
        raise ValueError(f"{text!r} is neither {TAG} nor {SQL92}")
    return text.strip().upper()


_OFFSETS_EXAMPLE = '{"Orders": {"broker-a": {"0": 23, "1": -2}}}'


@dataclass(frozen=True)
class ReadOptions(ClusterOptions, PlanOptions):
    """What a query reads, and how."""

    topics: tuple[str, ...] = option("topic", parsing.topics, "Orders,Refunds", ())
    topic_pattern: str | None = option("topicPattern", parsing.pattern, "Orders-.*")
    group: str = option("group", check_group, "spark-orders", TOOLS_CONSUMER_GROUP)
    starting_offsets: Position | None = option(
        "startingOffsets", parsing.position, _OFFSETS_EXAMPLE
    )
    ending_offsets: Position | None = option("endingOffsets", parsing.position, _OFFSETS_EXAMPLE)
    starting_timestamp: int | None = option(
        "startingTimestamp", parsing.time, "2026-01-31T08:00:00+01:00"
    )
    ending_timestamp: int | None = option(
        "endingTimestamp", parsing.time, "2026-01-31T09:00:00+01:00"
    )
    expected_brokers: tuple[str, ...] = option(
        "expectedBrokers", parsing.names, "broker-a,broker-b", ()
    )
    expression: str = option("subExpression", parsing.text, "TagA || TagB", ALL_TAGS)
    expression_type: str = option("subExpressionType", _expression_type, SQL92, TAG)
    timeout_ms: int = option("pullTimeoutMs", parsing.number(1, 600_000), "10000", 10_000)
    batch: int = option("pullBatchSize", parsing.number(1, 100_000), "1024", 8192)
    commit_offsets: bool = option("commitOffsets", _commit_offsets, "group", False)
    min_partitions: int | None = option("minPartitions", parsing.number(1, 100_000), "16")
    include_properties: bool = option("includeProperties", parsing.yes, "true", False)
    fail_on_damage: bool = option("failOnDamage", parsing.yes, "false", True)

    def session(self) -> BlockingSession:
        """Open a session to the cluster. Raises ClientError for TLS files that cannot be used."""
        return self.open_session(self.timeout_ms / 1000)

    def pull_settings(self) -> PullSettings:
        return PullSettings(
            group=self.group,
            expression=self.expression,
            expression_type=self.expression_type,
            batch=self.batch,
            timeout=self.timeout_ms / 1000,
            retries=self.retries,
            retry_pause=self.retry_pause_ms / 1000,
            fail_on_data_loss=self.fail_on_data_loss,
        )

    def tags(self) -> tuple[str, ...]:
        """The requested tags; empty for all messages."""
        return TagExpression.parse(self.expression).tags if self.expression_type == TAG else ()


def example(name: str) -> str:
    """Return a valid value of an option."""
    return example_of(ReadOptions, name)


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a query, whatever the case of their names.

    Raises OptionError that names the option and shows a valid one.
    """
    options = read_declared(ReadOptions, given)
    options.check_cluster()
    _check_together(options)
    return options


def _check_together(options: ReadOptions) -> None:
    if bool(options.topics) == (options.topic_pattern is not None):
        raise _missing("topic", "give either this or topicPattern")
    if options.starting_offsets is not None and options.starting_timestamp is not None:
        raise _missing("startingTimestamp", "give either this or startingOffsets")
    if options.ending_offsets is not None and options.ending_timestamp is not None:
        raise _missing("endingTimestamp", "give either this or endingOffsets")
    if options.commit_offsets and options.group == TOOLS_CONSUMER_GROUP:
        raise _missing("group", "commitOffsets needs one")
    if options.expression_type == TAG:
        try:
            options.tags()
        except ValueError as error:
            raise _missing("subExpression", str(error)) from None


def _missing(name: str, reason: str) -> OptionError:
    return wrong(ReadOptions, name, reason)
