"""Sessions of the broker's own: to name servers, controllers and other brokers (BrokerOuterAPI).

All are made here, so that each has the TLS, the key and the buffers that the settings name.
"""

import logging
from collections.abc import Sequence
from typing import Unpack

from mq.client.credentials import AccessKey
from mq.client.options import ClientKeywords
from mq.client.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.config import ConfigError

log = logging.getLogger(__name__)


class PeerSessions:
    """Makes sessions with what the settings said when this was made.

    Raises ConfigError for a key file or certificates that cannot be used.
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
        """A session that is not open yet; see `Session` for what can be said of it."""
        keywords["tls"], keywords["credentials"] = self._tls, self.key
        buffers = self._settings.client.buffers()
        return Session(addresses, dead_after=dead_after, buffers=buffers, **keywords)

    def connect_timeout(self, limit: float) -> float:
        """connectTimeoutMillis in seconds, but no more than a limit."""
        return min(self._settings.client.connect_timeout_millis / 1000, limit)

    def reload_key(self, peers: str) -> bool:
        """Read namesrvAclFile again, for the sessions to come; those there are get `key` from whom
        they belong to. One that cannot be used leaves the key as it was: False."""
        try:
            self.key = self._settings.name_server_key()
        except ConfigError as error:
            log.error("requests to %s are signed as before: %s", peers, error)
            return False
        return True
