"""Languages: texts in gettext catalogues next to this module; the source has English."""

import gettext
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

DOMAIN = "console"
FOLDER = Path(__file__).with_name("locales")
# Languages by their HTML tags, with the name of the catalogue; English has none.
LANGUAGES = {"en": "", "zh-CN": "zh_CN"}
NAMES = {"en": "English", "zh-CN": "中文"}


class Texts:
    """The texts of one language. Untranslated texts are English."""

    def __init__(self, tag: str, catalogue: gettext.NullTranslations) -> None:
        self.tag = tag
        self.catalogue = catalogue

    def gettext(self, message: str, /, **values: object) -> str:
        """Return the text, with %(name)s replaced if values are given."""
        found = self.catalogue.gettext(message)
        return found % values if values else found

    def ngettext(self, singular: str, plural: str, number: int, /, **values: object) -> str:
        """Return the text for this number, which is %(num)d."""
        return self.catalogue.ngettext(singular, plural, number) % {"num": number, **values}


@cache
def texts(tag: str) -> Texts:
    """Return the texts of a language; English if there is no catalogue for it."""
    name = LANGUAGES.get(tag, "")
    if not name:
        return Texts("en", gettext.NullTranslations())
    return Texts(tag, gettext.translation(DOMAIN, FOLDER, [name], fallback=True))


def chosen(cookie: str, accepted: str) -> str:
    """Return the language of a user: the chosen one, else the first that the browser accepts."""
    if cookie in LANGUAGES:
        return cookie
    for wanted in _by_weight(accepted):
        if wanted.startswith("zh"):
            return "zh-CN"
        if wanted.startswith("en"):
            return "en"
    return "en"


def _by_weight(accepted: str) -> Iterable[str]:
    """Return the tags of an Accept-Language header, by descending preference."""
    found = []
    for part in accepted[:500].split(","):
        tag, _, weight = part.strip().partition(";")
        match = re.fullmatch(r"\s*q=([01](?:\.[0-9]{0,3})?)", weight) if weight else None
        number = float(match[1]) if match else (0.0 if weight else 1.0)
        if number > 0:
            found.append((-number, tag.strip().lower()))
    found.sort(key=lambda one: one[0])
    return [tag for _, tag in found]
