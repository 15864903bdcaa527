"""Settings of what the console collects and keeps. None of them has a Java name."""

from dataclasses import dataclass

from mq.daemons.config import ConfigError, Section, setting
from mq.daemons.console.collector.limits import Limits, networks
from mq.daemons.console.collector.paced import COLLECTOR_RATE
from mq.daemons.console.history.history import MOST_SERIES


@dataclass(frozen=True)
class CollectorConfig(Section):
    """How clusters are looked at in the background, and what is kept of it."""

    history_file: str = setting("", "file of rates and lags; empty: history.sqlite in dataPath")
    history_series_max: int = setting(
        MOST_SERIES, "series that are kept, each of one figure of a broker, topic or group"
    )
    broker_networks: str = setting(
        "",
        "networks, separated by a comma, that brokers have to be in to be connected to: whoever "
        "may register at a name server chooses addresses; empty: any",
    )
    requests_per_second_max: int = setting(
        int(COLLECTOR_RATE), "requests to one broker or name server, however much is watched"
    )
    checkup_minutes: int = setting(10, "pause between two runs of mq doctor", unit="min")

    @property
    def limits(self) -> Limits:
        """What peers can make the console hold."""
        return Limits(networks=networks(self.broker_networks))

    def check(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ConfigError: names the setting.
        """
        try:
            networks(self.broker_networks)
        except ValueError as error:
            raise ConfigError(f"brokerNetworks={self.broker_networks}: {error}") from None
        for name, value, least, most in (
            ("historySeriesMax", self.history_series_max, 0, 1_000_000),
            ("requestsPerSecondMax", self.requests_per_second_max, 1, 1000),
            ("checkupMinutes", self.checkup_minutes, 1, 10_080),
        ):
            if not least <= value <= most:
                raise ConfigError(f"{name}={value}: expected {least} to {most}")
