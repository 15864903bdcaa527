"""Random numbers and identifiers that cannot be predicted."""

import os as _os
import random as _random
import uuid as _uuid

randrange = _random.randrange
shuffle = _random.shuffle
sample = _random.sample
uniform = _random.uniform
random_bytes = _os.urandom
uuid4 = _uuid.uuid4


def salt() -> int:
    """Return 32 random bits that distinguish processes and the ids that they create."""
    return int.from_bytes(random_bytes(4), "big")
