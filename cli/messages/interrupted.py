"""The state that interrupted exports, imports and copies of messages keep."""

from pathlib import Path
from typing import Any

from mq.cli.runtime.call import Call
from mq.cli.runtime.continuation import Continuation


def export(call: Call, own: dict[str, Any]) -> Continuation | None:
    """Return the continuation of an export to a file, if it has messages."""
    from mq.client.operations.messages.file_sink import cut

    found = cut(Path(own["file"])) if own["file"] != "-" else None
    if found is None:
        return None
    kept = f"{found.messages} messages are in {found.part}, the progress is in {found.state}"
    return Continuation(kept, ("--resume",))


def imported(call: Call, own: dict[str, Any]) -> Continuation | None:
    """Return the continuation of a file's import, if messages were sent."""
    from mq.client.operations import local_files

    path = Path(own["file"])
    state = local_files.beside(path, "import")
    if own["file"] == "-" or local_files.is_stream(path) or not state.exists():
        return None
    return Continuation(f"the progress is in {state}", ("--resume",))


def copied(call: Call, own: dict[str, Any]) -> Continuation | None:
    """Return the continuation of a copy that keeps its progress."""
    state = own["resume"]
    if state is None or not Path(state).exists():
        return None
    return Continuation(f"the progress is in {state}")
