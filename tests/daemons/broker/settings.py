"""Settings for some components of a broker."""

from typing import Any

from mq.daemons.broker.config import BrokerSettings


def broker_settings(**changes: Any) -> BrokerSettings:
    """Defaults except for these attributes of the broker's section; a test may change it later."""
    settings = BrokerSettings()
    settings.broker = settings.broker.replace(**changes)
    return settings
