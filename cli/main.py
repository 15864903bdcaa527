"""The main program of `mq`: finds the command, imports its module, runs it, returns its status.

Most of a command's time is its start, so this module imports almost nothing: `--version` and
`--help` need neither typer nor the client, and a command imports what it uses.
"""

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mq.cli import catalog
from mq.cli.runtime import global_options
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.global_options import GlobalOption
from mq.cli.runtime.status import Status

if TYPE_CHECKING:
    from mq.cli.runtime.options import CommandParser


def app() -> None:
    """Run `mq` in this process and exit: see `mq.cli.entry`."""
    # Imports create many objects and no garbage: collecting would cost a tenth of the start.
    gc.disable()
    try:
        environment = Environment.of_process()
        status = run(sys.argv[1:], environment)
        environment.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has exited (`mq topicList | head`), which is not an error.
        sys.stdout = None  # so that exit does not flush it
        status = Status.DONE
    sys.exit(status)


def run(arguments: list[str], environment: Environment) -> int:
    """Run one command and return the exit status. Errors go to the environment's stderr."""
    command = "mq"
    try:
        if arguments[:1] == ["__complete"]:
            from mq.cli.completion.candidates import complete

            complete(arguments[1:], environment)
            return Status.DONE
        given, words = global_options.split(arguments)
        given = [*global_options.of_session(environment.before), *given]
        found = catalog.find(words)
        if found is None:
            return _without_command(words, given, environment)
        command = f"mq {catalog.called(words)}"
        return _command(words, given, environment, arguments)
    except KeyboardInterrupt as error:
        return _interrupted(command, error, environment)
    except BrokenPipeError:
        raise
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # during an import Python wraps it
            return _interrupted(command, error.__cause__, environment)
        from mq.cli.runtime.explain import explain

        shown = error if isinstance(error, CommandError) else explain(error, environment)
        # If no broker succeeded, the notes are the errors of the others.
        for line in (*getattr(error, "__notes__", ()), shown.message):
            environment.report(f"{command}: {line}")
        if shown.hint:
            environment.report(f"hint: {shown.hint}")
        return shown.status


def _interrupted(command: str, error: KeyboardInterrupt, environment: Environment) -> int:
    from mq.cli.runtime.interruption import STATUS, WORDS, Interrupted, number_of

    number = number_of(error)
    late = isinstance(error, Interrupted) and error.late
    what = "; it had finished, nothing was lost" if late else ""
    environment.report(f"{command}: {WORDS[number]}{what}")
    return STATUS[number]


def _command(
    words: list[str], given: list[GlobalOption], environment: Environment, line: list[str]
) -> int:
    found = catalog.find(words)
    assert found is not None
    group, name, used = found
    if name == "shell":  # the options are for its commands
        environment = environment.with_options(tuple(word for item in given for word in item.words))
        given = []
    arguments = words[used:]
    everything = "--all" in arguments and not {"-h", "--help"}.isdisjoint(arguments)
    if everything:  # an option of the help, not of the command
        arguments = [word for word in arguments if word != "--all"]
    declared = load(group, name, arguments, catalog.called(words))
    values = declared.parse(arguments, given)
    if values is None:
        from mq.cli.runtime.help import command_text

        environment.stdout.write(command_text(declared, everything=everything))
        if begun := catalog.subcommands(catalog.called(words)):
            # `mq help broker`: the daemon, and commands about brokers.
            from mq.cli.overview import listed

            lines = listed("Commands", {name: catalog.summary(name) for name in begun})
            environment.stdout.write("\n".join(["", *lines]))
        return Status.DONE
    for note in declared.notes:
        environment.report(f"mq {declared.called}: {note}")
    own, shared = declared.split(values)
    if not declared.needs_call:
        _collect_again()
        return int(declared.function(environment, **own) or 0)
    from mq.cli.runtime.call import resolve
    from mq.cli.runtime.runner import run_command

    _collect_again()
    call = resolve(environment, name, shared)
    call.line = line
    return run_command(declared.function, call, own)


