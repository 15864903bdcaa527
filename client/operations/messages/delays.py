"""Delivery times as users write them, and the limits of a topic's brokers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.errors import MQError
from mq.client.operations import cluster, time_expressions
from mq.client.operations.errors import InvalidRequest
from mq.client.operations.messages.waiting import DEFAULT_LEVELS, level_millis
from mq.client.producer.outgoing import MAX_BODY

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.message import Message

FORMS = "a level (1 to 18), 30s, 15m, 1h30m, 2d, or a time like 2026-07-01T12:00"

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_EARLIEST = 10**12  # ms; a smaller number is a level


@dataclass(frozen=True)
class DelayLimits:
    """The limits that all brokers of a topic share.

    ``levels`` are the delays of their levels in ms, from level 1 on; empty if they differ or are
    unknown. ``timed`` is whether they support delivery times; None if unknown.
    """

    max_body: int = MAX_BODY
    levels: tuple[int, ...] = ()
    timed: bool | None = None

    def delay(self, message: "Message", said: int | str, now: int) -> None:
        """Delay a message as written by the user, relative to `now` in ms. Raises
        InvalidRequest.
        """
        text = str(said).strip()
        if text.isdecimal() and int(text) < _EARLIEST:
            level = int(text)
            if self.levels and level > len(self.levels):
                raise InvalidRequest(f"delay {level}: levels are 1 to {len(self.levels)}, {FORMS}")
            message.delay_level = level
            return
        try:
            millis = time_expressions.duration(text)
        except ValueError:
            due = _time(text, now)
        else:
            if millis in self.levels:  # all releases support levels
                message.delay_level = self.levels.index(millis) + 1
                return
            due = now + millis
        if self.timed is False:
            known = " ".join(map(_named, self.levels)) or DEFAULT_LEVELS
            raise InvalidRequest(
                f"delay {text}: a broker of this topic is older than RocketMQ 5, or has its timer "
                f"turned off, and would deliver it at once; its levels are {known}"
            )
        message.deliver_at = due


def _time(text: str, now: int) -> int:
    try:
        # a delay never points to the past
        if not text.startswith("-") and not text.endswith("ago"):
            return time_expressions.parse(text, now / 1000)
    except ValueError:
        pass
    raise InvalidRequest(f"delay {text!r} is not {FORMS}")


def _named(millis: int) -> str:
    """Return `1m` for 60,000."""
    for unit, size in _UNITS.items():
        if millis and millis % size == 0:
            return f"{millis // size}{unit}"
    return f"{millis}ms"


async def taken_by(admin: "Admin", addresses: Iterable[str]) -> DelayLimits:
    """Return the limits of these brokers, from their settings. Unknown ones get the defaults:
    accounts with send permission usually cannot read settings.
    """
    try:
        done, _ = await cluster.outcomes(
            admin, addresses, lambda each, address: each.broker_config(address)
        )
    except MQError:
        done = {}
    told = list(done.values())
    sizes = [
        int(one["maxMessageSize"]) for one in told if one.get("maxMessageSize", "").isdecimal()
    ]
    levels = {_levels(one) for one in told}
    return DelayLimits(
        min(sizes, default=MAX_BODY),
        levels.pop() if len(levels) == 1 else (),
        all(one.get("timerWheelEnable") == "true" for one in told) if told else None,
    )


def _levels(config: Mapping[str, str]) -> tuple[int, ...]:
    try:
        return level_millis(config.get("messageDelayLevel") or DEFAULT_LEVELS)
    except ValueError:
        return ()
