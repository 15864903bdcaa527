"""Run the commands of the documents, and update their output in the documents.

    python -m docs.runner [--check] [PAGE …]

Without pages: all that show commands. With --check nothing is written; the status is 1 if the
output of a page is outdated.
"""

import sys
import tempfile
from pathlib import Path

from docs.runner.forker import Forker
from docs.runner.page import read
from docs.runner.play import Play

ROOT = Path(__file__).resolve().parents[2]


def pages() -> list[Path]:
    """Return the documents that show commands with their output."""
    candidates = [ROOT / "README.md", ROOT / "examples/README.md"]
    candidates += sorted((ROOT / "docs").rglob("*.md"))
    return [path for path in candidates if read(path).steps]


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    chosen = [Path(argument).resolve() for argument in arguments if not argument.startswith("-")]
    wrong = 0
    for path in chosen or pages():
        with tempfile.TemporaryDirectory(prefix="mq-docs-") as folder, Forker() as forker:
            play = Play(read(path), Path(folder), forker)
        if play.problems and not check:
            path.write_text(play.rewritten(), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(play.played)} commands, {len(play.problems)} differ")
        for problem in play.problems:
            print(problem)
        wrong += len(play.problems)
    return 1 if wrong and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
