"""Inputs that are nearly right: seeds with a few things wrong."""

import random
from collections.abc import Sequence


def mutated(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds with a few things wrong."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        position = chance.randrange(len(data) + 1)
        kind = chance.randrange(6)
        if kind == 0:
            data[position : position + 1] = chance.randbytes(1)
        elif kind == 1:
            del data[position : position + chance.choice((1, 2, 4, 8))]
        elif kind == 2:
            data[position:position] = chance.randbytes(chance.choice((1, 2, 4)))
        elif kind == 3:  # a length, perhaps
            number = chance.choice((0, 1, 127, 128, 255, 0x7FFF, 0x8000, 0x7FFFFFFF, 0xFFFFFFFF))
            data[position : position + 4] = number.to_bytes(4, "big")
        elif kind == 4:
            del data[position:]
        else:
            other = chance.choice(seeds)
            start = chance.randrange(len(other))
            data[position:position] = other[start : start + chance.randrange(1, 20)]
    return bytes(data)
