"""Languages: their selection, and whether the catalogues are up to date."""

import asyncio
import gettext
import io
import re
import string

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo

from mq.daemons.console import locale, rendering
from tests.daemons.console.catalogues import catalogue, files, is_current, texts
from tests.daemons.console.site import Consoles


@pytest.mark.parametrize(
    ("cookie", "accepted", "tag"),
    [
        ("", "", "en"),
        ("", "zh-CN,zh;q=0.9,en;q=0.8", "zh-CN"),
        ("", "de,en;q=0.8,zh;q=0.5", "en"),
        ("", "en;q=0.2, zh-TW;q=0.9", "zh-CN"),
        ("", "zh;q=0,en", "en"),
        ("en", "zh-CN", "en"),
        ("../../x", "zh-CN", "zh-CN"),
        ("", ";;;q=,," * 1000, "en"),
    ],
)
def test_the_language_is_the_chosen_one_or_the_browsers(
    cookie: str, accepted: str, tag: str
) -> None:
    assert locale.chosen(cookie, accepted) == tag


def test_the_catalogues_are_up_to_date() -> None:
    stale = [path.name for path, content in files() if not is_current(path, content)]
    assert stale == [], "make translations"


def test_a_translation_has_the_places_of_its_text() -> None:
    for name in filter(None, locale.LANGUAGES.values()):
        for message in catalogue(name):
            if not message.id or not message.string:
                continue
            ids = message.id if isinstance(message.id, tuple | list) else [message.id]
            given = message.string if isinstance(message.string, tuple | list) else [message.string]
            wanted = set(re.findall(r"%\(\w+\)\w", ids[-1]))
            for text in filter(None, given):
                assert set(re.findall(r"%\(\w+\)\w", text)) <= wanted, ids


def test_the_texts_of_pages_and_of_templates_are_found() -> None:
    found = {m.id if isinstance(m.id, str) else m.id[0] for m in texts() if m.id}
    assert {"Operations log", "Log in", "Preview", "%(num)d request"} <= found


def test_a_page_is_in_the_language_of_its_reader(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    translated = Catalog(locale="zh_CN")
    translated.add("Operations log", "操作日志")
    content = io.BytesIO()
    write_mo(content, translated)
    content.seek(0)
    texts_of = locale.Texts("zh-CN", gettext.GNUTranslations(content))
    monkeypatch.setattr(locale, "texts", lambda tag: texts_of)
    rendering.environment.cache_clear()

    async def main() -> None:
        async with console() as site:
            page = await site.get("/operations", Accept_Language="zh-CN")
            assert page.title == "操作日志"
            assert page.soup.html is not None and page.soup.html["lang"] == "zh-CN"

    try:
        asyncio.run(main())
    finally:
        rendering.environment.cache_clear()


def test_no_text_of_people_is_left_outside_the_catalogue() -> None:
    # In templates: text between tags that is neither an expression nor a sign.
    for path in rendering.FOLDER.rglob("*.html"):
        source = re.sub(r"\{#.*?#\}", "", path.read_text(), flags=re.S)
        source = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", source, flags=re.S)
        source = re.sub(r"<!doctype.*?>|<[^<>]*>", "\n", source, flags=re.S)
        words = [w for w in source.split() if any(c in string.ascii_letters for c in w)]
        allowed = {"mq", "UTC", "g", "r", "English", "·"}
        assert [w for w in words if w not in allowed] == [], path.name
