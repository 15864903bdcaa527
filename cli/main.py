"""The entry of `mq`: finds the command, imports only its module, runs it, ends with its status.

A command's start is most of its time, so this module imports next to nothing: `--version` and
`--help` need neither typer nor the client, and a command imports what it uses.
"""

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mq.cli import catalog
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.status import Status

if TYPE_CHECKING:
    from mq.cli.runtime.options import Declared


def app() -> None:
    """Run `mq` in this process and exit. The console script's entry point."""
    # Imports make many objects and no garbage: collecting while they run costs a tenth of a start.
    gc.disable()
    try:
        environment = Environment.of_process()
        status = run(sys.argv[1:], environment)
        environment.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has ended (`mq topicList | head`). Nothing is wrong with it.
        sys.stdout = None  # so that nothing is flushed at exit
        status = Status.DONE
    sys.exit(status)


def run(arguments: list[str], environment: Environment) -> int:
    """Run one command and return the exit status. Errors go to the environment's stderr."""
    command = "mq"
    try:
        if arguments[:1] == ["__complete"]:
            from mq.cli.completing import complete

            complete(arguments[1:], environment)
            return Status.DONE
        found = catalog.find(arguments)
        if found is None:
            return _without_command(arguments, environment)
        group, name, words = found
        command = f"mq {name}"
        return _command(group, name, arguments[words:], environment)
    except KeyboardInterrupt:
        environment.stderr.write(f"{command}: interrupted\n")
        return Status.INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        from mq.cli.runtime.explain import explain

        shown = error if isinstance(error, CommandError) else explain(error, environment)
        # Where none of several brokers did what it should, the notes are what the others said.
        for line in (*getattr(error, "__notes__", ()), shown.message):
            environment.stderr.write(f"{command}: {line}\n")
        if shown.hint:
            environment.stderr.write(f"hint: {shown.hint}\n")
        return shown.status


def _command(group: str, name: str, arguments: list[str], environment: Environment) -> int:
    declared = load(group, name, arguments)
    values = declared.parse(arguments)
    if values is None:
        environment.stdout.write(declared.help())
        return Status.DONE
    own, shared = declared.split(values)
    if not declared.needs_call:
        _collect_again()
        return int(declared.function(environment, **own) or 0)
    from mq.cli.runtime.call import resolve
    from mq.cli.runtime.runner import run_command

    _collect_again()
    return run_command(declared.function, resolve(environment, name, shared), own)


def _collect_again() -> None:
    """Turn the collector on for the command, but let it leave alone what the imports made."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def load(group: str, name: str, arguments: Sequence[str] = ()) -> "Declared":
    """Import the module of a command and build its options, of a few those for the arguments."""
    from importlib import import_module

    module = import_module(f"mq.cli.commands.{catalog.module_name(name)}")
    function = getattr(module, catalog.function_name(name))
    from mq.cli.runtime.options import Declared

    return Declared(name, function, arguments)


def _without_command(arguments: list[str], environment: Environment) -> int:
    """`mq`, `mq help …`, `mq --help`, `mq --version`, or a name that is no command."""
    word = arguments[0] if arguments else "help"
    if word in ("-V", "--version", "version"):
        from mq import __version__
        from mq.protocol.native import absent

        native = f"not in use: {absent}" if absent else "in use"
        environment.stdout.write(f"mq {__version__}\nnative path: {native}\n")
        return Status.DONE
    if word in ("-h", "--help", "help"):
        rest = [word for word in arguments[1:] if not word.startswith("-")]
        if rest and catalog.find(rest) is None and rest[0].lower() in catalog.GROUPS:
            environment.stdout.write(overview(rest[0].lower()))
            return Status.DONE
        if rest and catalog.find(rest) is None and (meant := catalog.near_groups(rest[0])):
            hint = f"did you mean the group {' or '.join(meant)}? see: mq help {meant[0]}"
            raise UsageError(f"no command or group {rest[0]!r}", hint=hint)
        if rest:
            return run([*rest, "--help"], environment)
        environment.stdout.write(overview())
        return Status.DONE
    inner = catalog.subcommands(word)
    if inner:
        return _group(word, inner, arguments[1:], environment)
    if word.startswith("-"):
        raise UsageError(
            f"unknown option {word}", hint="options follow the command; see: mq --help"
        )
    near = catalog.near_misses(arguments)
    hint = f"did you mean {' or '.join(near)}?" if near else "see: mq --help"
    raise UsageError(f"no command {word!r}", hint=hint)


def _group(word: str, inner: list[str], rest: list[str], environment: Environment) -> int:
    if rest and not rest[0].startswith("-"):
        near = [name for name in inner if name.startswith(f"{word} {rest[0][:1]}")]
        near = near or catalog.near_misses([word, *rest])
        hint = f"did you mean {' or '.join(near)}?" if near else f"see: mq {word} --help"
        raise UsageError(f"no command '{word} {rest[0]}'", hint=hint)
    environment.stdout.write(overview(word))
    return Status.DONE if rest else Status.USAGE


def overview(group: str | None = None) -> str:
    """The text of `mq --help`, or of one group of commands."""
    lines = ["Usage: mq COMMAND [OPTIONS]", ""]
    if group is None:
        lines += [
            "mq is RocketMQ in Python: every mqadmin command, and the daemons themselves.",
            "Names are taken in any case and in kebab-case: updateTopic, update-topic.",
            "`mq help COMMAND` shows the options of a command, `mq help topic` the commands",
            "of a group. More: man mq.",
            "",
        ]
    for key, names in catalog.GROUPS.items():
        if group not in (None, key):
            continue
        lines.append(f"{catalog.TITLES[key]}:")
        lines += [f"  {name:<22} {summary}" for name, summary in names.items()]
        lines.append("")
    lines.append("mq COMMAND --help shows the options of a command.")
    return "\n".join(lines) + "\n"
