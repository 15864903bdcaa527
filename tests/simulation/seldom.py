"""Constants of the product that cost each seed time and memory without an effect within a minute.

The limit of ten thousand sends that wait for the disk is checked twenty times a second; no seed
reaches it. The wheel of the timer has two weeks of seconds, 38 MB, that a power cut would process.
And messages are rare here, so a pushed consumer waits longer before it pulls.
"""

from mq.client.snode import pushes
from mq.daemons.broker import backlog
from mq.daemons.broker.delayed import timer, timer_wheel

_WHEEL = 2 * 3600  # seconds; half of it exceeds all clock jumps and waits

backlog.FLUSH_CHECK_SECONDS = 2.0
timer_wheel.SLOTS = _WHEEL
timer.SLOTS = _WHEEL  # type: ignore[attr-defined]  # imported by its name
pushes.PUSH_PATIENCE_SECONDS = 5.0
