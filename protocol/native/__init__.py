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
    """The module, and why it is not taken, in which case it is None.

    ``folder`` has its sources in a checkout; an installed module has none beside it.
    """
    if os.environ.get("MQ_NATIVE") == "0":
        return None, "MQ_NATIVE=0 turns it off"
    try:
        module: Any = import_module("mq.protocol.native._native")
    except ImportError as error:
        return None, f"it is not built: run `make native` ({error})"
    checksums = dict(getattr(module, "SOURCES", ()))  # an early one does not say
    found = {name: crc32(text) for name in checksums if (text := _text(folder / name)) is not None}
    if not checksums or (found and found != checksums):
        return None, "it is of other sources: run `make native`"
    return module, ""


def _text(source: Path) -> bytes | None:
    loader: Any = __spec__.loader
    try:
        text: bytes = loader.get_data(str(source))
    except OSError:
        return None
    return text


native, absent = load(Path(__file__).parent / "src")
#: What it raises when it fails: a panic of Rust is no Exception.
failures = () if native is None else (Exception, native.PanicException)
