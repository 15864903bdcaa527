"""Times of day in the future, because the clock was ahead when they were written.

Such a time says nothing about how long something has to wait.
"""

# A clock that is set back by less is waited for.
SET_BACK_MS = 1000


def is_future(moment: int, now: int) -> bool:
    """Whether the clock must have been set back since it showed a moment, both in ms."""
    return moment - now > SET_BACK_MS
