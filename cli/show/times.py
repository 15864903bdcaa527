"""Points in time, in ms since 1970, as results show them."""


def iso(milliseconds: int | None) -> str | None:
    """A point in time in UTC: `2026-07-01T12:00:00.123Z`; None where it is not known."""
    if not milliseconds:
        return None
    from datetime import UTC, datetime

    when = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def local(milliseconds: int | None) -> str:
    """A point in time in the local zone, for people; empty where it is not known."""
    if not milliseconds:
        return ""
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))
