"""Logging of a failed native path (docs/decisions/0047)."""

import logging

log = logging.getLogger(__name__)


def log_native_failure(at: str, stay: str) -> None:
    """Log the exception being handled: where the native path failed, and what Python serves from
    now on.
    """
    log.exception(
        "the native path failed at %s: %s stay in Python until the next start; this is a defect "
        "of mq",
        at,
        stay,
        extra={"failure": "native path"},
    )
