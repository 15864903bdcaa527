"""Counts in user-visible texts."""


def counted(number: int, one: str, several: str = "") -> str:
    """Return `1 broker`, `2 brokers`, `12,000 messages are`: a number with the right form of the
    noun.

    `several` defaults to `one` with an s.
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
