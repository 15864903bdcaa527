"""TubeMQ's masters, brokers and clients in seeds of their own (docs/testing.md)."""

from tests.simulation.tube.scenario import TubeScenario as TubeScenario
from tests.simulation.tube.scenario import has_tube as has_tube
