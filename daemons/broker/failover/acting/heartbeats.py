"""Heartbeats: let name servers notice within seconds that a broker of the replica set is down.

The registration tells them how long to wait for one (brokerNotActiveTimeoutMillis). A name server
of 4.9 knows neither heartbeats nor that time, and waits for two minutes.
"""

import asyncio
import contextlib

from mq.client.errors import MQError
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.name_servers.name_server_link import NameServerLink
from mq.daemons.broker.name_servers.registration import Registration
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.controller import BrokerHeartbeatRequestHeader


class Heartbeats:
    """Sends heartbeats to the name servers with which the broker is registered: `run`, until
    cancelled.
    """

    def __init__(self, settings: BrokerSettings, registration: Registration) -> None:
        self._settings = settings
        self._registration = registration

    async def run(self) -> None:
        broker = self._settings.broker
        fields = BrokerHeartbeatRequestHeader(
            cluster_name=broker.broker_cluster_name,
            broker_addr=self._registration.address,
            broker_name=broker.broker_name,
        ).encode()
        while True:
            await asyncio.sleep(broker.broker_heartbeat_interval / 1000)
            await asyncio.gather(*(self._send(link, fields) for link in self._registration.links()))

    async def _send(self, link: NameServerLink, fields: dict[str, str]) -> None:
        if link.answers and link.session.is_connected(link.address):
            with contextlib.suppress(MQError):  # the link notices the end of the connection itself
                await link.session.invoke_oneway(
                    link.address, Command(RequestCode.BROKER_HEARTBEAT, dict(fields))
                )
