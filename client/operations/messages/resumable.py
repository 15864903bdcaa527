"""The states of work that goes on where it was cut: what was asked for, how far each queue is.

    {"asked": {…}, "queues": {"broker-a:0": {…}, …}}

A queue that is named there was begun with, or was to be. So it is missed where it is no more.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from mq.client.operations import local_files
from mq.client.operations.errors import BadData, NextStep
from mq.client.operations.messages.choice import is_same


def load(path: Path, asked: dict[str, Any], what: str) -> dict[str, dict[str, Any]]:
    """What was saved of each queue; empty where there is no file.

    `what` names the work in messages ("an import"). Raises BadData for a file that is not the
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
    """Raises CannotWrite."""
    content = orjson.dumps({"asked": asked, "queues": queues}, option=orjson.OPT_INDENT_2)
    local_files.replace(path, content)


def unreadable(reason: str) -> BadData:
    """The error for an invalid state file, or that of other work."""
    return BadData(reason, hint=NextStep.BEGIN_AGAIN)
