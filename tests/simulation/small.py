"""Constants of the product that would hide defects in small stores, made small.

Recovery reads the last 128 MiB again, which is all of a store here. A round of writing queues
pauses after two hundred of them; a store here has a dozen.
"""

from mq.daemons.broker.store import checkpointer
from mq.daemons.broker.store.recovery import recovery

recovery.VERIFY_BACK = 0
checkpointer._QUEUES_A_TURN = 2
