"""What a check has found."""

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How bad it is. The numbers are those of Nagios."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class Finding:
    """One thing about one subject: a name server, a broker, a topic or a group.

    Attributes:
        check: which check it is of; a fixed word, for scripts.
        subject: an address or a name.
        detail: one line.
        hint: what to do; empty where nothing is to be done.
    """

    check: str
    severity: Severity
    subject: str
    detail: str
    hint: str = ""


def worst(findings: list[Finding]) -> Severity:
    """The severity of all together: what is known to be bad counts more than what is not known."""
    order = (Severity.OK, Severity.UNKNOWN, Severity.WARNING, Severity.CRITICAL)
    return max((finding.severity for finding in findings), key=order.index, default=Severity.OK)
