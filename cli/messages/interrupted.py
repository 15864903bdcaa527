"""What exports, imports and copies of messages have left when they were cut."""

from pathlib import Path
from typing import Any

from mq.cli.runtime.call import Call
from mq.cli.runtime.continuation import Continuation


def export(call: Call, own: dict[str, Any]) -> Continuation | None:
    """Of an export to a file that has come to something."""
    from mq.client.operations.messages.file_sink import cut

    found = cut(Path(own["file"])) if own["file"] != "-" else None
    if found is None:
        return None
    kept = f"{found.messages} messages are in {found.part}, how far they go is in {found.state}"
    return Continuation(kept, ("--resume",))


def imported(call: Call, own: dict[str, Any]) -> Continuation | None:
    """Of an import of a file of which something has been sent."""
    from mq.client.operations import local_files

    path = Path(own["file"])
    state = local_files.beside(path, "import")
    if own["file"] == "-" or local_files.is_stream(path) or not state.exists():
        return None
    return Continuation(f"how far it has come is in {state}", ("--resume",))


def copied(call: Call, own: dict[str, Any]) -> Continuation | None:
    """Of a copy that keeps how far it is."""
    state = own["resume"]
    if state is None or not Path(state).exists():
        return None
    return Continuation(f"how far it has come is in {state}")
