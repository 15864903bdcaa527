"""The native path: per buffer what the interpreter does per message. Optional.

`native` is the compiled module; None where it was not built, or where MQ_NATIVE=0 turns it off.
Then Python does the same, message by message. docs/decisions/0047 says what may cross the border.
"""

import os
from importlib import import_module
from typing import Any

native: Any = None
if os.environ.get("MQ_NATIVE") != "0":
    try:
        native = import_module("mq.protocol.native._native")
    except ImportError:
        native = None
