"""Failures of requests, and their responses: an HTTP status and one line."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from mq.client.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    MQError,
    RequestTimeout,
    RouteNotFound,
)
from mq.client.operations.errors import (
    BadData,
    Busy,
    CannotWrite,
    InvalidRequest,
    Locked,
    NotFound,
    OperationError,
    Unavailable,
)
from mq.daemons.console.guarded_session import Forbidden
from mq.daemons.console.parsing import BadField, BadQuery, BadValues

log = logging.getLogger(__name__)

# Subclasses first.
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (BadQuery, 400),
    (Forbidden, 403),
    (NotFound, 404),
    (InvalidRequest, 400),
    (BadData, 502),
    (Unavailable, 502),
    (Busy, 409),
    (Locked, 409),
    (CannotWrite, 503),
    (OperationError, 400),
    (RouteNotFound, 404),
    (RequestTimeout, 504),
    (ConnectError, 502),
    (BrokerError, 502),
    (ClientError, 400),
    (MQError, 502),
    (TimeoutError, 504),
)

MOST_LINE = 500


class Refused(Exception):
    """A request that the frame refuses, with its status and the reason."""

    def __init__(self, status: int, line: str, hint: str = "") -> None:
        super().__init__(line)
        self.status = status
        self.line = line
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Problem:
    """The response to a failed request; the log has details under ``id``.

    ``fields`` has the reason for each invalid field of a change, by its name.
    """

    status: int
    line: str
    hint: str = ""
    id: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


def problem_of(error: Exception, id: str) -> Problem:
    """Return the response to an error. Unexpected ones are logged in full and shown by id only."""
    if isinstance(error, Refused):
        return Problem(error.status, error.line, error.hint, id)
    for kind, status in _STATUS:
        if isinstance(error, kind):
            line = str(error) or "no answer in time"
            return Problem(status, _one_line(line), _hint(error), id, _fields(error))
    log.error("request %s failed", id, exc_info=error)
    return Problem(500, "The console has failed here: its log has more under this id.", "", id)


def _fields(error: Exception) -> dict[str, str]:
    if isinstance(error, BadValues):
        return {name: _one_line(line) for name, line in error.errors.items()}
    return {error.field: _one_line(str(error))} if isinstance(error, BadField) else {}


def _hint(error: Exception) -> str:
    hint = getattr(error, "hint", "")
    return _one_line(str(hint)) if hint else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MOST_LINE]
