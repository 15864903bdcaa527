"""Every route of every page, for every role, read-only or not: compared with `needs`."""

import asyncio
from itertools import product

import pytest

from mq.daemons.console.pages import all_routes
from mq.daemons.console.route import ROLES, Change, Permission, Stream
from tests.daemons.console.sample_pages import ROUTES
from tests.daemons.console.site import Browser, Consoles, account

ROLE_NAMES = [*ROLES, "read-only", "nobody", "elsewhere"]


def address(path: str) -> str:
    """Return an address that matches a path: its parameters do not affect permissions."""
    return path.replace("{", "").replace("}", "").replace(":", "")


def expected(needs: Permission, role: str, *, change: bool, shut: bool) -> bool:
    """Return whether this role has access. From the requirements, not from the code."""
    has = {
        "viewer": 1,
        "reader": 2,
        "operator": 3,
        "administrator": 4,
        "read-only": 2,  # of an administrator of a read-only cluster
        "nobody": 0,
        "elsewhere": 0,
    }[role]
    if change and shut:
        return False
    if needs > 2 and shut and change:
        return False
    return has >= needs


@pytest.mark.parametrize("shut", [False, True])
def test_each_route_is_open_to_whom_it_is_for_and_shut_to_all_others(
    console: Consoles, shut: bool
) -> None:
    users = {
        **{role: account(role, role) for role in ROLES},
        "read-only": account("read-only", read_only=True),
        "elsewhere": account("elsewhere", roles={"another": "administrator"}),
    }
    routes = (*all_routes(), *ROUTES)
    assert len(routes) > 5

    async def main() -> None:
        async with console(
            users=users, routes=ROUTES, read_only=["test"] if shut else [], broker={}
        ) as site:
            browsers: dict[str, Browser] = {}
            for role in ROLE_NAMES:
                browsers[role] = site.browser()
                if role != "nobody":
                    await browsers[role].log_in(role)
            for route, role in product(routes, ROLE_NAMES):
                await tried(browsers[role], route, role, shut)

    asyncio.run(main())


async def tried(browser: Browser, route: object, role: str, shut: bool) -> None:
    """Request a route in each possible way, and compare the answers with `expected`."""
    path = address(route.path)  # type: ignore[attr-defined]
    change = isinstance(route, Change)
    open_to = expected(route.needs, role, change=change, shut=shut)  # type: ignore[attr-defined]
    refused = {303, 401, 403, 404} if role in ("nobody", "elsewhere") else {403}
    if isinstance(route, Stream):
        async with browser.stream(path) as events:
            statuses = [events.status]
    else:
        statuses = [(await browser.get(path)).status]
        if change:
            statuses.append((await browser.api(path, {})).status)
            # A program without a token and a form without one are both refused.
            assert statuses.pop() in (401, 403)
            assert (await browser.post(path, {})).status in (401, 403)
        else:
            statuses.append((await browser.api(path)).status)
    for status in statuses:
        told = f"{path} for {role}: {status}"
        assert (status not in refused) if open_to else (status in refused), told
