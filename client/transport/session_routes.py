"""The route cache of a session: serves routes at once, refreshes them in the background, and
fetches each topic only once at a time.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from mq.client.errors import ClientError, ConnectError, MQError, RequestTimeout
from mq.client.machine import clock
from mq.client.options import ClientKeywords, ClientOptions
from mq.client.routing import route_changes
from mq.client.routing.address_server import ADDRESS_SERVER_SECONDS, fetch_text
from mq.client.routing.route_changes import RouteChanges
from mq.client.transport.caller import ROUTE_RETRY_SECONDS, ROUTE_SECONDS, Caller, route_request
from mq.protocol.command import Command

if TYPE_CHECKING:
    from mq.protocol.bodies import TopicRouteData

log = logging.getLogger(__name__)

T = TypeVar("T")

# If a name server has not answered after this time, the next one is queried, too.
HEDGE_SECONDS = 0.3


class RoutingCaller(Caller):
    """The part of an event-loop session that manages routes and name servers.

    Only the first call for a topic waits for a name server that hangs.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        options: ClientOptions | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """See `Caller`."""
        super().__init__(namesrv, options, **keywords)
        self.route_interval = self.options.intervals.routes
        self._fetching: dict[str, asyncio.Task[TopicRouteData]] = {}
        self._asked: dict[str, float] = {}  # when each route was last fetched
        # while a fetch was in flight, whose answer may be too old
        self._outdated: dict[str, None] = {}
        self._due: dict[str, asyncio.TimerHandle] = {}  # routes scheduled to be fetched soon
        # scheduled checks for brokers that left routes
        self._checks: dict[str, asyncio.TimerHandle] = {}
        self.route_changes = RouteChanges()
        self._loop: asyncio.AbstractEventLoop | None = None  # set while the session is open

    @abstractmethod
    def keep_task(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine as a task that ends with the session."""

    @abstractmethod
    def _ask(self, address: str, command: Command) -> "asyncio.Future[Command]":
        """Send a request without waiting."""

    @abstractmethod
    def _reaches(self, address: str) -> bool:
        """Whether the connection to an address is established."""

    def _stop_refreshing(self) -> None:
        """Cancel scheduled fetches."""
        for due in (*self._due.values(), *self._checks.values()):
            due.cancel()
        self._due.clear()
        self._checks.clear()

    async def route(self, topic: str, *, max_age: float = ROUTE_SECONDS) -> "TopicRouteData":
        """Return the route of `topic`: the cached one at once, however old, while it is refreshed.

        So only the first call for a topic waits for a name server that hangs. With a `max_age` of 0
        the route is fetched and waited for.

        Raises:
            RouteNotFound: the name server does not know the topic.
            ConnectError, RequestTimeout: no name server answers and no route is cached.
            ClientError: the session was closed meanwhile.
        """
        known = self.current_route(topic, max_age=max_age) if max_age > 0 else None
        if known is None and max_age > 0 and topic in self._fetching:
            await self._fetch_ended(topic)
            known = self.known_route(topic)
        return await self.fresh_route(topic) if known is None else known

    def current_route(
        self, topic: str, *, max_age: float = ROUTE_SECONDS
    ) -> "TopicRouteData | None":
        """Return the cached route of `topic` or None; refreshes it if it is older than
        `max_age`.
        """
        known = self._routes.get(topic)
        if known is None:
            return None
        if clock.monotonic() >= known[1] + max_age:
            self.refresh_route(topic)
        return known[0]

    def route_asked(self, topic: str) -> float:
        """Return when a route was last fetched, by the monotonic clock; -inf if never."""
        return self._asked.get(topic, -inf)

    def refresh_route(self, topic: str) -> None:
        """Fetch a route in the background, with a delay if it was fetched just before."""
        loop = self._loop
        if loop is None or topic in self._fetching or topic in self._due:
            return
        pause = self.route_asked(topic) + ROUTE_RETRY_SECONDS - clock.monotonic()
        if pause <= 0:
            self._fetch(topic)
        else:
            self._due[topic] = loop.call_later(pause, self._fetch, topic)

    async def fresh_route(self, topic: str) -> "TopicRouteData":
        """Fetch the route of `topic` from a name server, together with all concurrent callers.

        A request that was sent before this call does not count: its answer may be older than the
        change that the caller made or observed. Raises what `route` raises.
        """
        if topic in self._fetching:
            await self._fetch_ended(topic)
        fetching = self._fetch(topic)  # started by the first of the waiting callers
        # not awaited directly: a cancelled caller must not cancel it
        await asyncio.wait([fetching])
        if fetching.cancelled():
            raise ClientError("the session was closed")
        return fetching.result()

    async def _fetch_ended(self, topic: str) -> None:
        """Wait for a fetch in flight. Raises ClientError, and the error of an unanswered fetch."""
        fetching = self._fetching[topic]
        await asyncio.wait([fetching])
        if fetching.cancelled():
            raise ClientError("the session was closed")
        if isinstance(error := fetching.exception(), ConnectError | RequestTimeout):
            raise error

    def _fetch(self, topic: str) -> "asyncio.Task[TopicRouteData]":
        fetching = self._fetching.get(topic)
        if fetching is None:
            due = self._due.pop(topic, None)
            if due is not None:
                due.cancel()
            self._asked[topic] = clock.monotonic()
            fetching = self._fetching[topic] = self.keep_task(self._fetch_route(topic))
            fetching.add_done_callback(lambda task: self._fetched(topic, task))
        return fetching

    async def _fetch_route(self, topic: str) -> "TopicRouteData":
        former = self.known_route(topic)
        route = await super()._fetch_route(topic)
        if former is not None:
            kept = self.route_changes.compare(topic, former, route, self._reaches)
            self._routes[topic] = kept, clock.monotonic()
        return route  # explicit callers get the route as fetched

    def _check_lost(self, topic: str) -> None:
        del self._checks[topic]
        self._fetch(topic)

    def _fetched(self, topic: str, task: "asyncio.Task[TopicRouteData]") -> None:
        self._fetching.pop(topic, None)
        if topic in self._outdated:
            del self._outdated[topic]
            self.outdate_route(topic)
        if (
            self._loop is not None
            and topic not in self._checks
            and self.route_changes.misses(topic)
        ):
            seconds = route_changes.CHECK_SECONDS
            self._checks[topic] = self._loop.call_later(seconds, self._check_lost, topic)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if topic not in self._routes:
            self._asked.pop(topic, None)  # topics that do not exist are not tracked
        elif isinstance(error, MQError):
            log.debug("keeping the known route of %s: %s", topic, error)
        else:
            log.error("the route of %s cannot be refreshed", topic, exc_info=error)

    def outdate_route(self, topic: str) -> None:
        super().outdate_route(topic)
        if topic in self._fetching:
            self._outdated[topic] = None
        elif topic in self._routes:
            self.refresh_route(topic)

    async def _ask_for_route(self, topic: str) -> tuple[Command, str]:
        """Return the first answer: if a name server hangs, others are queried soon."""
        addresses = await self.find_name_servers()
        start = self._chosen_name_server
        untried = [*addresses[start:], *addresses[:start]]
        asked: dict[asyncio.Future[Command], str] = {}
        last: MQError = ClientError("no name server given")
        try:
            while untried or asked:
                if untried:
                    address = untried.pop(0)
                    asked[self._ask(address, route_request(topic))] = address
                done, _ = await asyncio.wait(
                    asked,
                    timeout=HEDGE_SECONDS if untried else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for answer in done:
                    address = asked.pop(answer)
                    try:
                        response = answer.result()
                    except (ConnectError, RequestTimeout) as error:
                        last = error
                        continue
                    self._answered(address)
                    return response, address
        finally:
            for answer in asked:
                answer.cancel()
        raise last

    async def _read_address_server(self, url: str) -> str:
        return await asyncio.to_thread(fetch_text, url)

    async def _refresh_name_servers(self) -> None:
        while True:
            await asyncio.sleep(ADDRESS_SERVER_SECONDS)
            before = self.name_servers
            try:
                await self.ask_address_server()
            except MQError as error:
                log.warning("keeping the known name servers: %s", error)
            if self.name_servers != before:
                log.info("name servers: %s", ", ".join(self.name_servers))

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(self.route_interval)
            for topic, (_, fetched) in list(self._routes.items()):
                if fetched == inf:  # a route shared with another topic
                    continue
                # A route that cannot be fetched stays cached; callers that need it see the error.
                try:
                    await self.fresh_route(topic)
                except (ConnectError, RequestTimeout):
                    break  # the others cannot be fetched either
                except MQError:
                    continue
                except Exception:
                    log.exception("the route of %s cannot be refreshed", topic)
