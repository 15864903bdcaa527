"""Resets of offsets, as the Java tool writes them."""

from mq.cli.show import java_text
from mq.cli.show.result import Result, number, text
from mq.client.operations.offsets.reset import OffsetReset, ResetOutcome

COLUMNS = (
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    number("brokerOffset", "Broker offset"),
    number("consumerOffset", "Old offset"),
    number("timestampOffset", "Offset of that time"),
    number("offset", "New offset"),
)


def result(rows: list[ResetOutcome], plain: str, failures: list[str]) -> Result:
    """The result of a command that resets."""
    return Result(COLUMNS, [tuple(row) for row in rows], plain, failures=failures)


def heading(wanted: OffsetReset, timestamp: str, online: bool) -> str:
    """The line above the table."""
    who = "group" if online else "consumerGroup"
    return (
        f"rollback consumer offset by specified {who}[{wanted.group}], topic[{wanted.topic}], "
        f"force[{java_text.truth(wanted.force)}], timestamp(string)[{timestamp}], "
        f"timestamp(long)[{wanted.timestamp}]\n"
    )


def table(rows: list[ResetOutcome], online: bool) -> str:
    """The table that mqadmin prints: of three columns when consumers were told, else of six."""
    if online:
        width = "{:<40}  {:<40}  {:<40}\n"
        lines = [width.format("#brokerName", "#queueId", "#offset")]
        lines += [width.format(row.broker_name[:32], row.queue_id, row.offset) for row in rows]
        return "".join(lines)
    width = "{:<20}  {:<20}  {:<20}  {:<20}  {:<20}  {:<20}\n"
    heads = "#brokerOffset", "#consumerOffset", "#timestampOffset", "#rollbackOffset"
    lines = [width.format("#brokerName", "#queueId", *heads)]
    lines += [width.format(row.broker_name[:32], *row[1:]) for row in rows]
    return "".join(lines)
