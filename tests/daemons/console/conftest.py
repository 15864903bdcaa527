"""Fixtures for tests of the console."""

from pathlib import Path

import pytest

from tests.daemons.console.site import Consoles
from tests.daemons.console.site import patient as patient


@pytest.fixture
def console(tmp_path: Path) -> Consoles:
    """Starts consoles: `async with console() as site:` (see `site.Consoles`)."""
    return Consoles(tmp_path)
