"""The inputs that fuzzing has found once, and a few thousand new ones, in each run of the suite."""

import logging
import random
import time
from collections.abc import Iterator

import pytest

from tests.fuzzing import corpus
from tests.fuzzing.catalog import NAMES, load
from tests.fuzzing.mutation import mutated

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
        new = [mutated(chance, kept) for _ in range(FEW.get(name, NEW_INPUTS))]
        slow = []
        for data in (*kept, *(data[: target.longest] for data in new)):
            began = time.thread_time()
            target.run(data)
            if time.thread_time() - began > HANG_SECONDS:
                slow.append(data)
        # Once may be the collector's turn; the same input again is not.
        for data in slow:
            began = time.thread_time()
            target.run(data)
            assert time.thread_time() - began < HANG_SECONDS, data.hex()
