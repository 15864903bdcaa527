"""Every page that links lead to, in a cluster with hostile texts."""

import asyncio
from collections.abc import Iterator

import pytest

from mq.daemons.standalone import Standalone
from tests.daemons.console.browser.chromium import Chromium
from tests.daemons.console.browser.complete import complete
from tests.daemons.console.browser.filled import all_seen, filled
from tests.daemons.console.browser.walking import menu, walk
from tests.daemons.console.site import Consoles

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def chromium() -> Iterator[Chromium]:
    """A browser without a page cache, which is not needed here, and without script optimization:
    each page loads axe again, and has finished it by then.
    """
    no_compilers = "--js-flags=--no-turbofan --no-maglev"
    browser = Chromium("--disable-features=BackForwardCache", no_compilers)
    try:
        yield browser
    finally:
        browser.close()


def test_pages_are_complete_accessible_and_ask_nobody_else(
    console: Consoles, chromium: Chromium
) -> None:
    problems: list[str] = []

    async def scenario() -> list[str]:
        visited: list[str] = []
        async with (
            Standalone(name_server_port=0, broker_port=0) as pair,
            filled(pair),
            console(pair=pair) as site,
        ):
            await all_seen(site)
            async for path in walk(site, chromium):
                visited.append(path)
                problems.extend(f"{path}: {x}" for x in await looked_at(chromium, site.origin))
            return [path for path in menu() if path not in visited]

    missed = asyncio.run(scenario())
    assert not problems, "\n".join(problems)
    assert missed == []


async def looked_at(chromium: Chromium, origin: str) -> list[str]:
    """Return the violations of the open page."""
    found = [f"axe, light: {x}" for x in await chromium.violations()]
    await chromium.prefer(prefers_color_scheme="dark")
    found += [f"axe, dark: {x}" for x in await chromium.violations(contrast_only=True)]
    await chromium.prefer()
    return found + await complete(chromium, origin)
