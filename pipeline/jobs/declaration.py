"""Declaration of a job: its options and its columns.

A job is a module of this package:

    \"""Say in one line what the job does.

    Further information for users, in paragraphs.
    \"""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        topic: str = option("topic", check_topic, "The topic.", example="Orders", metavar="TOPIC")

    TABLES = (Shape("queues", "Queues", (text("topic", "Topic"), number("messages", "Messages"))),)
    WRITES = "files of Parquet with the columns …"   # its output files; optional
    REPORTS = True                                    # it creates a page; optional
    EXAMPLE = "--topic Orders"                        # if required options alone are not enough

    def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult: ...

A job must not import Spark, pyarrow or numpy before `run` is called: the command lists and explains
jobs without them, too.
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
    """A job cannot do its work: one line with the reason and the remedy."""


class BrokersAway(JobError):
    """Name servers or brokers that the job needs do not answer."""


class FolderFailed(JobError):
    """A file system failed."""


class FolderRefused(FolderFailed):
    """A file system denies permission."""


class BadArchive(JobError):
    """The contents of an archive, or the messages read for it, are not valid."""


class JobOptionError(JobError):
    """The option called `name` of a job cannot be used; `hint` shows a valid one."""

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
    """Declare a field of a job's options; it is required without a default.

    `name` is that of the command line, in kebab-case and without leading hyphens. `parse` converts
    a text and raises ValueError or ClientError for an invalid one. `metavar` names the kind of
    value: shells complete TOPIC, TOPIC[,…], GROUP, FILE and DIR, and choices such as csv|json.
    """
    metadata = {"name": name, "parse": parse, "help": help, "example": example, "metavar": metavar}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def switch(name: str, help: str) -> Any:
    """Declare a field that is False unless the option is given, which takes no value."""
    metadata = {"name": name, "parse": parsing.yes, "help": help, "example": "", "metavar": ""}
    return field(default=False, metadata=metadata)


@dataclass(frozen=True)
class JobOption:
    """A declared option. `metavar` is empty for a switch."""

    name: str
    field: str
    help: str
    example: str
    metavar: str
    default: Any  # MISSING if it is required
    parse: Callable[[str], Any]

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def default_text(self) -> str:
        """The default as a user would write it; empty if there is no such text."""
        if isinstance(self.default, bool):
            return ""
        return str(self.default) if isinstance(self.default, str | int | float) else ""

    @property
    def usage(self) -> str:
        """A valid use: `--topic Orders`."""
        return f"--{self.name} {self.example}".rstrip()


class Job:
    """A job, built from its module."""

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
        """Parse the job's options from texts by name. Raises JobOptionError."""
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
        except ValueError as error:  # of __post_init__: options that cannot be combined
            raise JobError(str(error)) from None

    def run(self, spark: "SparkSession", options: Any, cluster: "ClusterAccess") -> JobResult:
        """Run the job."""
        outcome: JobResult = self._module.run(spark, options, cluster)
        return outcome

    @property
    def example(self) -> str:
        """A valid command."""
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
