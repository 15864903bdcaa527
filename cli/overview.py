"""The output of `mq help all` and `mq help SUBJECT`: commands by subject."""

from collections.abc import Mapping
from textwrap import fill

from mq.cli import catalog


def text(word: str | None = None) -> str:
    """Return the text of `mq help all`, or of the help about one subject."""
    lines = ["Usage: mq [OPTIONS] COMMAND [OPTIONS]", ""]
    if word is None:
        lines += [
            "mq is RocketMQ in Python: every mqadmin command, and the daemons themselves.",
            "Names may be written in any case and in kebab-case: updateTopic, update-topic.",
            "Many have a second name of noun and verb: `mq group seek`, `mq topic create`.",
            "`mq help COMMAND` shows the options of a command, `mq help topic` the commands",
            "of a group. For more, see: man mq.",
            "",
        ]
        for group, names in catalog.GROUPS.items():
            lines += listed(catalog.TITLES[group], names)
    else:
        lines += _about(word)
    lines.append("mq COMMAND --help shows the options of a command.")
    return "\n".join(lines) + "\n"


def _about(word: str) -> list[str]:
    """Return names of noun and verb first, which users of a noun expect; then the others."""
    group = catalog.group_of(word) or ""
    own = catalog.GROUPS.get(group, {})
    names = catalog.subcommands(word) or [
        alias for alias, name in catalog.ALIASES.items() if " " in alias and name in own
    ]
    natural = {name: catalog.summary(name) for name in names}
    others = {}
    for name, summary in own.items():
        if name not in natural:
            also = [
                alias for alias, of in catalog.ALIASES.items() if of == name and alias in natural
            ]
            others[name] = f"{summary} ({', '.join(also)})" if also else summary
    title = catalog.TITLES.get(group, word)
    if not natural or not others:
        return listed(title, natural or others)
    return listed(title, natural) + listed("mqadmin's names, and more", others)


def listed(title: str, names: Mapping[str, str]) -> list[str]:
    """Return names with their summaries, between a title and an empty line."""
    return [f"{title}:", *(_line(name, summary) for name, summary in names.items()), ""]


def _line(name: str, summary: str) -> str:
    """Return a command and its summary, within the 80 columns of a terminal."""
    return fill(f"  {name:<22} {summary}", 80, subsequent_indent=" " * 25, break_on_hyphens=False)
