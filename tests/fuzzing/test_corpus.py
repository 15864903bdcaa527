"""The inputs that fuzzing has found once, and a few thousand new ones, in each run of the suite."""

import logging
import random
import time
from collections.abc import Iterator

import pytest

from tests.fuzzing import corpus
from tests.fuzzing.catalog import NAMES, load

HANG_SECONDS = 0.1
NEW_INPUTS = 2_000
FEW = {"store": 60}  # each is a start of a store


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", NAMES)
def test_no_input_fails_or_takes_long(name: str) -> None:
    """A minute of fuzzing finds what this does not: `make fuzz`."""
    chance = random.Random(name)
    with load(name) as target:
        kept = corpus.load(name)
        assert kept, "run: python -m tests.fuzzing --keep"
        slow = []
        for data in [*kept, *_mutated(chance, kept, FEW.get(name, NEW_INPUTS), target.longest)]:
            began = time.thread_time()
            target.run(data)
            if time.thread_time() - began > HANG_SECONDS:
                slow.append(data)
        # Once may be the collector's turn; the same input again is not.
        for data in slow:
            began = time.thread_time()
            target.run(data)
            assert time.thread_time() - began < HANG_SECONDS, data.hex()


def _mutated(
    chance: random.Random, seeds: list[bytes], count: int, longest: int
) -> Iterator[bytes]:
    for _ in range(count):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 2, 4))):
            at = chance.randrange(len(data) + 1)
            kind = chance.randrange(4)
            if kind == 0:
                data[at : at + 1] = chance.randbytes(1)
            elif kind == 1:
                data[at : at + 4] = chance.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF)).to_bytes(4, "big")
            elif kind == 2:
                del data[at : at + chance.randrange(1, 9)]
            else:
                other = chance.choice(seeds)
                data[at:at] = other[: chance.randrange(len(other) + 1)]
        yield bytes(data[:longest])
