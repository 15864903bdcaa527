"""`python -m tests.simulation`: run seeds, report the injected faults, show failures.

--seeds 1000 --first 1   so many seeds, on all cores
--seed 7                 one seed with its whole story; later options leave parts out
--check NAME             a check of the simulation's own tests (checks.py), as JSON
"""

import argparse
import os
import sys

from tests.simulation import fixed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--step", type=int, default=1, help="from one to the next")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--until-failure", action="store_true", help="of the first seed")
    parser.add_argument("--no-shrink", action="store_true", help="show failures as they are")
    parser.add_argument("--shrink-seconds", type=float, default=60.0, help="for one seed at most")
    one = parser.add_argument_group("one seed")
    one.add_argument("--seed", type=int, help="this one only, with its story")
    one.add_argument("--faults", help="numbers of the faults that stay, or none")
    one.add_argument("--clients", help="names of the clients that stay, or none")
    one.add_argument("--work-seconds", type=float, help="when clients stop to begin anything")
    one.add_argument("--noise", type=int, default=0, help="other delays, the same faults")
    one.add_argument("--all", action="store_true", help="show every detail")
    parser.add_argument("--check", nargs="+", help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Returns the exit status."""
    fixed.fix(sys.argv[1:])
    if sys.argv[1:2] == ["planted"]:  # in trees of their own
        from tests.simulation.defects import command as defects

        return defects.main(sys.argv[2:])
    # From here on modules of mq are imported, over the simulated machine.
    from tests.simulation import install

    install()
    if sys.argv[1:2] == ["points"]:
        from tests.simulation.crash_points import command

        return command.main(sys.argv[2:])
    from tests.simulation import campaign, checks, report, scenario

    given = _parser().parse_args()
    if given.check:
        return checks.main(given.check)
    if given.seed is None:
        shrinks = 0.0 if given.no_shrink else given.shrink_seconds
        return campaign.run(
            given.first,
            given.seeds,
            given.processes,
            shrinks,
            step=given.step,
            is_over_at_failure=given.until_failure,
        )
    variant = scenario.Variant(
        faults=None if given.faults is None else frozenset(map(int, _listed(given.faults))),
        clients=None if given.clients is None else frozenset(_listed(given.clients)),
        work_seconds=given.work_seconds or scenario.WHOLE.work_seconds,
        noise=given.noise,
    )
    result = scenario.run(given.seed, variant)
    print(report.story(result, everything=given.all))
    print(report.ending(result))
    return int(bool(result.problems))


def _listed(text: str) -> list[str]:
    return [] if text == "none" else text.split(",")


if __name__ == "__main__":
    sys.exit(main())
