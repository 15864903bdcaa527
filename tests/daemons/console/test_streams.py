"""Streams of events: their number, and their end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from mq.client.machine import clock
from mq.daemons.console import streams
from mq.daemons.console.call import Call
from mq.daemons.console.route import Event, Permission, Stream
from mq.daemons.console.security import accounts
from tests.daemons.console.sample_pages import ROUTES
from tests.daemons.console.site import Consoles, account


def test_a_stream_sends_events_and_says_that_it_has_ended(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site, site.stream("/count?to=2") as events:
            assert events.status == 200
            assert [await events.next() for _ in range(3)] == [
                ("number", {"number": 0}),
                ("number", {"number": 1}),
                ("ended", {"reason": "end"}),
            ]

    asyncio.run(main())


def test_a_user_follows_four_at_a_time_and_leaving_makes_room(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            from contextlib import AsyncExitStack

            async with AsyncExitStack() as open_ones:
                for _ in range(streams.MOST_OF_USER):
                    events = await open_ones.enter_async_context(site.stream("/count"))
                    await events.next()
                assert site.console.shell.active == 0  # they do not count as requests
                async with site.stream("/count") as one_more:
                    assert one_more.status == 429
            while site.console.frame.streams.open:  # noqa: ASYNC110 - the server sees it later
                await asyncio.sleep(0)
            async with site.stream("/count") as events:
                assert events.status == 200

    asyncio.run(main())


def test_stopping_ends_the_streams_that_are_open(console: Consoles) -> None:
    async def main() -> float:
        async with console(routes=ROUTES) as site:
            async with site.stream("/count") as events:
                await events.next()
                await events.next()
                started = clock.monotonic()
                await site.console.__aexit__()
                took = clock.monotonic() - started
                with pytest.raises(EOFError):
                    await events.next()
        return took

    assert asyncio.run(main()) < 30  # not for as long as the stream would have lasted


def test_a_stream_ends_with_its_session(console: Consoles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PING_SECONDS", 0.01)

    async def main() -> None:
        async with console(routes=ROUTES, users={"ann": "reader"}, login="ann") as site:
            async with site.stream("/count") as events:
                await events.next()
                await events.next()
                with accounts.changing(site.console.settings.console.users_path) as found:
                    found.users.clear()
                site.console.reload()
                assert await events.next() == ("ended", {"reason": "session"})

    asyncio.run(main())


def test_no_event_can_end_its_own_line() -> None:
    written = streams.written(Event("a\nb: c", {"text": "1\n\nevent: x\r"}))
    assert written == b'event: abc\ndata: {"text":"1\\n\\nevent: x\\r"}\n\n'


def test_what_comes_after_the_role_was_lost_is_not_shown(console: Consoles) -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def events(call: Call) -> AsyncIterator[Event]:
            yield Event("first", {})
            await go_on.wait()
            yield Event("secret", {})

        route = Stream("/late", events, Permission.READ, "Late")
        async with console(routes=(route,), users={"ann": "reader"}, login="ann") as site:
            async with site.stream("/late") as found:
                await found.next()
                with accounts.changing(site.console.settings.console.users_path) as changed:
                    changed.users.clear()
                site.console.reload()
                go_on.set()
                assert await found.next() == ("ended", {"reason": "session"})

    asyncio.run(main())


def test_another_token_of_the_same_name_does_not_go_on_with_a_stream(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PING_SECONDS", 0.01)

    async def main() -> None:
        async with console(routes=ROUTES, users={"ann": "reader"}) as site:
            path = site.console.settings.console.users_path
            token, kept = accounts.new_token()
            with accounts.changing(path) as found:
                found.tokens["ci"] = replace(account("ci", "reader"), secret=kept)
            site.console.reload()
            reader, writer = await asyncio.open_connection(site.host, site.port)
            writer.write(
                f"GET /api/v1/clusters/test/count HTTP/1.1\r\nHost: {site.host}:{site.port}\r\n"
                f"Authorization: Bearer {token}\r\n\r\n".encode()
            )
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            with accounts.changing(path) as found:
                found.tokens["ci"] = replace(found.tokens["ci"], secret=accounts.new_token()[1])
            site.console.reload()
            await reader.readuntil(b'event: ended\ndata: {"reason":"session"}')
            writer.close()

    asyncio.run(main())


def test_a_stream_that_does_not_end_does_not_keep_the_console(console: Consoles) -> None:
    async def main() -> None:
        ending = asyncio.Event()

        async def events(call: Call) -> AsyncIterator[Event]:
            try:
                yield Event("first", {})
                await asyncio.Event().wait()
            finally:
                ending.set()
                await asyncio.Event().wait()  # as with a broker that does not answer

        route = Stream("/hangs", events, Permission.READ, "Hangs")
        async with console(routes=(route,)) as site, asyncio.timeout(60):
            async with site.stream("/hangs") as found:
                await found.next()
                await site.console.__aexit__()
            assert ending.is_set()

    asyncio.run(main())
