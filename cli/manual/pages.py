"""The man pages: mq(1), a page for each group of commands, a page for each daemon."""

from collections.abc import Iterable, Iterator

from mq.cli import catalog
from mq.cli.manual import examples, prose, roff
from mq.cli.manual.declarations import CommandDescription, Option
from mq.cli.manual.descriptions import cases, commands
from mq.cli.manual.shared_help import shared_groups
from mq.cli.runtime.status import MEANINGS

# mdoc requires a date; it is fixed so that unchanged pages stay the same.
DATE = "November 21, 2026"

_EXAMPLE_WIDTH = 72  # of 78 columns, six of which are the indentation


def pages() -> Iterator[tuple[str, str]]:
    """Yield every page: its path and its text."""
    yield "man/mq.1", main_page()
    for group in catalog.GROUPS:
        if group != "daemon":
            yield f"man/mq-{group}.1", group_page(group)
    for command in commands("daemon"):
        yield f"man/{_page_of(command.name)}.8", daemon_page(command)


def main_page() -> str:
    """Return mq(1): what all commands share."""
    body = [
        *roff.section("SYNOPSIS", [".Nm", ".Op Ar options", ".Ar COMMAND", ".Op Ar options"]),
        *roff.section("DESCRIPTION", roff.paragraphs(prose.DESCRIPTION)),
        *roff.section("COMMANDS", _command_lists()),
        *roff.section("OPTIONS", _shared_options()),
        *roff.section("ARGUMENTS, FILES AND TIMES", roff.paragraphs(prose.ARGUMENTS)),
        *roff.section(
            "FORMATS",
            roff.items((f"Cm {name}", [roff.text(words)]) for name, words in prose.FORMATS),
        ),
        *roff.section("MESSAGE FORMATS", _message_formats()),
        *roff.section("COMPLETION", roff.paragraphs(prose.COMPLETION)),
        *roff.section(
            "ENVIRONMENT",
            roff.items((f"Ev {name}", [roff.text(words)]) for name, words in prose.VARIABLES),
        ),
        *roff.section(
            "FILES",
            roff.items(
                (f"Pa {roff.escape(path)}", [roff.text(words)]) for path, words in prose.FILES
            ),
        ),
        *roff.section("EXIT STATUS", _statuses()),
        *roff.section("EXAMPLES", _examples()),
        *roff.section("SEE ALSO", _see_also("mq")),
    ]
    return roff.page("mq", 1, DATE, "messages, topics, brokers and groups of RocketMQ", body)


def group_page(group: str) -> str:
    """Return a page such as mq-topic(1)."""
    name = f"mq-{group}"
    title = catalog.TITLES[group]
    lines: list[str] = []
    for command in commands(group):
        lines += roff.subsection(command.name, _command(command))
        for case, described in cases(command):
            lines += roff.subsection(f"{command.name} {case}", _case(command, described, case))
    body = [
        *roff.section("SYNOPSIS", [".Nm mq", ".Ar COMMAND", ".Op Ar options"]),
        *roff.section("DESCRIPTION", [roff.text(prose.GROUP)]),
        *roff.section("COMMANDS", lines),
        *roff.section("EXIT STATUS", [roff.text("As described in mq(1).")]),
        *_examples_of(commands(group)),
        *roff.section("SEE ALSO", _see_also(name)),
    ]
    return roff.page(name, 1, DATE, f"commands of mq: {title.lower()}", body)


def daemon_page(command: CommandDescription) -> str:
    """Return a page such as mq-broker(8), with every setting."""
    name = _page_of(command.name)
    body = [
        *roff.section("SYNOPSIS", [f".Nm mq {command.name}", ".Op Ar options"]),
        *roff.section("DESCRIPTION", roff.paragraphs((command.summary, *command.paragraphs))),
        *roff.section("OPTIONS", _options(command.options)),
        *roff.section("SIGNALS", roff.items(_terms(prose.SIGNALS, "Dv"))),
        *roff.section("CONFIGURATION", _settings(command.name)),
        *roff.section("ENVIRONMENT", roff.items(_terms(prose.DAEMON_VARIABLES, "Ev"))),
        *roff.section("EXIT STATUS", [roff.text("As described in mq(1).")]),
        *_examples_of([command]),
        *roff.section("SEE ALSO", _see_also(name)),
    ]
    return roff.page(name, 8, DATE, command.summary.rstrip(".").lower(), body)


def _page_of(daemon: str) -> str:
    return f"mq-{daemon.replace(' ', '-')}"


def _command_lists() -> list[str]:
    lines = []
    for group, title in catalog.TITLES.items():
        entries = (
            (f"Cm {name}", [roff.text(words)]) for name, words in catalog.GROUPS[group].items()
        )
        lines += roff.subsection(title, roff.items(entries))
    return lines


def _shared_options() -> list[str]:
    lines = [roff.text(prose.OPTIONS)]
    for title, options in shared_groups():
        lines += roff.subsection(title, _options(options))
    return lines + roff.subsection("Precedence", roff.paragraphs(prose.PRECEDENCE))


def _options(options: list[Option] | tuple[Option, ...]) -> list[str]:
    return roff.items(
        (
            roff.flags(option.flags, option.metavar) if option.flags else f"Ar {option.metavar}",
            [roff.text(option.words)],
        )
        for option in options
    )


