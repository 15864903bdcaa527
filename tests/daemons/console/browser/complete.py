"""The checks of a complete page."""

from tests.daemons.console.browser.chromium import Chromium

# Wider than the page: it would have a horizontal scroll bar. Tables and code may have their own.
_OVERFLOWS = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
# The effects that the texts of `filled` would have if a page did not escape them.
_TAKEN = "return document.querySelectorAll('img[src=x], main script:not([src])').length"
MOST_BYTES = 200 * 1024


async def complete(chromium: Chromium, origin: str) -> list[str]:
    """The same without the checks of axe, which take long."""
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
