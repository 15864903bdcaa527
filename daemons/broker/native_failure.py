"""The native path when it has failed (docs/decisions/0047)."""

import logging

log = logging.getLogger(__name__)


def tell_failure(at: str, stay: str) -> None:
    """Log the exception being handled: where the native path failed, and what stays in Python."""
    log.exception(
        "the native path failed at %s: %s stay in Python until the next start; this is a defect "
        "of mq",
        at,
        stay,
        extra={"failure": "native path"},
    )
