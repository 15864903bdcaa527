"""Writes the catalogues of the console's texts: `make translations`.

    python -m tests.daemons.console.catalogues

The texts are taken from the sources and templates (Babel); a catalogue keeps its translations, and
those of removed texts are dropped. A text without a translation is shown in English.
"""

import io
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from gettext import GNUTranslations
from pathlib import Path
from typing import Any

import jinja2.ext
from babel.messages import extract
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from mq.daemons.console import locale

ROOT = Path(locale.__file__).resolve().parent
KEYWORDS = {"_": None, "N_": None, "gettext": None, "text": None, "ngettext": (1, 2)}
KEYWORDS |= {"number_text": (1, 2)}


def texts(root: Path = ROOT) -> Catalog:
    """Return every text for users, with its files."""
    found = Catalog(project="mq", fuzzy=False)
    for path in sorted(root.rglob("*")):
        if path.suffix not in (".py", ".html"):
            continue
        method: Any = "python" if path.suffix == ".py" else jinja2.ext.babel_extract
        options = {} if path.suffix == ".py" else {"trim_blocks": "1", "lstrip_blocks": "1"}
        with path.open("rb") as file:
            for _, message, comments, context in extract.extract(
                method, file, KEYWORDS, ["N.B."], options
            ):
                if message:
                    # No line numbers: each change of a page would change the catalogue.
                    place = (path.relative_to(root).as_posix(), 0)
                    found.add(message, None, [place], auto_comments=comments, context=context)
    return found


def catalogue(name: str) -> Catalog:
    """Return the catalogue of a language, with all present texts."""
    path = ROOT / "locales" / name / "LC_MESSAGES" / f"{locale.DOMAIN}.po"
    known = Catalog(locale=name, fuzzy=False)
    if path.exists():
        with path.open("rb") as file:
            known = read_po(file, locale=name)
    known.update(texts(), no_fuzzy_matching=True, update_creation_date=False)
    known.obsolete.clear()
    return known


def files() -> Iterator[tuple[Path, bytes]]:
    """Yield path and content of each file of the catalogues."""
    for name in filter(None, locale.LANGUAGES.values()):
        folder = ROOT / "locales" / name / "LC_MESSAGES"
        made = catalogue(name)
        # The time of the last run would make the files differ in each run.
        made.creation_date = made.revision_date = datetime(2026, 1, 1, tzinfo=UTC)
        made.project, made.version, made.last_translator = "mq", "console", "the authors of mq"
        made.language_team = "the authors of mq"
        made.msgid_bugs_address = ""
        made.header_comment = f"# The console's texts in {name}. Written by `make translations`."
        text, compiled = io.BytesIO(), io.BytesIO()
        write_po(text, made, width=100, sort_output=True, include_lineno=False)
        # The release of Babel is irrelevant.
        lines = [one for one in text.getvalue().splitlines(True) if b"Generated-By" not in one]
        write_mo(compiled, made)
        yield folder / f"{locale.DOMAIN}.po", b"".join(lines)
        yield folder / f"{locale.DOMAIN}.mo", compiled.getvalue()


def is_current(path: Path, content: bytes) -> bool:
    """Return whether a file of a catalogue is up to date."""
    if not path.exists():
        return False
    if path.suffix == ".po":
        return path.read_bytes() == content
    with path.open("rb") as file:
        one, other = GNUTranslations(file), GNUTranslations(io.BytesIO(content))
    translated = [
        {key: text for key, text in vars(one_of)["_catalog"].items() if key}
        for one_of in (one, other)
    ]
    return translated[0] == translated[1]


def main() -> None:
    """Write outdated ones."""
    for path, content in files():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not is_current(path, content):
            path.write_bytes(content)
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
