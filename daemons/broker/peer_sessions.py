"""The broker's own sessions to name servers, controllers and other brokers (BrokerOuterAPI).

All are made here, so that each has the configured TLS, key and buffers.
"""

import logging
from collections.abc import Sequence
from typing import Unpack

from mq.client.credentials import AccessKey
from mq.client.options import ClientKeywords
from mq.client.transport.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.config import ConfigError

log = logging.getLogger(__name__)


class PeerSessions:
    """Makes sessions with the settings at its creation.

    Raises ConfigError for an invalid key file or certificate.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._tls = settings.name_server_tls()
        self.key: AccessKey | None = settings.name_server_key()

    def session(
        self,
        addresses: str | Sequence[str],
        *,
        dead_after: float | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> Session:
        """A session that is not open yet; see `Session` for the keywords."""
        keywords["tls"], keywords["credentials"] = self._tls, self.key
        buffers = self._settings.client.buffers()
        return Session(addresses, dead_after=dead_after, buffers=buffers, **keywords)

    def connect_timeout(self, limit: float) -> float:
        """connectTimeoutMillis in seconds, limited."""
        return min(self._settings.client.connect_timeout_millis / 1000, limit)

    def reload_key(self, peers: str) -> bool:
        """Read namesrvAclFile again, for new sessions; owners pass `key` to existing ones. Returns
        False if the file is invalid; the key does not change then.
        """
        try:
            self.key = self._settings.name_server_key()
        except ConfigError as error:
            log.error("keeping the old key for requests to %s: %s", peers, error)
            return False
        return True
