"""`python -m tests.simulation`: run seeds, say what was injected, show what failed."""

import argparse
import os
import sys
import time


def main() -> int:
    """Returns the exit status."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of text have an order that a seed does not decide.
        os.environ.update(PYTHONHASHSEED="0", TZ="UTC")
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    from tests.simulation import seams

    seams.install()
    if sys.argv[1:2] == ["points"]:
        from tests.simulation.crash_points import command

        return command.main(sys.argv[2:])
    from tests.simulation import scenario

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int, help="this one only, with its trace")
    given = parser.parse_args()
    if given.seed is not None:
        result = scenario.run(given.seed)
        print("\n".join(result.lines))
        print("\n".join(result.problems) or "all held")
        return bool(result.problems)
    began = time.monotonic()
    failed = 0
    injected: dict[str, int] = {}
    for seed in range(given.first, given.first + given.seeds):
        result = scenario.run(seed)
        for name, number in result.faults.items():
            injected[name] = injected.get(name, 0) + number
        if result.problems:
            failed += 1
            print(f"seed {seed}: {len(result.problems)} problems, the first: {result.problems[0]}")
    seconds = time.monotonic() - began
    print(f"{given.seeds} seeds in {seconds:.1f} s, {failed} failed; injected: {injected}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
