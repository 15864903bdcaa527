"""Fixtures for tests of signals."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def usual_ctrl_c() -> Iterator[None]:
    """A test run may ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
