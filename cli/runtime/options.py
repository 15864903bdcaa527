"""From a command's function to its options, with typer.

A command is a function. Its parameters after the first, declared for typer, are its options and
arguments. The first parameter declares what the command needs:

- `call: Call`: it connects to a cluster or prints a result, and also has the options of
  `mq.cli.runtime.shared_options` for its effects;
- `environment: Environment`: it has only its own options (the daemons).

The rule for equal flags: **the command's own flag wins**. `-o` is `--output` if the command has no
`-o` of its own; where mqadmin gives `-o` another meaning (`updateTopic -o`, `queryMsgByOffset -o`),
only the long `--output`, `-o` before the command and MQ_OUTPUT select the format.

Typer declares, parses and documents; `mq.cli.runtime.values` converts.
"""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import typer

from mq.cli.runtime import positionals
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import effect_of
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.global_options import GlobalOption
from mq.cli.runtime.option_groups import gathered, is_option_group, parameters_of
from mq.cli.runtime.option_sharing import SHARED, free, kind_of, sources
from mq.cli.runtime.values import convert, metavar_of, plain_type


class Truth(Enum):
    """The value of options that mqadmin writes as `-o true`."""

    TRUE = "true"
    FALSE = "false"

    def __bool__(self) -> bool:
        return self is Truth.TRUE


Function = Callable[..., Any]

# click's UsageError, which typer contains and does not export.
_ClickError: Any = typer.BadParameter.__bases__[0]

F = TypeVar("F", bound=Function)


def one_of(*names: str) -> Callable[[F], F]:
    """Declare that exactly one of these parameters must be given (Java's OptionGroup)."""

    def mark(function: F) -> F:
        function.__dict__["one_of"] = names
        return function

    return mark


def at_most_one_of(*names: str) -> Callable[[F], F]:
    """Declare that at most one of these parameters may be given."""

    def mark(function: F) -> F:
        function.__dict__["at_most_one_of"] = names
        return function

    return mark


def subject(*names: str) -> Callable[[F], F]:
    """Declare that these parameters, which have flags, may also be positional, in this order.

    `mq topicStatus Orders` is `mq topicStatus -t Orders`. Words are assigned to parameters without
    a flag: after `-t Orders` the first word of a command about a group and a topic is the group.
    """

    def mark(function: F) -> F:
        function.__dict__["subjects"] = names
        return function

    return mark


def bare(flag: str, instead: str) -> Callable[[F], F]:
    """Declare that `flag` without a value means the option `instead`.

    It is for a flag that had no value in 4.9 and has one in 5.x (resetOffsetByTime -c).
    """

    def mark(function: F) -> F:
        function.__dict__["bare"] = (flag, instead)
        return function

    return mark


def widened(
    by: Callable[[Sequence[str]], list[inspect.Parameter]], cases: Sequence[str]
) -> Callable[[F], F]:
    """Declare that the first argument, one of `cases`, adds options to the command.

    `by` returns parameters for the arguments; the command receives their values as keywords (`**`).
    """

    def mark(function: F) -> F:
        function.__dict__["widened"] = by
        function.__dict__["cases"] = tuple(cases)
        return function

    return mark


