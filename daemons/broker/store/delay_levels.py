"""Delay levels: the delay of each level, from messageDelayLevel."""

_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def delay_levels(text: str) -> dict[int, int]:
    """Parse messageDelayLevel ("1s 5s …") into milliseconds by level; levels start at 1.

    Raises ValueError naming the part that is not a number with a unit of s, m, h or d.
    """
    levels = {}
    for level, part in enumerate(text.split(), 1):
        unit = _UNITS.get(part[-1:])
        if unit is None or not part[:-1].isdigit():
            raise ValueError(f"messageDelayLevel: {part} is not a number and one of s, m, h, d")
        levels[level] = int(part[:-1]) * unit
    return levels
