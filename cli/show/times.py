"""The display of points in time, in ms since 1970."""

from mq.client.operations.times import iso as iso


def local(milliseconds: int | None) -> str:
    """Return a point in time in the local zone; empty if unknown."""
    if not milliseconds:
        return ""
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))
