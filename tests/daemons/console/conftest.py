"""What tests of the console share."""

import sys
from pathlib import Path

import pytest

from mq.daemons.console import pages
from tests.daemons.console.site import Consoles


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pages wait for brokers as long as a busy machine takes; a test of that says how long."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{pages.__name__}.") and hasattr(module, "DEADLINE"):
            monkeypatch.setattr(module, "DEADLINE", 30.0)


@pytest.fixture
def console(tmp_path: Path) -> Consoles:
    """Starts consoles: `async with console() as site:` (see `site.Consoles`)."""
    return Consoles(tmp_path)
