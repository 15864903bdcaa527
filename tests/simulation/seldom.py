"""Constants of the product that cost each seed time and memory, and show nothing in a minute.

A limit of ten thousand sends that wait for the disk is looked at twenty times a second; no seed has
as many. The wheel of the timer has two weeks of seconds, 38 MB, that a power cut goes through. And
messages come seldom here: who is pushed to has patience for some of them before it pulls again.
"""

from mq.client.snode import pushes
from mq.daemons.broker.overload import limits
from mq.daemons.broker.timer import service, wheel

_WHEEL = 2 * 3600  # seconds; half of it is more than clocks jump and messages wait

limits.FLUSH_CHECK_SECONDS = 2.0
wheel.SLOTS = _WHEEL
service.SLOTS = _WHEEL  # type: ignore[attr-defined]  # imported by its name
pushes.PUSH_PATIENCE_SECONDS = 5.0
