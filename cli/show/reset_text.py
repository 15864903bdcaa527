"""Offset resets, as the Java tool prints them."""

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
    """Return the result of a reset command."""
    return Result(COLUMNS, [tuple(row) for row in rows], plain, failures=failures)


def heading(wanted: OffsetReset, timestamp: str, online: bool) -> str:
    """Return the line above the table."""
    label = "group" if online else "consumerGroup"
    return (
        f"rollback consumer offset by specified {label}[{wanted.group}], topic[{wanted.topic}], "
        f"force[{java_text.truth(wanted.force)}], timestamp(string)[{timestamp}], "
        f"timestamp(long)[{wanted.timestamp}]\n"
    )


def table(rows: list[ResetOutcome], online: bool) -> str:
    """Return mqadmin's table: three columns if consumers were notified, else six."""
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
