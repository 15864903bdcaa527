"""The states of work that goes on where it was cut: what was asked for, how far each queue is.

    {"asked": {…}, "queues": {"broker-a:0": {…}, …}, "gaps": ["…", …]}

A queue that is named there was begun with, or was to be. So it is missed where it is no more. What
was passed over is in `gaps`, a line each: who goes on behind it tells of it all the same.
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
    """What was saved of each queue, and the gaps until then."""

    queues: dict[str, dict[str, Any]]
    gaps: list[str]


def load(path: Path, asked: dict[str, Any], what: str) -> State:
    """What was saved; nothing where there is no file.

    `what` names the work in messages ("an import"). Raises BadData for a file that is not the
    state of such work, or of work that something else was asked of.
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
    """The gaps of work that was gone on with, each once: one may be found again."""
    return list(dict.fromkeys([*before, *since]))


def save(
    path: Path,
    asked: Mapping[str, Any],
    queues: Mapping[str, Mapping[str, Any]],
    gaps: Sequence[str] = (),
) -> None:
    """Raises CannotWrite."""
    state = {"asked": asked, "queues": queues, **({"gaps": gaps} if gaps else {})}
    local_files.replace(path, orjson.dumps(state, option=orjson.OPT_INDENT_2))


async def keep(
    path: Path, save: Callable[[], None], run: Callable[[], Awaitable[list[str]]]
) -> list[str]:
    """Run work whose state is kept in a file: saved at once, each `SAVE_SECONDS`, and however the
    work ends; the file is removed when nothing failed. Returns what failed, as `run` does.

    Raises CannotWrite where the first or the last save fails, and what the work raises. A save in
    between that fails is tried again `SAVE_SECONDS` later.
    """
    loop = asyncio.get_running_loop()
    saving: asyncio.TimerHandle

    def save_again() -> None:
        nonlocal saving
        saving = loop.call_later(SAVE_SECONDS, save_again)
        with suppress(CannotWrite):  # there may be room again, and the last save decides
            save()

    save()  # now, while nothing would be lost if it cannot be
    saving = loop.call_later(SAVE_SECONDS, save_again)  # no task: one more await to be cancelled at
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
    """The error for an invalid state file, or that of other work."""
    return BadData(reason, hint=NextStep.BEGIN_AGAIN)
