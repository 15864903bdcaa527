"""The findings of checks."""

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """The severity of a finding, with the numbers of Nagios."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class Finding:
    """One finding about a name server, a broker, a topic or a group.

    Attributes:
        check: the name of the check, fixed for use in scripts.
        subject: an address or a name.
        detail: one line.
        hint: what to do; empty if nothing needs to be done.
    """

    check: str
    severity: Severity
    subject: str
    detail: str
    hint: str = ""


def worst(findings: list[Finding]) -> Severity:
    """Return the overall severity: known problems outweigh unknown ones."""
    order = (Severity.OK, Severity.UNKNOWN, Severity.WARNING, Severity.CRITICAL)
    return max((finding.severity for finding in findings), key=order.index, default=Severity.OK)
