"""What must hold, told by a model far simpler than the system: sets of messages and what was said.

Workloads tell the model what they did and were answered; at the end it is held against what the
brokers hold. What cannot be known (a send without an answer may have been stored, or not) is
allowed either way, but never twice in one place.
"""

from tests.simulation.model.groups import Group as Group
from tests.simulation.model.messages import Found as Found
from tests.simulation.model.messages import Model as Model
from tests.simulation.model.messages import Place as Place
from tests.simulation.model.messages import Sent as Sent
from tests.simulation.model.pops import Pop as Pop
from tests.simulation.model.pops import Pops as Pops
