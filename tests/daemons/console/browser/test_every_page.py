"""Every page that links lead to, of a cluster whose texts are hostile."""

import asyncio

import pytest

from mq.daemons.standalone import Standalone
from tests.daemons.console.browser.chromium import Chromium
from tests.daemons.console.browser.filled import all_seen, filled
from tests.daemons.console.browser.walking import menu, walk
from tests.daemons.console.site import Consoles

pytestmark = pytest.mark.timeout(600)

# Wider than the page: it would have to be scrolled sideways. Tables and code may be, by themselves.
_OVERFLOWS = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
# What the texts of `filled` would have made of a page that takes them for more than text.
_TAKEN = "return document.querySelectorAll('img[src=x], main script:not([src])').length"
MOST_BYTES = 200 * 1024


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
    """What is wrong with the page that is open."""
    found = [f"axe, light: {x}" for x in await chromium.violations()]
    await chromium.prefer(prefers_color_scheme="dark")
    found += [f"axe, dark: {x}" for x in await chromium.violations(contrast_only=True)]
    await chromium.prefer()
    return found + await complete(chromium, origin)


async def complete(chromium: Chromium, origin: str) -> list[str]:
    """The same without what axe knows, which takes long."""
    found = []
    await chromium.size(320, 640)
    if await chromium.run(_OVERFLOWS):
        found.append("is wider than 320 px")
    await chromium.size(1280, 900)
    found += [f"complaint: {x}" for x in await chromium.complaints()]
    if await chromium.run(_TAKEN):
        found.append("hostile text was taken for elements")
    others = await chromium.hosts() - {origin.removeprefix("http://")}
    found += [f"asks {host}" for host in others]
    if chromium.bytes > MOST_BYTES:
        found.append(f"{chromium.bytes} bytes")
    if await chromium.run("return document.querySelectorAll('h1').length") != 1:
        found.append("has not one h1")
    return found
