"""The native path: per buffer what the interpreter does per message. Optional.

`native` is the compiled module; None where it was not built, or was built of other sources than
those beside it, or where MQ_NATIVE=0 turns it off: `absent` says which. Then Python does the same,
message by message. docs/decisions/0047 says what may cross the border.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32


def load(folder: Path) -> tuple[Any, str]:
    """The module, if it was built of the sources in a folder; None, and why, if it is not taken."""
    if os.environ.get("MQ_NATIVE") == "0":
        return None, "MQ_NATIVE=0 turns it off"
    try:
        module: Any = import_module("mq.protocol.native._native")
    except ImportError as error:
        return None, f"it is not built: run `make native` ({error})"
    loader: Any = __spec__.loader
    try:
        is_of_them = all(
            crc32(loader.get_data(str(folder / name))) == checksum
            for name, checksum in module.SOURCES
        )
    except (OSError, AttributeError):  # a source that is not there any more, or an early module
        is_of_them = False
    return (module, "") if is_of_them else (None, "it is of other sources: run `make native`")


native, absent = load(Path(__file__).parent / "src")
