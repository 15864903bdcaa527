"""The unsent lines of an input, and the command that continues."""

from dataclasses import dataclass
from shlex import quote

from mq.client.operations.messages.producing import ranges


@dataclass(frozen=True)
class UnsentInput:
    """The outcome of an input: `left` are lines, in order, that were read and not sent; lines from
    `following` on were not read. Messages in flight when a broker failed may be stored, and be
    listed, too."""

    sent: int
    left: list[int]
    following: int

    def lines(self, file: str, again: str) -> list[str]:
        """Return sentences; the last one has the command that continues, if there is one."""
        parts, begin = self._parts()
        where = "".join(
            f"{first}, " if first == last else f"{first} to {last}, " for first, last in parts
        )
        found = [
            f"{self.sent:,} messages were sent; not sent: lines {where}{begin} and those after"
        ]
        if again:
            found.append(f"continue with: {self._command(file, parts, begin)} | {again}")
        return found

    def _parts(self) -> tuple[list[tuple[int, int]], int]:
        """Return ranges of lines, and the line from which on all are left."""
        parts = ranges(self.left)
        if parts and parts[-1][1] == self.following - 1:
            return parts[:-1], parts[-1][0]
        return parts, self.following

    def _command(self, file: str, parts: list[tuple[int, int]], begin: int) -> str:
        named = "" if file == "-" else f" {quote(file)}"
        if not parts:
            return f"tail -n +{begin}{named}"
        script = ";".join([*(f"{first},{last}p" for first, last in parts), f"{begin},$p"])
        return f"sed -n '{script}'{named}"
