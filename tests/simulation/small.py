"""Constants of the product that hide defects in small stores, made small.

A start behind a crash reads the last 128 MiB again, which is all that a store here has. A round
that writes queues pauses behind two hundred of them; a store here has a dozen.
"""

from mq.daemons.broker.store import checkpointer, recovery

recovery.VERIFY_BACK = 0
checkpointer._QUEUES_A_TURN = 2
