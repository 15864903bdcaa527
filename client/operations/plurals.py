"""Numbers of things in texts for people."""


def counted(number: int, one: str, several: str = "") -> str:
    """`1 broker`, `2 brokers`, `12,000 messages are`: as many as there are, in the right number.

    `several` is `one` with an s, unless it is given.
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
