"""One browser for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.daemons.console.browser.chromium import Chromium


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    browser = Chromium()
    try:
        yield browser
    finally:
        browser.close()
