"""Declaration of a job: its options, its columns, and where they are looked up.

A job is a module of this package:

    \"""Say in one line what the job does.

    What a user needs to know besides, in paragraphs.
    \"""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        topic: str = option("topic", check_topic, "The topic.", example="Orders", metavar="TOPIC")

    TABLES = (Shape("queues", "Queues", (text("topic", "Topic"), number("messages", "Messages"))),)
    WRITES = "files of Parquet with the columns …"   # what it leaves behind; may be left out
    REPORTS = True                                    # it makes a page; may be left out
    EXAMPLE = "--topic Orders"                        # where required options alone will not do

    def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult: ...

Nothing of this may import Spark, pyarrow or numpy before `run` is called: the command lists and
explains jobs where there is none of them.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mq.client.errors import ClientError
from mq.pipeline import parsing
from mq.pipeline.errors import PipelineError
from mq.pipeline.jobs.job_result import JobResult, Shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mq.pipeline.jobs.access import ClusterAccess


class JobError(PipelineError):
    """A job cannot do what it was asked for: one line that says why and what to do."""


class BrokersAway(JobError):
    """Name servers or brokers do not answer that the job cannot do without."""


class FolderFailed(JobError):
    """A file system did not do what the job needs."""


class FolderRefused(FolderFailed):
    """A file system does not permit it."""


class BadArchive(JobError):
    """What an archive holds, or what was read for it, is not as it has to be."""


class JobOptionError(JobError):
    """The option called `name` of a job cannot be used; `hint` shows a right one."""

    def __init__(self, name: str, reason: str, hint: str = "") -> None:
        super().__init__(f"--{name}: {reason}")
        self.name = name
        self.reason = reason
        self.hint = hint


def option(
    name: str,
    parse: Callable[[str], Any],
    help: str,
    *,
    example: str,
    default: Any = MISSING,
    metavar: str = "TEXT",
) -> Any:
    """A field of a job's options; without a default it has to be given.

    `name` is that of the command line, in kebab-case and without hyphens before it. `parse` makes
    the value of a text and raises ValueError or ClientError for a wrong one. `metavar` says what
    kind of a value it is: TOPIC, TOPIC[,…], GROUP, FILE and DIR are completed by shells, and so is
    a choice such as csv|json.
    """
    metadata = {"name": name, "parse": parse, "help": help, "example": example, "metavar": metavar}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def switch(name: str, help: str) -> Any:
    """A field that is False unless the option is given, which takes no value."""
    metadata = {"name": name, "parse": parsing.yes, "help": help, "example": "", "metavar": ""}
    return field(default=False, metadata=metadata)


@dataclass(frozen=True)
class JobOption:
    """An option as it was declared. `metavar` is empty for a switch."""

    name: str
    field: str
    help: str
    example: str
    metavar: str
    default: Any  # MISSING where it has to be given
    parse: Callable[[str], Any]

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def default_text(self) -> str:
        """The default as a user would write it; empty where there is no such text."""
        if isinstance(self.default, bool):
            return ""
        return str(self.default) if isinstance(self.default, str | int | float) else ""

    @property
    def usage(self) -> str:
        """A right use: `--topic Orders`."""
        return f"--{self.name} {self.example}".rstrip()


class Job:
    """A job, made of its module."""

    def __init__(self, name: str, module: ModuleType) -> None:
        lines = (inspect.getdoc(module) or "").split("\n\n")
        self.name = name
        self.summary = " ".join(lines[0].split())
        self.paragraphs = tuple(" ".join(text.split()) for text in lines[1:])
        self.options: tuple[JobOption, ...] = tuple(map(_option, fields(module.Options)))
        self.tables: tuple[Shape, ...] = module.TABLES
        self.writes: str = getattr(module, "WRITES", "")
        self.reports: bool = getattr(module, "REPORTS", False)
        self._example: str = getattr(module, "EXAMPLE", "")
        self._module = module

    def read(self, given: Mapping[str, str]) -> Any:
        """The job's options from texts by name. Raises JobOptionError."""
        known = {each.name: each for each in self.options}
        values: dict[str, Any] = {}
        for name, text in given.items():
            if name not in known:
                raise self._unknown(name)
            declared = known[name]
            try:
                values[declared.field] = declared.parse(text)
            except (ValueError, ClientError) as error:
                hint = f"for example: {declared.usage}"
                raise JobOptionError(name, str(error), hint) from None
        for each in self.options:
            if each.required and each.field not in values:
                raise JobOptionError(each.name, "is required", f"for example: {each.usage}")
        try:
            return self._module.Options(**values)
        except ValueError as error:  # of __post_init__: options that do not go together
            raise JobError(str(error)) from None

    def run(self, spark: "SparkSession", options: Any, cluster: "ClusterAccess") -> JobResult:
        """Do the job."""
        outcome: JobResult = self._module.run(spark, options, cluster)
        return outcome

    @property
    def example(self) -> str:
        """A right command."""
        needed = " ".join(each.usage for each in self.options if each.required)
        return f"mq spark submit {self.name} {self._example or needed}".rstrip()

    def _unknown(self, name: str) -> JobOptionError:
        names = [each.name for each in self.options]
        near = difflib.get_close_matches(name, names, 1, 0.5)
        hint = f"did you mean --{near[0]}?" if near else f"see: mq spark explain {self.name}"
        return JobOptionError(name, f"job {self.name} has no such option", hint)


def _option(declared: "Field[Any]") -> JobOption:
    given = declared.metadata
    return JobOption(
        name=given["name"],
        field=declared.name,
        help=given["help"],
        example=given["example"],
        metavar=given["metavar"],
        default=declared.default,
        parse=given["parse"],
    )