def _command(command: CommandDescription) -> list[str]:
    # Words first: those of typer, then the subjects, in order.
    own = sorted(
        command.own,
        key=lambda option: (bool(option.flags) and not option.subject, option.subject),
    )
    usage = " ".join(["mq", command.name, *(option.usage for option in own), "…"])
    lines = [*roff.literal([usage]), roff.text(command.summary)]
    for words in command.paragraphs:
        lines += [".Pp", roff.text(words)]
    if command.aliases:
        names = ", ".join(f"mq {alias}" for alias in command.aliases)
        lines += [".Pp", roff.text(f"Also called {names}.")]
    if flagged := [option for option in command.own if option.subject]:
        shown = ", ".join(f"{'/'.join(option.flags)} {option.metavar}" for option in flagged)
        lines += [".Pp", roff.text(f"With flags instead of positional arguments: {shown}.")]
    if command.effect.destroys:
        lines += [".Pp", roff.text("Asks for confirmation at a terminal, unless --yes is given.")]
    if command.one_of:
        lines += [".Pp", roff.text(f"One of {' or '.join(command.one_of)} is required.")]
    if command.own:
        lines += [".Pp", *_options(command.own)]
    return lines


def _examples_of(commands: Iterable[CommandDescription]) -> list[str]:
    """Return the section EXAMPLES; empty without examples."""
    shown = [example for command in commands for example in command.examples]
    if not shown:
        return []
    return roff.section("EXAMPLES", roff.literal(examples.laid_out(shown, _EXAMPLE_WIDTH)))


def _case(command: CommandDescription, described: CommandDescription, case: str) -> list[str]:
    """Return the lines of a command with an argument that adds options, and these options."""
    from mq.pipeline.jobs import load

    job = load(case)
    options = [option for option in described.own if option not in command.own]
    lines = [*roff.literal([job.example]), roff.text(job.summary)]
    for words in job.paragraphs:
        lines += [".Pp", roff.text(words)]
    if job.writes:
        lines += [".Pp", roff.text(f"Writes {job.writes}")]
    return [*lines, ".Pp", *_options(options)]


def _message_formats() -> list[str]:
    lines = [roff.text(prose.MESSAGE_FORMAT)]
    from mq.cli.show.record_format import MEANINGS

    entries = (
        (f"Li {roff.argument(sign)}", [roff.text(words)]) for sign, words in MEANINGS.items()
    )
    return [*lines, *roff.items(entries)]


def _statuses() -> list[str]:
    entries = ((str(int(status)), [roff.text(words)]) for status, words in MEANINGS.items())
    return [roff.text(prose.STATUS), *roff.items(entries)]


def _examples() -> list[str]:
    lines: list[str] = []
    for number, (words, command) in enumerate(prose.EXAMPLES):
        lines += [".Pp"] if number else []
        lines += [roff.text(words), *roff.literal([command])]
    return lines


def _see_also(own: str) -> list[str]:
    names = [("mq", 1), *((f"mq-{group}", 1) for group in catalog.GROUPS if group != "daemon")]
    names += [(_page_of(name), 8) for name in catalog.GROUPS["daemon"]]
    # mandoc requires them by section, then by name.
    others = sorted((item for item in names if item[0] != own), key=lambda item: (item[1], item[0]))
    last = len(others) - 1
    return [
        f".Xr {name} {section}{'' if index == last else ' ,'}"
        for index, (name, section) in enumerate(others)
    ]


def _settings(daemon: str) -> list[str]:
    from mq.daemons.broker.config import BrokerSettings
    from mq.daemons.config import Settings
    from mq.daemons.console.config import ConsoleSettings
    from mq.daemons.controller.config import ControllerSettings
    from mq.daemons.filtersrv.config import FiltersrvSettings
    from mq.daemons.namesrv.config import NamesrvSettings
    from mq.daemons.snode.config import SnodeSettings
    from mq.daemons.tube.broker.config import BrokerSettings as TubeBrokerSettings
    from mq.daemons.tube.master.config import MasterSettings

    kinds: dict[str, type[Settings]] = {
        "namesrv": NamesrvSettings,
        "console": ConsoleSettings,
        "controller": ControllerSettings,
        "filtersrv": FiltersrvSettings,
        "snode": SnodeSettings,
        "tube master": MasterSettings,
        "tube broker": TubeBrokerSettings,
        "tube standalone": TubeBrokerSettings,
    }
    settings = kinds.get(daemon, BrokerSettings)()
    lines = [roff.text(prose.SETTINGS[daemon])]
    for section in settings.sections:
        title = (type(section).__doc__ or "").strip().splitlines()[0].rstrip(".")
        entries = []
        for setting, value in section.described():
            default = f"Default: {value or 'empty'}."
            unit = f" In {setting.unit}." if setting.unit else ""
            marks = "" if setting.effect else " Accepted, no effect here."
            marks += " Can be changed while the daemon runs." if setting.updatable else ""
            words = f"{setting.doc[:1].upper()}{setting.doc[1:]}.{unit} {default}{marks}"
            entries.append((f"Va {roff.argument(setting.name)}", [roff.text(words)]))
        lines += roff.subsection(title, roff.items(entries))
    return lines


def _terms(entries: tuple[tuple[str, str], ...], macro: str) -> Iterator[tuple[str, list[str]]]:
    for name, words in entries:
        yield f"{macro} {name}", [roff.text(words)]
