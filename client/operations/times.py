"""Points in time, in ms since 1970, as written in JSON."""


def iso(milliseconds: int | None) -> str | None:
    """Format a time in UTC: `2026-07-01T12:00:00.123Z`; None if it is unknown."""
    if not milliseconds:
        return None
    from datetime import UTC, datetime

    when = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"
