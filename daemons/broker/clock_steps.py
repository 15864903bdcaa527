"""Times in the future, written before the clock was set back.

Such a time does not say how long an operation must wait.
"""

# A clock that is set back by at most so many ms is waited for.
SET_BACK_MS = 1000


def is_future(moment: int, now: int) -> bool:
    """Whether the clock must have been set back since it showed a moment, both in ms."""
    return moment - now > SET_BACK_MS
