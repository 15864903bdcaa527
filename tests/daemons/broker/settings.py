"""Settings of a broker of which there are only some parts."""

from typing import Any

from mq.daemons.broker.config import BrokerSettings


def broker_settings(**changes: Any) -> BrokerSettings:
    """Defaults but for these attributes of the broker's section; a test may change it later."""
    settings = BrokerSettings()
    settings.broker = settings.broker.replace(**changes)
    return settings
