"""The clients of a simulation. Each workload reports requests and answers to the model."""

from tests.simulation.workloads.context import Context as Context
from tests.simulation.workloads.context import Workload as Workload
from tests.simulation.workloads.context import watch_offsets as watch_offsets
from tests.simulation.workloads.context import watch_stops as watch_stops
from tests.simulation.workloads.mix import choose as choose
from tests.simulation.workloads.producing import create as create
from tests.simulation.workloads.reading import look as look
