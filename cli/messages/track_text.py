"""The consumers of a message, as the Java tool prints them."""

from dataclasses import asdict
from typing import Any

from mq.client.operations.messages.track import Track


def text(found: list[Track]) -> str:
    """Return the end of a message's page."""
    if not found:
        return "\n\nWARN: No Consumer"
    return "\n\n" + "".join(map(_line, found))


def _line(track: Track) -> str:
    """Return MessageTrack.toString."""
    error = "null" if track.error is None else track.error
    return (
        f"MessageTrack [consumerGroup={track.group}, trackType={track.type}, exceptionDesc={error}]"
    )


def documents(found: list[Track]) -> list[dict[str, Any]]:
    """Return the tracks for JSON."""
    return [asdict(track) for track in found]
