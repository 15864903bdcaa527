"""Settings of the collector and its history. None of them has a Java name."""

from dataclasses import dataclass

from mq.daemons.config import ConfigError, Section, setting
from mq.daemons.console.collector.limits import Limits, networks
from mq.daemons.console.collector.paced import COLLECTOR_RATE
from mq.daemons.console.history.history import MOST_SERIES


@dataclass(frozen=True)
class CollectorConfig(Section):
    """How clusters are polled in the background, and what is kept."""

    history_file: str = setting("", "database of rates and lags; empty: history.sqlite in dataPath")
    history_series_max: int = setting(
        MOST_SERIES, "maximum number of series; each is one figure of a broker, topic or group"
    )
    broker_networks: str = setting(
        "",
        "networks, separated by commas, of the brokers to connect to: any client that may register "
        "at a name server chooses addresses; empty: any",
    )
    requests_per_second_max: int = setting(
        int(COLLECTOR_RATE), "maximum number of requests per second to one broker or name server"
    )
    checkup_minutes: int = setting(10, "interval between runs of mq doctor", unit="min")

    @property
    def limits(self) -> Limits:
        """The limits of data from peers."""
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
