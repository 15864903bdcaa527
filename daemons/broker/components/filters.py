"""Filters component: registered filter servers, and the filter servers that this broker starts."""

import asyncio
import logging
from dataclasses import dataclass

from mq.client.credentials import AccessKey
from mq.client.machine import clock
from mq.daemons.broker.admin.filter_servers import FilterServers
from mq.daemons.broker.component import Metrics, Works
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.name_servers.registration import Registration
from mq.daemons.config import is_secret
from mq.daemons.dispatch import Handler
from mq.daemons.filtersrv.config import FiltersrvSettings
from mq.daemons.host_addresses import EVERYWHERE, LOOPBACK
from mq.daemons.instances.command import this_mq
from mq.daemons.instances.helpers import Helpers
from mq.daemons.metrics import gauge
from mq.daemons.request_codes import handlers_of
from mq.daemons.tls_config import TlsMode

log = logging.getLogger(__name__)

SCAN_SECONDS = 10.0
FIRST_START_SECONDS = 5.0
START_SECONDS = 30.0
# A filter server that has not registered for this many seconds is replaced. If only its connection
# has broken, it is not: it will register again, and keeps its classes.
MUTE_SECONDS = 60.0

# Settings of the broker that its filter servers must not use.
_OF_THE_BROKER = frozenset(("listenPort", "metricsPort", "statsdAddress", "namesrvAddr"))


@dataclass(frozen=True, slots=True)
class Filters:
    """The filter servers of a broker."""

    settings: BrokerSettings
    servers: FilterServers
    helpers: Helpers[AccessKey]

    def works(self) -> Works:
        yield self._expire, "expiry of filter servers"
        if self.settings.broker.filter_server_nums:
            yield self._keep_running, "filter servers"

    def handlers(self) -> dict[int, Handler]:
        return handlers_of(self.servers)

    def metrics(self) -> Metrics:
        count = len(self.servers.addresses)
        yield gauge("mq_filter_servers", "Registered filter servers.", count)

    async def close(self) -> None:
        """End the processes."""
        await self.helpers.close()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(SCAN_SECONDS)
            self.servers.expire()

    async def _keep_running(self) -> None:
        """Start missing filter servers every 30 s, and sooner when one has ended."""
        await asyncio.sleep(FIRST_START_SECONDS)
        while True:
            self.helpers.ended.clear()
            await self._start_missing()
            try:
                async with asyncio.timeout(START_SECONDS):
                    await self.helpers.ended.wait()
                await asyncio.sleep(self.helpers.pause)
            except TimeoutError:
                pass

    async def _start_missing(self) -> None:
        oldest = clock.monotonic() - MUTE_SECONDS
        for helper in list(self.helpers.running):
            if max(helper.began, self.servers.registered_at(helper.ticket) or 0.0) < oldest:
                log.error("%s does not register; replacing it", helper.name)
                self.helpers.kill(helper)
        there = self.servers.started_elsewhere + len(self.helpers.running)
        for _ in range(self.settings.broker.filter_server_nums - there):
            key = self.servers.issue_key()
            if not await self.helpers.start(key, {KEY_VARIABLE: _text(key)}):
                return


# The variable is read by mq.daemons.filtersrv.app, which a broker need not import.
KEY_VARIABLE = "MQ_FILTER_SERVER_KEY"


def _text(key: AccessKey) -> str:
    return f"{key.access_key}:{key.secret_key}"


def make_filters(
    settings: BrokerSettings, servers: FilterServers, registration: Registration, port: int
) -> Filters:
    """Make the component of a broker that listens on this port."""
    registration.filter_servers = lambda: servers.addresses
    servers.on_change.append(registration.filter_servers_changed)
    return Filters(
        settings,
        servers,
        Helpers("filtersrv", filter_server_command(settings, port), servers.revoke),
    )


def filter_server_command(settings: BrokerSettings, port: int) -> list[str]:
    """The command line of a filter server of this broker: its file, and settings from elsewhere.
    Secrets are never on it, so they must be in the file.
    """
    words = [*this_mq(), "filtersrv"]
    if settings.path is not None and not settings.section:
        words += ["-c", str(settings.path)]
    if settings.broker.namesrv_addr:
        words += ["-n", settings.broker.namesrv_addr]
    host = settings.listen_host
    host = LOOPBACK if host in (EVERYWHERE, "::", "") else host
    wanted = _known(settings) | {
        "connectWhichBroker": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
    }
    if settings.tls.mode is TlsMode.enforcing:
        wanted["tls.enable"] = "true"
    for name, value in wanted.items():
        words += ["--set", f"{name}={value}"]
    return words


def _known(settings: BrokerSettings) -> dict[str, str]:
    """The broker's settings that a filter server has, too: those in force, and those meant for it
    alone.
    """
    theirs = FiltersrvSettings()
    names = {name for section in theirs.sections for name in section.settings()}
    fresh = {name: text for section in theirs.sections for name, text in section.properties()}
    own = {name: text for section in settings.sections for name, text in section.properties()}
    found = {
        name: text
        for name, text in {**own, **settings.extra}.items()
        if name in names - _OF_THE_BROKER and text != fresh[name] and not is_secret(name)
    }
    found.setdefault("filterServerIP", settings.broker.broker_ip1)
    return found
