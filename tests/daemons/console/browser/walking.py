"""From page to page by their links: each kind of page once."""

import re
from collections.abc import AsyncIterator
from urllib.parse import urldefrag, urljoin, urlsplit

from mq.daemons.console.pages import all_routes
from mq.daemons.console.route import Change, Route
from tests.daemons.console.browser.chromium import Chromium
from tests.daemons.console.site import Browser

_LINKS = "return [...document.querySelectorAll('a[href]')].map((one) => one.getAttribute('href'))"


def kinds() -> list[str]:
    """The paths of all pages and forms of the console, as patterns."""
    return [one.path for one in all_routes() if isinstance(one, Route | Change)]


def menu() -> list[str]:
    """The paths that have an entry in the menu."""
    return [one.path for one in all_routes() if isinstance(one, Route | Change) and one.menu]


async def walk(site: Browser, chromium: Chromium, each: int = 1) -> AsyncIterator[str]:
    """Open a page of each kind that links lead to from the first one; yield the path of each below
    the cluster, while it is open.
    """
    patterns = [(kind, re.compile(_pattern(kind))) for kind in kinds()]
    start = f"{site.prefix}/c/{site.cluster}"
    todo, seen = [f"{site.origin}{start}/"], set[str]()
    visited: dict[str, int] = {}
    while todo:
        address = todo.pop(0)
        path = urlsplit(address).path.removeprefix(start) or "/"
        kind = next((kind for kind, pattern in patterns if pattern.fullmatch(path)), None)
        if kind is None or visited.get(kind, 0) >= each:
            continue
        visited[kind] = visited.get(kind, 0) + 1
        await chromium.open(address)
        for link in await chromium.run(_LINKS):
            found = urldefrag(urljoin(address, link))[0]
            # Downloads are not pages, and sorting and paging lead to the same one.
            if found not in seen and found.startswith(site.origin) and "format=" not in found:
                seen.add(found)
                todo.append(found)
        yield path


def _pattern(path: str) -> str:
    return "".join("[^/]+" if part[:1] == "{" else re.escape(part) for part in _split(path))


def _split(path: str) -> list[str]:
    return [part for part in re.split(r"(\{[^}]*\})", path) if part]
