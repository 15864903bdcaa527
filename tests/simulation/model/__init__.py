"""The invariants, as a model far simpler than the system: sets of messages and answers.

Workloads report their actions and the answers to the model; at the end it is compared with the
content of the brokers. An unknown result (a send without an answer may have been stored or not) is
allowed either way, but never twice in one place.
"""

from tests.simulation.model.groups import Group as Group
from tests.simulation.model.messages import Found as Found
from tests.simulation.model.messages import Model as Model
from tests.simulation.model.messages import Place as Place
from tests.simulation.model.messages import Sent as Sent
from tests.simulation.model.pops import Pop as Pop
from tests.simulation.model.pops import Pops as Pops
