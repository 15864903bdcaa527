"""States of work that can be resumed: the request, and the progress of each queue.

  {"asked": {…}, "queues": {"broker-a:0": {…}, …}, "gaps": ["…", …]}

A queue in the state was started, or was to be; it counts as missing if it no longer exists. `gaps`
has a line for each range that was skipped, so that a resumed run reports it, too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from mq.client.operations import local_files
from mq.client.operations.errors import BadData, CannotWrite, NextStep
from mq.client.operations.messages.choice import is_same

SAVE_SECONDS = 5.0


class State(NamedTuple):
    """The saved state of each queue, and the gaps so far."""

    queues: dict[str, dict[str, Any]]
    gaps: list[str]


def load(path: Path, asked: dict[str, Any], what: str) -> State:
    """Load a state; empty if there is no file.

    `what` names the work in messages ("an import"). Raises BadData for a file that is not the state
    of such work, or that belongs to another request.
    """
    try:
        state = orjson.loads(path.read_bytes())
        queues = {str(name): dict(values) for name, values in state["queues"].items()}
        gaps = [str(gap) for gap in state.get("gaps", ())]
        same = is_same(asked, state["asked"])
    except FileNotFoundError:
        return State({}, [])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise unreadable(f"{path} is not the state of {what}: {error!r}") from None
    if not same:
        raise unreadable(f"{path} is of something else: {state['asked']}")
    return State(queues, gaps)


def all_gaps(before: Iterable[str], since: Iterable[str]) -> list[str]:
    """Combine the gaps of resumed work without duplicates: a gap may be found again."""
    return list(dict.fromkeys([*before, *since]))


def save(
    path: Path,
    asked: Mapping[str, Any],
    queues: Mapping[str, Mapping[str, Any]],
    gaps: Sequence[str] = (),
) -> None:
    """Save a state. Raises CannotWrite."""
    state = {"asked": asked, "queues": queues, **({"gaps": gaps} if gaps else {})}
    local_files.replace(path, orjson.dumps(state, option=orjson.OPT_INDENT_2))


async def keep(
    path: Path, save: Callable[[], None], run: Callable[[], Awaitable[list[str]]]
) -> list[str]:
    """Run work with its state in a file, which is saved at once, every `SAVE_SECONDS`, and at the
    end.

    The file is deleted if nothing failed. Returns the failures, as `run` does. Raises CannotWrite
    if the first or the last save fails, and what the work raises. An intermediate save that fails
    is repeated `SAVE_SECONDS` later.
    """
    loop = asyncio.get_running_loop()
    saving: asyncio.TimerHandle

    def save_again() -> None:
        nonlocal saving
        saving = loop.call_later(SAVE_SECONDS, save_again)
        with suppress(CannotWrite):  # space may become available, and the last save decides
            save()

    save()  # now, while nothing would be lost by a failure
    # not a task, which would need another await with cancellation
    saving = loop.call_later(SAVE_SECONDS, save_again)
    try:
        failures = await run()
    except BaseException:
        save()
        raise
    finally:
        saving.cancel()
    if failures:
        save()
    else:
        local_files.remove(path)
    return failures


def unreadable(reason: str) -> BadData:
    """Return the error for an invalid state file, or the state of other work."""
    return BadData(reason, hint=NextStep.BEGIN_AGAIN)
