"""Languages: texts in gettext catalogues beside this module; English is what the source says."""

import gettext
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

DOMAIN = "console"
FOLDER = Path(__file__).with_name("locales")
#: Languages by their tags in HTML, and the name of the catalogue; English has none.
LANGUAGES = {"en": "", "zh-CN": "zh_CN"}
NAMES = {"en": "English", "zh-CN": "中文"}


class Texts:
    """The texts of one language. What is not translated is English."""

    def __init__(self, tag: str, catalogue: gettext.NullTranslations) -> None:
        self.tag = tag
        self.catalogue = catalogue

    def gettext(self, message: str, /, **values: object) -> str:
        """The text, with %(name)s replaced where values are given."""
        found = self.catalogue.gettext(message)
        return found % values if values else found

    def ngettext(self, singular: str, plural: str, number: int, /, **values: object) -> str:
        """The text for this number, which is %(num)d."""
        return self.catalogue.ngettext(singular, plural, number) % {"num": number, **values}


@cache
def texts(tag: str) -> Texts:
    """The texts of a language; of English for one that there is no catalogue of."""
    name = LANGUAGES.get(tag, "")
    if not name:
        return Texts("en", gettext.NullTranslations())
    return Texts(tag, gettext.translation(DOMAIN, FOLDER, [name], fallback=True))


def chosen(cookie: str, accepted: str) -> str:
    """The language of a reader: what they chose, else what their browser accepts first."""
    if cookie in LANGUAGES:
        return cookie
    for wanted in _by_weight(accepted):
        if wanted.startswith("zh"):
            return "zh-CN"
        if wanted.startswith("en"):
            return "en"
    return "en"


def _by_weight(accepted: str) -> Iterable[str]:
    """The tags of an Accept-Language header, the most wanted first."""
    found = []
    for part in accepted[:500].split(","):
        tag, _, weight = part.strip().partition(";")
        match = re.fullmatch(r"\s*q=([01](?:\.[0-9]{0,3})?)", weight) if weight else None
        number = float(match[1]) if match else (0.0 if weight else 1.0)
        if number > 0:
            found.append((-number, tag.strip().lower()))
    found.sort(key=lambda one: one[0])
    return [tag for _, tag in found]
