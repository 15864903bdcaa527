"""Templates: one environment for each language, in which every output is escaped.

Invisible characters in text - controls, marks for the direction of writing - are shown as marks in
every output (`template_filters.plain`), so pages need not handle them.
"""

from collections.abc import Mapping
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from mq.daemons.console import locale, template_filters

FOLDER = Path(__file__).with_name("templates")


@cache
def environment(language: str) -> jinja2.Environment:
    """Return the templates in a language."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=template_filters.plain,
        extensions=["jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=-1,
        auto_reload=False,
    )
    texts = locale.texts(language)
    made.install_gettext_translations(texts.catalogue, newstyle=True)  # type: ignore[attr-defined]
    made.filters.update(
        shown=template_filters.shown,
        verbatim=template_filters.verbatim,
        number=template_filters.number,
        rate=template_filters.rate,
        bytes=template_filters.in_bytes,
        percent=template_filters.percent,
        span=template_filters.span,
        quoted=template_filters.quoted,
        moment=_moment,
        moment_text=_moment_text,
        ago=_ago,
    )
    return made


@pass_context
def _moment(context: Context, value: Any) -> Markup:
    return template_filters.moment(value, context.get("zone", UTC))


@pass_context
def _moment_text(context: Context, value: Any) -> str:
    return template_filters.moment_text(value, context.get("zone", UTC))


@pass_context
def _ago(context: Context, value: Any) -> Markup:
    """Return the time since a moment, with the moment itself as its title."""
    if value is None:
        return Markup(template_filters.UNKNOWN)
    passed = template_filters.span(max(0, context["now"] - value))
    at = template_filters.moment_text(value, context.get("zone", UTC))
    text = context.call(context.resolve("gettext"), "%(time)s ago", time=passed)
    return Markup('<span title="{}">{}</span>').format(at, text)


def render(name: str, language: str, context: Mapping[str, Any]) -> str:
    """Return a page as HTML."""
    return environment(language).get_template(name).render(context)
