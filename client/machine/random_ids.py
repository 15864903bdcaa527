"""Chance: numbers and identifiers that nobody can foresee."""

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
    """32 bits that tell processes, and what is made in them, apart."""
    return int.from_bytes(random_bytes(4), "big")
