"""The console in a real browser, with Java brokers of 4.9 and 5.x."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.options import ClientOptions
from mq.client.transport.session import Session
from mq.daemons.console.app import Console
from mq.daemons.console.clusters import Cluster, ClusterSource
from tests.daemons.console.browser.chromium import SECONDS, Chromium
from tests.daemons.console.browser.complete import complete
from tests.daemons.console.browser.filled import GROUP, LETTERS, TOPIC, all_seen, filled_at
from tests.daemons.console.browser.walking import menu, walk
from tests.daemons.console.site import CLUSTER, Browser, settings_of
from tests.daemons.console.site import patient as patient  # a fixture
from tests.interop import peers
from tests.interop.conftest import JavaCluster

# The pages are the same for both releases; the tests of the collector and the pages cover both.
EARLIER, NEWEST = peers.SERVER_RELEASES
pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(600),
    pytest.mark.parametrize(
        "java_cluster", [pytest.param(EARLIER, marks=pytest.mark.long), NEWEST], indirect=True
    ),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    browser = Chromium()
    try:
        yield browser
    finally:
        browser.close()


@dataclass
class JavaSite(Browser):
    """A console of a Java cluster."""

    console: Console = field(kw_only=True)

    @property
    def here(self) -> Cluster:
        return self.console.clusters[CLUSTER]


@asynccontextmanager
async def site_at(java: JavaCluster, folder: Path) -> AsyncIterator[tuple[JavaSite, Session]]:
    source = ClusterSource(CLUSTER, java.namesrv, ClientOptions(timeout=30.0))
    async with (
        filled_at(java.namesrv, java.broker, java.broker_name, "browser") as session,
        Console(settings_of(folder), [source]) as console,
    ):
        site = JavaSite("127.0.0.1", console.port, console=console)
        await all_seen(site)
        yield site, session


def test_every_page_shows_a_java_cluster(
    java_cluster: JavaCluster, chromium: Chromium, tmp_path: Path
) -> None:
    problems: list[str] = []

    async def scenario() -> list[str]:
        visited = []
        async with site_at(java_cluster, tmp_path) as (site, _):
            async for path in walk(site, chromium):
                visited.append(path)
                problems.extend(f"{path}: {x}" for x in await complete(chromium, site.origin))
        return [path for path in menu() if path not in visited]

    missed = asyncio.run(scenario())
    assert not problems, "\n".join(problems)
    assert missed == []


def test_a_java_cluster_can_be_changed(
    java_cluster: JavaCluster, chromium: Chromium, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with site_at(java_cluster, tmp_path) as (site, session):
            cluster = f"{site.origin}/c/{CLUSTER}"
            await _create_and_send(chromium, cluster)
            await chromium.open(f"{cluster}/groups/{GROUP}/reset?topic={TOPIC}")
            await chromium.fill({"topic": TOPIC, "to": "earliest"})
            await _do(chromium)
            await chromium.open(f"{cluster}/dead-letters/{LETTERS}")
            await chromium.run("document.querySelector('main input[type=checkbox]').click()")
            await chromium.follow("Resend the selected ones")
            await chromium.follow("Run")
            assert "1 resent, 0 resent earlier, 0 failed" in await chromium.text("main")
            await chromium.open(f"{cluster}/topics/Lamps/delete")
            await chromium.follow("Preview")
            await chromium.fill({"typed": "Lamps"})
            await chromium.follow("Run")
            assert "Lamps" not in (await Admin(session).topic_list()).topic_list

    asyncio.run(scenario())


async def _create_and_send(chromium: Chromium, cluster: str) -> None:
    await chromium.open(f"{cluster}/new/topic")
    await chromium.fill({"topic": "Lamps"})
    await _do(chromium)
    await chromium.open(f"{cluster}/send/Lamps")
    await chromium.fill({"tag": "desk", "keys": "lamp-1", "body": '{"watt": 40}'})
    await _do(chromium)
    async with asyncio.timeout(SECONDS):  # Java fills its queues some time after its response
        while '{"watt": 40}' not in await chromium.text("main"):
            await chromium.open(f"{cluster}/messages/Lamps?tag=desk")


async def _do(chromium: Chromium) -> None:
    await chromium.follow("Preview")
    await chromium.follow("Run")
    assert "done" in await chromium.text("main")
