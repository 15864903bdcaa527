"""Points in time, in ms since 1970, as results show them."""

from mq.client.operations.times import iso as iso


def local(milliseconds: int | None) -> str:
    """A point in time in the local zone, for people; empty where it is not known."""
    if not milliseconds:
        return ""
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))
