"""docs/differences.md states the real behaviour of Java's brokers and ours."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from tests.interop import peers
from tests.interop.differences import PROBES, Site
from tests.interop.jvm import require_java
from tests.interop.tools import our_daemons

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

DOCUMENT = Path(__file__).parents[2] / "docs" / "differences.md"
SETTINGS = {"enablePropertyFilter": "true"}


def rows() -> dict[str, list[str]]:
    """The cells of each row of the table about brokers, by its first cell."""
    found = {}
    for line in DOCUMENT.read_text("utf-8").splitlines():
        if line.startswith("| ") and not line.startswith(("| ---", "| Behavior")):
            first, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
            found[first] = cells
    return found


def test_each_row_has_a_probe() -> None:
    assert rows().keys() == PROBES.keys()
    # the last cell is the reason
    assert all(len(cells) == 4 and cells[3] for cells in rows().values())


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, str]]]:
    """The name server and broker of Java 4.9.7, of 5.5.0 and ours."""
    require_java()
    tmp = tmp_path_factory.mktemp("differences")
    with ExitStack() as stack:
        found = []
        for release in peers.SERVER_RELEASES:
            server = stack.enter_context(peers.JavaNameServer(release, tmp))
            broker = peers.JavaBroker(release, tmp, server.address, SETTINGS)
            found.append((server.address, stack.enter_context(broker).address))
        found.append(stack.enter_context(our_daemons(tmp, SETTINGS)))
        yield found


@pytest.mark.parametrize("behavior", PROBES)
def test_each_broker_behaves_as_the_table_says(behavior: str, sites: list[tuple[str, str]]) -> None:
    async def observe(name_server: str, broker: str) -> str:
        async with Session(name_server) as session:
            return await PROBES[behavior](Site(session, name_server, broker))

    async def main() -> list[str]:
        return await asyncio.gather(*(observe(*addresses) for addresses in sites))

    assert asyncio.run(main()) == rows()[behavior][:3]
