"""The final check of each test of stores."""

from collections.abc import Iterator

import pytest

from tests.daemons.tube.broker.store.stores import STILL_OPEN


@pytest.fixture(autouse=True)
def no_file_stays_open() -> Iterator[None]:
    yield
    while STILL_OPEN:
        STILL_OPEN.pop().close()
