"""The native path: per buffer what the interpreter does per message. Optional.

`native` is the compiled module; None if it was not built, was built from other sources
than those next to it, or is turned off by MQ_NATIVE=0: `absent` is the reason. Python then does the
same, message by message. docs/decisions/0047 describes the interface.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32


def load(folder: Path) -> tuple[Any, str]:
    """The module and "", or None and the reason.

    ``folder`` has its sources in a checkout; an installed module has none next to it.
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
#: The exceptions of a failure: a panic of Rust is not an Exception.
failures = () if native is None else (Exception, native.PanicException)
