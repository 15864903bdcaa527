"""The pictures of docs/jobs/console.md: `make pictures` writes them."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from mq.client.machine import clock
from mq.daemons.console.history.points import Key
from tests.daemons.console.browser.chromium import Chromium
from tests.daemons.console.browser.filled import GROUP, TOPIC, all_seen, filled
from tests.daemons.console.site import Consoles, Site

pytestmark = pytest.mark.timeout(600)

DOCS = Path(__file__).resolve().parents[4] / "docs"
WRITES = bool(os.environ.get("MQ_PICTURES"))
NOTES = ("gift wrapped", "leave it at the door", "call first")
PICTURES = {
    "console-overview": "/",
    "console-messages": f"/messages/{TOPIC}",
    "console-group": f"/groups/{GROUP}",
}


def test_the_pictures_of_the_page_are_those_that_are_taken() -> None:
    text = (DOCS / "jobs" / "console.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\.\./images/([\w-]+)\.png", text))
    assert shown == {*PICTURES, "console-reset"}
    assert all((DOCS / "images" / f"{name}.png").is_file() for name in shown)


@pytest.mark.long  # pages are opened, axe at hand, by test_every_page
def test_pictures_can_be_taken(console: Consoles, chromium: Chromium, tmp_path: Path) -> None:
    folder = DOCS / "images" if WRITES else tmp_path

    async def take(name: str) -> None:
        await chromium.picture(folder / f"{name}.png")
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")

    async def scenario() -> None:
        folder.mkdir(exist_ok=True)
        async with console(clusters=["prod"]) as site, filled(site.pair, "billing-1", NOTES):
            await all_seen(site)
            _make_a_past(site)
            for name, path in PICTURES.items():
                await chromium.open(f"{site.origin}/c/prod{path}")
                await take(name)
            await chromium.open(f"{site.origin}/c/prod/groups/{GROUP}/reset?topic={TOPIC}")
            await chromium.fill({"topic": TOPIC, "to": "earliest"})
            await chromium.follow("Preview")
            await take("console-reset")

    asyncio.run(scenario())


def _make_a_past(site: Site) -> None:
    """Record an hour of metrics for the charts."""
    history = site.here.history._history
    now = clock.milliseconds() // 1000
    for back in range(360):
        at, wave = now - 3600 + back * 10, (back % 90) / 90
        for name, value in (("in_rate", 80 + 60 * wave), ("out_rate", 75 + 70 * wave)):
            history.add(Key("prod", "cluster", "DefaultCluster", name), value, at)
        history.add(Key("prod", "cluster", "DefaultCluster", "lag"), 400 * wave, at)
        history.add(Key("prod", "group", GROUP, "lag"), 36 + 200 * (1 - wave), at)