def _collect_again() -> None:
    """Enable the collector for the command; objects of the imports are excluded."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def load(group: str, name: str, arguments: Sequence[str] = (), called: str = "") -> "CommandParser":
    """Import the module of a command and build its options; some depend on the arguments.

    `called` is the name by which it was called, for its messages.
    """
    from importlib import import_module

    module = import_module(f"mq.cli.commands.{catalog.module_name(name)}")
    function = getattr(module, catalog.function_name(name))
    from mq.cli.runtime.options import CommandParser

    return CommandParser(name, function, arguments, called or name)


def _without_command(
    arguments: list[str], given: list[GlobalOption], environment: Environment
) -> int:
    """Run `mq`, `mq help …`, `mq --help`, `mq --version`, or report an unknown name."""
    if not arguments and any(item.needed for item in given):
        raise UsageError(f"no command after {given[-1].flag}", hint="see: mq --help")
    word = arguments[0] if arguments else "help"
    if word in ("-V", "--version", "version"):
        from mq import __version__
        from mq.protocol.native import absent

        native = f"not in use: {absent}" if absent else "in use"
        environment.stdout.write(f"mq {__version__}\nnative path: {native}\n")
        return Status.DONE
    if word in ("-h", "--help", "help"):
        after = global_options.after(arguments[1:])
        rest = [word for word in after if not word.startswith("-")]
        everything = "--all" in arguments or rest == ["all"]
        if rest == ["options"]:
            from mq.cli.manual.shared_help import options_text

            environment.stdout.write(options_text())
            return Status.DONE
        if rest == ["all"]:
            rest = []
        if rest and catalog.find(rest) is None and len(rest) == 1:
            if catalog.group_of(rest[0]) or catalog.subcommands(rest[0]):
                environment.stdout.write(_overview(rest[0]))
                return Status.DONE
            from mq.cli.did_you_mean import groups

            if meant := groups(rest[0]):
                hint = f"did you mean the group {' or '.join(meant)}? see: mq help {meant[0]}"
                raise UsageError(f"no command or group {rest[0]!r}", hint=hint)
        if rest:
            return run([*rest, "--help", *(["--all"] if everything else [])], environment)
        environment.stdout.write(_overview() if everything else _first_screen())
        return Status.DONE
    if not word.startswith("-") and catalog.subcommands(word):
        return _group(word, arguments[1:], environment)
    from mq.cli import did_you_mean as near
    from mq.cli.runtime.positionals import check_dashes

    check_dashes(arguments)
    if hint := near.absent(word):
        raise UsageError(f"no command {word!r}", hint=hint)
    if word.startswith("-"):
        hint = _did_you_mean(near.option(arguments))
        raise UsageError(f"no option {word} before a command", hint=hint)
    raise UsageError(f"no command {word!r}", hint=_did_you_mean(near.commands(arguments)))


def _did_you_mean(names: list[str], see: str = "--help") -> str:
    shown = " or ".join(f"mq {name}" for name in names)
    return f"did you mean {shown}?" if names else f"see: mq {see}"


def _group(word: str, rest: list[str], environment: Environment) -> int:
    import shlex

    from mq.cli.runtime.positionals import check_dashes

    check_dashes(rest)
    if rest and not rest[0].startswith("-"):
        from mq.cli.did_you_mean import halves

        hint = _did_you_mean(halves(word, rest[0], rest[1:]), f"help {word}")
        raise UsageError(f"no command '{word} {rest[0]}'", hint=hint)
    if rest and {"-h", "--help"}.isdisjoint(rest):
        after = global_options.after(rest)
        found = catalog.find([word, *after])
        names = [shlex.join([*rest[: len(rest) - len(after)], word, *after])] if found else []
        raise UsageError(
            f"no option {rest[0]} between {word} and its command",
            hint=_did_you_mean(names, f"help {word}"),
        )
    environment.stdout.write(_overview(word))
    return Status.DONE if rest else Status.USAGE


def _overview(word: str | None = None) -> str:
    from mq.cli import overview

    return overview.text(word)


def _first_screen() -> str:
    from mq.cli import first_screen

    return first_screen.text()
