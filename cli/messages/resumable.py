"""The states of work that goes on where it was cut: what was asked for, how far each queue is.

    {"asked": {…}, "queues": {"broker-a:0": {…}, …}}

A queue that is named there was begun with, or was to be. So it is missed where it is no more.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from mq.cli.messages.choice import is_same, unreadable
from mq.client.operations import local_files


def load(path: Path, asked: dict[str, Any], what: str) -> dict[str, dict[str, Any]]:
    """What was saved of each queue; empty where there is no file.

    `what` names the work in messages ("an import"). Raises CommandError for a file that is not the
    state of such work, or of work that something else was asked of.
    """
    try:
        state = orjson.loads(path.read_bytes())
        queues = {str(name): dict(values) for name, values in state["queues"].items()}
        same = is_same(asked, state["asked"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise unreadable(f"{path} is not the state of {what}: {error!r}") from None
    if not same:
        raise unreadable(f"{path} is of something else: {state['asked']}")
    return queues


def save(path: Path, asked: Mapping[str, Any], queues: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises CommandError."""
    content = orjson.dumps({"asked": asked, "queues": queues}, option=orjson.OPT_INDENT_2)
    local_files.replace(path, content)
