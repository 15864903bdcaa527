"""The output of a seed for readers who do not know the code."""

import re

from tests.simulation.scenario import Result

# Names in problems; details about them are shown.
_THINGS = re.compile(r"message \d+|transaction \d+|timer \d+")
_MOST_PROBLEMS = 10
_BORING = ("ACCESS CONTROL IS OFF",)


def story(result: Result, *, everything: bool = False) -> str:
    """The trace: faults, log lines, and details about the problems."""
    wanted = {each for problem in result.problems for each in _THINGS.findall(problem)}
    lines: list[str] = []
    details = iter(result.details)
    behind, text = next(details, (-1, ""))
    for number in range(len(result.lines) + 1):
        while behind == number:
            if everything or wanted & set(_THINGS.findall(text)):
                lines.append(text)
            behind, text = next(details, (-1, ""))
        if number < len(result.lines):
            line = result.lines[number]
            if everything or not any(words in line for words in _BORING):
                lines.append(line)
    return "\n".join(lines)


def command(result: Result) -> str:
    """The command that repeats a run."""
    words = ["python -m tests.simulation --seed", str(result.seed), result.variant.arguments()]
    return " ".join(word for word in words if word)


def ending(result: Result) -> str:
    """The end of a story: problems and how to repeat them, or that all invariants held."""
    if not result.problems:
        return f"all held, with {result.requests} requests in {result.seconds:.0f} s"
    problems = [f"  {each}" for each in result.problems[:_MOST_PROBLEMS]]
    if len(result.problems) > _MOST_PROBLEMS:
        problems.append(f"  and {len(result.problems) - _MOST_PROBLEMS} more")
    return "\n".join(("What did not hold:", *problems, f"Again: {command(result)}"))


def failure(result: Result, *, shrunk_from: Result | None = None) -> str:
    """A failed seed: story, problems, and how to repeat it."""
    title = f"SEED {result.seed} FAILED"
    if shrunk_from is not None:
        title += (
            f", shrunk from {len(shrunk_from.plan)} faults, {len(shrunk_from.clients)} clients and "
            f"{shrunk_from.seconds:.0f} s to {len(result.plan)}, {len(result.clients)} and "
            f"{result.seconds:.0f} s"
        )
    begins = "What happened (seconds since the beginning, who, what):"
    return "\n".join((title, begins, story(result), ending(result)))
