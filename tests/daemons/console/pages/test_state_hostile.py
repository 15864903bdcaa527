"""Names of topics, groups, clients and brokers, and texts of brokers, are escaped on every page."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from mq.client.operations.doctor.finding import Finding, Severity
from mq.daemons.console.collector.snapshot import (
    BrokerRow,
    ClusterRow,
    ConsumerRow,
    GroupRow,
    NameServerRow,
    Problem,
    ProducerRow,
    Snapshot,
    TopicRow,
)
from tests.daemons.console.site import Consoles, Site
from tests.daemons.tube.loops import in_loop

HOSTILE = [
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}{% raw %}",
    "'; -- \x00\x1b[31m\u202egnp.exe",
    "\U0001f600</script><script>alert(1)</script>",
    "javascript:alert(1)",
]


def _snapshot(bad: str) -> Snapshot:
    return Snapshot(
        at=1,
        name_servers=(NameServerRow(bad, 1, bad, 1.0, 1, (bad,), (bad,)),),
        clusters=(ClusterRow(bad, (bad,), problem=bad),),
        brokers=(
            replace(
                BrokerRow(bad, bad, 0, bad, "master", seen=1, problem=bad, version=bad),
                disk_used=0.95,
            ),
        ),
        topics=(TopicRow(bad, "normal", 8, 8, (bad,), 6, in_rate=1.0),),
        groups=(GroupRow(bad, lag=5),),
        producers=(ProducerRow(bad, bad, bad, bad, bad, (bad,), 1),),
        consumers=(ConsumerRow(bad, bad, bad, bad, bad, (bad,), 1),),
        problems=(Problem(bad, bad, 1),),
        runtimes={bad: {bad: bad}},
    )


def _collector(bad: str) -> Any:
    """Return the text for one of which all is known."""
    found = Finding("lag", Severity.CRITICAL, bad, bad, bad)
    return SimpleNamespace(snapshot=_snapshot(bad), findings=(found,), findings_at=1)


async def _pages(site: Site, bad: str) -> None:
    name = quote(bad, safe="")
    paths = ("/", "/brokers", f"/brokers/{name}/0", "/name-servers", f"/name-servers/{name}",
             "/clients", f"/clients?q={name}")  # fmt: skip
    for path in paths:
        page = await site.get(path)
        assert page.status == 200, path
        tags = page.soup.find_all()
        assert not page.soup.find_all("img")
        assert all("alert(1)" not in (script.string or "") for script in page.soup("script"))
        assert not [tag for tag in tags if any(key.startswith("on") for key in tag.attrs)]
        assert not page.soup.find_all(style=True)
        for link in page.soup.find_all("a", href=True):
            assert str(link["href"]).startswith(("/", "#")), path
        assert "49{% raw" not in page.text
        # The values of fields contain the input unchanged.
        said = [page.soup.get_text()]
        said += [str(v) for tag in tags for key, v in tag.attrs.items() if key != "value"]
        assert not [text for text in said if "\x00" in text or "\u202e" in text]


@pytest.mark.parametrize("bad", HOSTILE)
def test_whatever_peers_say_is_text(console: Consoles, bad: str) -> None:
    @in_loop
    async def main() -> None:
        async with console() as site:
            site.here.collector = _collector(bad)
            await _pages(site, bad)

    main()