class CommandParser:
    """A command with its options: parses arguments and has its help."""

    def __init__(
        self, name: str, function: Function, arguments: Sequence[str] = (), called: str = ""
    ) -> None:
        own = inspect.signature(function)
        parameters = list(own.parameters.values())
        hints = typing.get_type_hints(function, include_extras=True)
        self.name = name
        self.called = called or name  # the name by which it was called
        self.notes: list[str] = []  # words that `parse` ignored
        self.function = function
        self.needs_call = hints[parameters[0].name] is Call
        self._groups: dict[str, type[Any]] = {}
        merged: list[inspect.Parameter] = []
        for item in parameters[1:]:
            annotation = hints[item.name]
            if is_option_group(annotation):
                self._groups[item.name] = annotation
                merged += parameters_of(annotation)
            elif item.kind is not inspect.Parameter.VAR_KEYWORD:
                merged.append(item.replace(annotation=annotation))
        if widen := function.__dict__.get("widened"):
            merged += widen(arguments)
        self.own_names = [item.name for item in merged]
        if self.needs_call:
            for source in sources(function):
                merged += free(source, merged)
        self._parameters = {item.name: item for item in merged}
        self._one_of: tuple[str, ...] = function.__dict__.get("one_of", ())
        self._at_most_one_of: tuple[str, ...] = function.__dict__.get("at_most_one_of", ())
        self._bare: tuple[str, str] = function.__dict__.get("bare", ("", ""))
        self.command = self._build(merged)
        self.context = typer.Context(
            self.command, info_name=f"mq {self.called}", help_option_names=["-h", "--help"]
        )
        options = self.command.get_params(self.context)
        by_name = {option.name: option for option in options}
        # Positional arguments of typer come first; the parser's remaining words belong to subjects.
        arguments_first = [item for item in options if item.param_type_name == "argument"]
        self.subjects: tuple[str, ...] = function.__dict__.get("subjects", ())
        self.words = [
            _word(item, self._parameters[item.name])
            for item in (*arguments_first, *(by_name[name] for name in self.subjects))
        ]
        self._options = by_name
        self._flags: dict[str, list[str]] = {
            name: [*option.opts] for option in options if (name := option.name)
        }
        self._takes_value = {
            flag
            for option in options
            if not getattr(option, "is_flag", False)
            for flag in option.opts
            if flag.startswith("-")
        }

    def _build(self, merged: list[inspect.Parameter]) -> Any:
        def declared(**_: object) -> None: ...

        # Keyword-only parameters may be in any order: a required one after one with a default.
        by_name = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in merged]
        declared.__dict__["__signature__"] = inspect.Signature(by_name)
        application = typer.Typer(add_completion=False, rich_markup_mode=None)
        application.command(self.name)(declared)
        return typer.main.get_command(application)

    def flags(self, name: str) -> str:
        """Return parameter `name` as users write it: `-t/--topic`."""
        return "/".join(self._flags[name])

    def parameter(self, name: str) -> inspect.Parameter:
        """Return the declaration of a parameter."""
        return self._parameters[name]

    def kind(self, name: str) -> Any:
        """Return the type of a parameter's value: `str` for `Annotated[str | None, …]`."""
        return plain_type(self._parameters[name].annotation)

    def parse(
        self, arguments: Sequence[str], before: Sequence[GlobalOption] = ()
    ) -> dict[str, Any] | None:
        """Return the values of all parameters by name; None for a request of help.

        `before` are the options before the command. Raises UsageError with the wrong option.
        """
        given, rest = self._split(arguments)
        if given.get("help"):
            return None
        earlier = self._of_before(before)
        given = {**earlier, **{name: raw for name, raw in given.items() if raw is not None}}
        self._take_words(given, rest)
        self._check_groups(given)
        return {name: self._value(parameter, given) for name, parameter in self._parameters.items()}

    def split(self, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the command's own values by parameter, and those of the shared options by name."""
        own = gathered(self._groups, {name: values[name] for name in self.own_names})
        shared = {
            name.removeprefix(SHARED): value
            for name, value in values.items()
            if name.startswith(SHARED)
        }
        return own, shared

    def _split(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        if self.name == "broker" and "-pc" in arguments:  # release 5; it does not mean -p -c
            raise self._wrong(
                "-pc is for the settings of Java's proxy, which mq does not have; to print the "
                "settings of a broker's file use -p -c FILE"
            )
        parser = self.command.make_parser(self.context)
        try:
            given, rest, _ = parser.parse_args(list(self._normalized(arguments)))
        except _ClickError as error:
            if hasattr(error, "possibilities"):  # click's NoSuchOption
                from mq.cli.did_you_mean import flag

                flags = [item for options in self._flags.values() for item in options]
                own = [self.flags(name) for name in self.own_names if self.flags(name)[0] == "-"]
                hint = flag(error.option_name, flags, own, self.called)
                raise UsageError(f"no such option: {error.option_name}", hint=hint) from None
            message = error.format_message().rstrip(".")
            raise self._wrong(message[:1].lower() + message[1:]) from None
        return given, rest

    def _normalized(self, given: Sequence[str]) -> Iterator[str]:
        """Yield the words with options as declared; the word after an option with a value is a
        value."""
        is_value = ended = False
        flag, instead = self._bare
        for word, following in zip(given, [*given[1:], "-"], strict=False):
            if ended or (word == "--" and not is_value):  # no options follow it
                ended = True
                yield word
                continue
            normal = word if is_value else self._normal(word)
            if normal == flag and not is_value and following.startswith("-"):
                normal = instead
            is_value = not is_value and normal in self._takes_value
            yield normal

    def _normal(self, word: str) -> str:
        """Return an option as declared: Java accepts `-topic`, too, and mq `--broker-addr`."""
        if len(word) < 3 or word[0] != "-":
            return word
        flag, equals, value = word.partition("=")
        folded = flag.lstrip("-").replace("-", "").lower()
        names = [option for options in self._flags.values() for option in options]
        if flag in names:
            return word
        for option in names:
            if option.startswith("--") and option[2:].lower() == folded:
                if flag[1] == "-" or option[2:] == flag[1:]:
                    return option + equals + value
        return word

    def _of_before(self, before: Sequence[GlobalOption]) -> dict[str, Any]:
        """Return values of options before the command, by parameter: the last of each."""
        found: dict[str, Any] = {}
        for option in before:
            names = [
                name
                for long in option.longs
                for name, flags in self._flags.items()
                if long in flags and name in self._parameters and self._is_shared(name, long)
            ]
            if not names:
                if not option.needed:
                    continue
                raise self._wrong(f"the command has no option {option.longs[0]}")
            name = names[0]
            repeated = bool(getattr(self._options[name], "multiple", False))
            found[name] = [option.value] if repeated else option.value
        return found

    def _is_shared(self, name: str, long: str) -> bool:
        """Return whether an option is the shared one, or the command's own with the same meaning.

        A daemon's `--namesrvAddr` is. The `--body` of sendMessage is a text, not a format.
        """
        return name.startswith(SHARED) or self.kind(name) is kind_of(long)

    def _take_words(self, given: dict[str, Any], rest: list[str]) -> None:
        """Assign the words to the subjects without a flag."""
        by_flag = [word for word in self.words if word.name in given]
        if rest:
            self._check_values(given)
            if not {"value", "body"} & {word.name for word in self.words}:
                positionals.check_dashes(rest)
        left = positionals.take(self.words, given, rest)
        for word in self.words:
            if given.get(word.name) == "" and word.name not in {item.name for item in by_flag}:
                # An empty "$BROKER" does not mean all brokers.
                if word.name not in ("value", "body"):
                    raise self._wrong(f"the argument for the {word.noun} is empty")
        if left:
            why = f"unexpected argument {left[0]!r}"
            from mq.cli.did_you_mean import with_surplus

            if meant := with_surplus(self.called, left):
                raise UsageError(why, hint=f"did you mean mq {meant[0]}?")
            if self._ignores(left, given):
                return
            if self.subjects and by_flag:
                nouns = " and ".join(word.noun for word in by_flag)
                why += f": the {nouns} {'are' if len(by_flag) > 1 else 'is'} given by flag"
            raise self._wrong(why, form=self.form(given))

    def _ignores(self, left: Sequence[str], given: Mapping[str, Any]) -> bool:
        """Return whether surplus words are ignored, as in Java's commands; notes report them.

        A surplus word may be half of a value without quotes. So a command that changes something
        ignores only its own name, and any other command only words besides options.
        """
        is_daemon = "config_item" in self._parameters
        changes = effect_of(self.function).writes
        settings = []
        flags = [name for name in given if self._flags.get(name, [""])[0].startswith("-")]
        for word in left:
            own_name = word.lower() in (self.called.lower(), self.name.lower())
            if is_daemon and "=" in word:
                settings.append(f"--set {word}")
            elif not own_name and (changes or not flags):
                return False
        hint = f"; use {' '.join(settings)}, or the configuration file" if settings else ""
        self.notes.append(f"ignored: {' '.join(map(repr, left))}{hint}")
        return True

    def _check_values(self, given: Mapping[str, Any]) -> None:
        """Refuse an option as a value if there are words, too.

        In `-g $GROUP -t Orders` with an empty variable, `-t` would be the group, and Orders a word.
        """
        flags = {flag for options in self._flags.values() for flag in options}
        for name, value in given.items():
            if isinstance(value, str) and value in flags and self._flags[name][0][0] == "-":
                raise self._wrong(f"{self.flags(name)} needs a value, and {value} is an option")

    def form(self, given: Mapping[str, Any]) -> str:
        """Return the correct form of the command, with the given values and the required ones."""
        needed = [
            positionals.Positional(
                name, tuple(self._flags[name]), self.metavar(name), required=True
            )
            for name, parameter in self._parameters.items()
            if parameter.default is inspect.Parameter.empty
            and name not in {word.name for word in self.words}
        ]
        return positionals.form(f"mq {self.called}", self.words, needed, given)

    def metavar(self, name: str) -> str:
        """Return the placeholder of a parameter's value, such as TOPIC; empty for a flag."""
        return metavar_of(self._options[name], self.kind(name))

    def _check_groups(self, given: dict[str, Any]) -> None:
        exclusive = self._one_of or self._at_most_one_of
        chosen = [name for name in exclusive if given.get(name) is not None]
        flags = [self.flags(name) for name in exclusive]
        if self._one_of and not chosen:
            last = self._one_of[-1]
            form = f"{self.form(given)} {self._flags[last][0]} {self.metavar(last)}".rstrip()
            raise self._wrong(f"one of {' or '.join(flags)} is required", form=form)
        if len(chosen) > 1:
            raise self._wrong(f"only one of {' and '.join(flags)} may be given")

    def _value(self, parameter: inspect.Parameter, given: Mapping[str, Any]) -> Any:
        raw = given.get(parameter.name)
        if raw is None or raw == ():
            if parameter.default is inspect.Parameter.empty:
                raise self._missing(parameter.name, given)
            return parameter.default
        kind = plain_type(parameter.annotation)
        parser = typing.get_args(parameter.annotation)[1].parser
        try:
            return parser(str(raw).strip()) if parser else convert(raw, kind)
        except ValueError as error:
            raise self._wrong(f"{self.flags(parameter.name)}: {error}") from None

    def _missing(self, name: str, given: Mapping[str, Any]) -> UsageError:
        for word in self.words:
            if word.name == name:
                return self._wrong(f"missing {word.noun}", form=self.form(given))
        return self._wrong(f"{self.flags(name)} is required", form=self.form(given))

    def _wrong(self, message: str, *, form: str = "") -> UsageError:
        see = f"see: mq {self.called} --help"
        return UsageError(message, hint=f"usage: {form}; {see}" if form else see)


def _word(option: Any, parameter: inspect.Parameter) -> positionals.Positional:
    return positionals.Positional(
        parameter.name,
        () if option.param_type_name == "argument" else tuple(option.opts),
        metavar_of(option, plain_type(parameter.annotation)),
        required=parameter.default is inspect.Parameter.empty,
        repeated=bool(getattr(option, "multiple", False)),
    )
